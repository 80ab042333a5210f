"""What a device can do at most, measured on the spot, and what a piece of work needs at least."""

from __future__ import annotations

import time
from contextlib import suppress

import torch
from torch.utils.flop_counter import FlopCounterMode

ADAM_BYTES = 28
"""A weight's update in float32: weight, gradient and two averages read, all but one written."""


def wait(device):
    """Until the device has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best_seconds(device, function, repeats=10):
    """The least of several, after one that is not counted."""
    function()
    wait(device)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        wait(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def peaks(device, dtype, quick):
    """Operations and bytes a second that this device reaches in a matrix product and in copies."""
    side = 512 if quick else 8_192
    factor = torch.randn(side, side, device=device, dtype=dtype)
    block = torch.zeros((1 << 22) if quick else (1 << 30), dtype=torch.uint8, device=device)
    home = torch.zeros(block.numel() // 4, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = block[: home.numel()]
    return {
        "operations": 2 * side**3 / best_seconds(device, lambda: factor @ factor),
        # A copy reads and writes each byte.
        "bytes": 2 * block.numel() / best_seconds(device, block.clone),
        "bytes_to_host": home.numel() / best_seconds(device, lambda: home.copy_(there)),
        "bytes_from_host": home.numel() / best_seconds(device, lambda: there.copy_(home)),
    }


def operations(function, *arguments):
    """Floating-point operations of matrix products and attention in a call, backward included.

    A fused attention that the counter does not know is counted as nothing, so the floor is a lower
    bound in any case.
    """
    counter = FlopCounterMode(display=False)
    with counter:
        function(*arguments)
    return counter.get_total_flops()


def device_name(device):
    """What the device calls itself."""
    with suppress(AssertionError, RuntimeError):
        if device.type == "cuda":
            return torch.cuda.get_device_name(device)
    return str(device)


def floor(needs, peak):
    """Seconds below which a device cannot be, and by which of operations and bytes."""
    parts = {name: needs[name] / peak[name] for name in ("operations", "bytes")}
    parts |= {
        name: needs[name] / peak[name]
        for name in ("bytes_to_host", "bytes_from_host")
        if name in needs
    }
    return {"seconds": max(parts.values()), "by": max(parts, key=parts.__getitem__), "parts": parts}
