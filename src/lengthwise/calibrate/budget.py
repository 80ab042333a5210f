"""The largest budget of tokens that memory allows, found by trying."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lengthwise.core.limits import MAX_TOKENS_LIMIT, require_int
from lengthwise.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.calibrate.memory import MemoryFit
    from lengthwise.calibrate.steps import Step
    from lengthwise.calibrate.stopwatch import Stopwatch

    Report = Callable[[int, int | None, str], None]

RESOLUTION = 16
"""The search for a batch size ends when less than a sixteenth of it is in doubt."""
_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


@dataclass(frozen=True, slots=True)
class Probe:
    """One step that was tried; ``fits`` is false where it ran out of memory."""

    batch_size: int
    longest: int
    fits: bool
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class BucketBudget:
    """What one bucket may hold.

    Attributes:
        longest: of the bucket, in tokens.
        batch_size: samples that are safe, margin taken off.
        fitted_batch_size: the most that ran.
        limited: by memory; false where the search ended at the most that was to be tried.
    """

    longest: int
    batch_size: int
    fitted_batch_size: int
    limited: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search found.

    Attributes:
        max_tokens: the budget that is safe at every length up to the longest: the least
            ``batch_size * longest`` of the buckets that reach less than ``max_batch_size``; the
            most where all reach it.
        buckets: one for each longest, rising.
        probes: every step that was tried, in order.
        margin: share that was taken off what fits.
    """

    max_tokens: int
    buckets: tuple[BucketBudget, ...]
    probes: tuple[Probe, ...]
    margin: float


