"""A device of one process alone."""

from __future__ import annotations

import os

import torch


def use_device(device: torch.device, num_processes: int) -> None:
    """Make a device this process's own; processes on the CPU share its cores.

    Args:
        device: to use.
        num_processes: that compute on this machine's CPU.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        torch.set_num_threads(max(1, min(torch.get_num_threads(), (cores or 1) // num_processes)))
