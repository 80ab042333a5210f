"""Running independent kernel calls on a few threads.

Kernels release the GIL, so plain threads give the speed-up of numba's own parallel loops without
its thread pool, which neither survives a fork nor allows calls from several threads at once. What
a task computes never depends on the number of threads.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Result = TypeVar("Result")

MOST_THREADS = 8
"""More threads than this gain nothing: shuffling is bound by memory bandwidth."""


def default_threads() -> int:
    """Processors that this process may use, at most :data:`MOST_THREADS`."""
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else (os.cpu_count() or 1)
    return max(1, min(usable, MOST_THREADS))


def run_all(tasks: Sequence[Callable[[], Result]], num_threads: int) -> list[Result]:
    """Run every task and return their results in order; the first error is raised."""
    if num_threads <= 1 or len(tasks) <= 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(num_threads, len(tasks))) as pool:
        return list(pool.map(lambda task: task(), tasks))