def largest_budget(
    step: Step,
    longest: Sequence[int],
    *,
    stopwatch: Stopwatch,
    most_tokens: int,
    max_batch_size: int | None = None,
    margin: float = 0.1,
    max_probes: int = 100,
    memory: MemoryFit | None = None,
    limit_bytes: int | None = None,
    progress: Report | None = None,
) -> Budget:
    """Find the most samples that fit at each longest, and the budget of tokens that follows.

    The search begins with one sample of the shortest ``longest`` and doubles until a step runs out
    of memory, then halves what is in doubt until it is under a sixteenth. A longer bucket begins
    with half the tokens that fitted before it. With a memory fit and a limit no shape is tried
    whose predicted peak is above the limit. At the end the margin is taken off and every bucket's
    batch runs once more, longest first, with the allocator as the search has left it; one that
    fails then is made smaller by the margin (by a sixteenth at least), and all run again.

    What a step that ran out of memory held is let go before the next: no reference to its error is
    kept, cycles are collected, and the allocator's free blocks are returned. Errors of any other
    kind are not caught.

    Args:
        step: as for :func:`calibrate`; on a device that refuses what it cannot hold. Linux
            usually kills a process instead, so on a CPU set a limit first (``ulimit -v``).
        longest: tokens of each bucket's longest sample.
        stopwatch: the device's (:func:`stopwatch_for`); it releases memory after a failure.
        most_tokens: no batch above this is tried.
        max_batch_size: nor one of more samples.
        margin: share of the samples that fit which is left free, from 0 up to 1. A batch of one
            sample cannot be made smaller.
        max_probes: steps that are tried at most, the last runs included.
        memory: of the same step, for ``limit_bytes``.
        limit_bytes: of the device.
        progress: is told (probes done, max_probes, "probes").

    Raises:
        ConfigError: a setting out of range.
        TrainingError: one sample alone runs out of memory, or the probes did not suffice.
    """
    if not 0 <= margin < 1:
        raise ConfigError(f"margin must be from 0 to below 1, got {margin}")
    if (memory is None) != (limit_bytes is None):
        raise ConfigError("memory and limit_bytes belong together: give both or neither")
    order = sorted({require_int("longest", value, least=1) for value in longest})
    most = require_int("most_tokens", most_tokens, least=1, most=MAX_TOKENS_LIMIT)
    if not order or most < order[-1]:
        raise ConfigError(f"most_tokens ({most:,}) must hold one sample of each longest: {order}")
    tries = _Tries(step, stopwatch, max_probes, progress)
    found: list[BucketBudget] = []
    start = 1
    for tokens in order:
        cap = min(most // tokens, max_batch_size or most)
        known = cap
        if memory is not None and limit_bytes is not None:
            known = min(cap, max(memory.largest_batch_size(tokens, limit_bytes), 1))
        size, failed = _search(tries, tokens, min(max(start // tokens, 1), known), known)
        limited = failed or known < cap
        safe = max(math.floor(size * (1 - margin)), 1) if limited else size
        found.append(BucketBudget(tokens, safe, size, limited))
        start = size * tokens // 2
    buckets = _verify(tries, found, margin)
    return Budget(_safe_total(buckets, max_batch_size), buckets, tuple(tries.probes), margin)


def _safe_total(buckets: tuple[BucketBudget, ...], max_batch_size: int | None) -> int:
    # A batch of n samples, longest m, needs no more than one of as many tokens at the bucket's
    # longest, and no more than one of max_batch_size samples there; one of both has run.
    totals = [item.batch_size * item.longest for item in buckets]
    by_tokens = [
        total
        for item, total in zip(buckets, totals, strict=True)
        if item.batch_size != max_batch_size
    ]
    return min(by_tokens) if by_tokens else max(totals)


def _search(tries: _Tries, longest: int, size: int, most: int) -> tuple[int, bool]:
    """The largest batch size that fits, nearly; and whether a larger one failed."""
    fits, fails = 0, 0  # 0: none has failed
    while True:
        if tries.fits(size, longest):
            fits = size
        else:
            fails = size
        if fails == 1:
            raise TrainingError(
                f"even one sample of {longest:,} tokens runs out of memory; shorten the samples, "
                f"or use a smaller model, a smaller dtype or checkpointing of activations"
            )
        if not fails:
            if fits == most:
                return fits, False
            size = min(fits * 2, most)
        elif fails - fits <= max(fits // RESOLUTION, 1):
            return fits, True
        else:
            size = (fits + fails) // 2


def _verify(tries: _Tries, found: list[BucketBudget], margin: float) -> tuple[BucketBudget, ...]:
    """Run every bucket's batch in one go, made smaller until none fails."""
    step = max(margin, 1 / RESOLUTION)
    buckets = sorted(found, key=lambda item: -item.longest)
    clean = False
    while not clean:
        clean = True
        for place, item in enumerate(buckets):
            size = item.batch_size
            while not tries.fits(size, item.longest):
                clean = False
                if size == 1:
                    raise TrainingError(
                        f"one sample of {item.longest:,} tokens fitted at first, but no longer "
                        f"after other batches: memory is too fragmented to be safe"
                    )
                size = min(math.floor(size * (1 - step)), size - 1)
            buckets[place] = BucketBudget(
                item.longest, size, item.fitted_batch_size, item.limited or size < item.batch_size
            )
    return tuple(reversed(buckets))


@dataclass(slots=True)
class _Tries:
    step: Step
    stopwatch: Stopwatch
    most: int
    progress: Report | None
    probes: list[Probe] = field(default_factory=list)

    def fits(self, batch_size: int, longest: int) -> bool:
        """Try one step."""
        if len(self.probes) >= self.most:
            raise TrainingError(
                f"{self.most} probes did not suffice; raise max_probes, or search fewer buckets"
            )
        fits, peak = True, None
        try:
            _, peak = self.stopwatch.measure(self.step(batch_size, longest))
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        if not fits:  # only here is the error gone, and with it the frames that hold tensors
            self.stopwatch.release()
        self.probes.append(Probe(batch_size, longest, fits, peak))
        if self.progress is not None:
            self.progress(len(self.probes), self.most, "probes")
        return fits


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: Python's, PyTorch's, or a CUDA library's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in _WORDS)
