"""What a batch may hold at most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lengthwise.errors import ConfigError

Int64Array = npt.NDArray[np.int64]

MAX_TOKENS_LIMIT = 2**40
"""Largest accepted budget: products of a budget and a sample count stay inside int64."""


def require_int(name: str, value: object, *, least: int, most: int = MAX_TOKENS_LIMIT) -> int:
    """Return ``value`` as an int in ``[least, most]``, or raise :class:`ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    if not least <= int(value) <= most:
        raise ConfigError(f"{name} must be from {least:,} to {most:,}, got {int(value):,}")
    return int(value)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Hard limits that no batch of any plan exceeds.

    A batch of ``n`` samples whose longest is ``m`` tokens costs ``n * padded(m)`` padded tokens,
    where ``padded`` rounds up to ``pad_to_multiple_of``. It is legal if that is at most
    ``max_tokens`` and ``n`` is at most ``max_batch_size``.

    Args:
        max_tokens: padded tokens a batch may hold.
        max_batch_size: samples a batch may hold; ``None`` leaves it to ``max_tokens``.
        pad_to_multiple_of: the longest of a batch is rounded up to a multiple of this
            (8 or 64 suit tensor cores). 1 pads to the longest sample itself.
        batch_size_multiple_of: a batch that holds at least this many samples holds a multiple of
            it; smaller rests stay as they are, so that no sample is lost.

    Raises:
        ConfigError: a value is not an integer, or out of range, or no batch could be legal.
    """

    max_tokens: int
    max_batch_size: int | None = None
    pad_to_multiple_of: int = 1
    batch_size_multiple_of: int = 1

    def __post_init__(self) -> None:
        """Normalise to plain ints; refuse limits under which no batch could exist."""
        put = object.__setattr__
        put(self, "max_tokens", require_int("max_tokens", self.max_tokens, least=1))
        if self.max_batch_size is not None:
            size = require_int("max_batch_size", self.max_batch_size, least=1)
            put(self, "max_batch_size", size)
        for name in ("pad_to_multiple_of", "batch_size_multiple_of"):
            put(self, name, require_int(name, getattr(self, name), least=1))
        if self.pad_to_multiple_of > self.max_tokens:
            raise ConfigError(
                f"pad_to_multiple_of ({self.pad_to_multiple_of:,}) is above max_tokens "
                f"({self.max_tokens:,}): even one token would be padded beyond the budget"
            )

    @property
    def size_cap(self) -> int:
        """The largest number of samples any batch can hold (one-token samples)."""
        by_tokens = self.max_tokens // self.pad_to_multiple_of
        return by_tokens if self.max_batch_size is None else min(by_tokens, self.max_batch_size)

    @property
    def longest_allowed(self) -> int:
        """The longest sample that fits a batch on its own, in tokens."""
        return self.max_tokens // self.pad_to_multiple_of * self.pad_to_multiple_of

    def padded_length(self, length: int) -> int:
        """``length`` rounded up to ``pad_to_multiple_of``."""
        step = self.pad_to_multiple_of
        return -(-int(length) // step) * step

    def padded_lengths(self, lengths: Int64Array) -> Int64Array:
        """Each length rounded up to ``pad_to_multiple_of``; int64, same shape."""
        step = self.pad_to_multiple_of
        if step == 1:
            return lengths
        return -(-lengths // step) * step

    def batch_size_for(self, longest: int) -> int:
        """How many samples fit when the longest has ``longest`` tokens; 0 if not even one."""
        padded = max(self.padded_length(longest), self.pad_to_multiple_of)
        size = self.max_tokens // padded
        if self.max_batch_size is not None:
            size = min(size, self.max_batch_size)
        step = self.batch_size_multiple_of
        return size // step * step if size >= step else size
