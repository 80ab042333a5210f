"""Time and memory of one step, on a CPU and on a CUDA device."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable


class Stopwatch(Protocol):
    """What measures a step. Give your own where a device has other clocks or counters."""

    def measure(self, run: Callable[[], object]) -> tuple[float, int | None]:
        """Run it to its end; seconds, and the most bytes held meanwhile (None: not counted)."""
        ...

    def now(self) -> float:
        """Seconds on a clock that only rises; bounds the whole measurement."""
        ...

    def release(self) -> None:
        """Give back what a step that ran out of memory left behind."""
        ...


class CpuStopwatch:
    """The clock of the process. Memory is not counted: the system's figure never falls again."""

    def measure(self, run: Callable[[], object]) -> tuple[float, int | None]:
        """Seconds by ``time.perf_counter``, and None."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start, None

    def now(self) -> float:
        """Seconds by ``time.monotonic``."""
        return time.monotonic()

    def release(self) -> None:
        """Collect what only cycles keep alive, such as the frames of an error."""
        gc.collect()


class CudaStopwatch:
    """Events on the device's current stream, and the peak of PyTorch's allocator.

    The device is idle when a step begins and is waited for when it ends, both outside what is
    timed, so a step's time holds its launches where they are the slower part. The peak counts
    tensors, the model's own included; what the allocator holds in vain is not in it.
    """

    def __init__(self, device: str = "cuda") -> None:
        """Use ``device``, such as "cuda" or "cuda:1"."""
        self._torch = _torch()
        self._device = device

    def measure(self, run: Callable[[], object]) -> tuple[float, int | None]:
        """Seconds between two events around the step, and the peak bytes meanwhile."""
        cuda = self._torch.cuda
        with cuda.device(self._device):
            cuda.reset_peak_memory_stats(self._device)
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            cuda.synchronize(self._device)
            start.record()
            run()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1e3, int(cuda.max_memory_allocated(self._device))

    def now(self) -> float:
        """Seconds by ``time.monotonic``."""
        return time.monotonic()

    def release(self) -> None:
        """Collect cycles, then return the allocator's free blocks to the device."""
        gc.collect()
        self._torch.cuda.empty_cache()


def stopwatch_for(device: str) -> Stopwatch:
    """The stopwatch of a device named as in PyTorch.

    Raises:
        ConfigError: neither "cpu" nor "cuda", or a CUDA device that is not there.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return CpuStopwatch()
    if kind != "cuda":
        raise ConfigError(
            f"steps are timed on 'cpu' and 'cuda' devices, got {device!r}; for another device "
            f"give a stopwatch of your own"
        )
    cuda = _torch().cuda
    index = int(device.partition(":")[2] or 0)
    if index >= cuda.device_count():
        raise ConfigError(f"{device} is not there: PyTorch sees {cuda.device_count()} CUDA devices")
    return CudaStopwatch(device)


def device_bytes(device: str) -> int:
    """All the memory of a CUDA device, in bytes."""
    return int(_torch().cuda.get_device_properties(device).total_memory)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "CUDA devices need PyTorch: pip install 'lengthwise[torch]'"
        ) from None
    return torch
