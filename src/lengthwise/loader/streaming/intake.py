"""A sample on its way in: its length, and what happens where it fits no batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lengthwise.errors import BadLengthError, ConfigError, DataError, OversizeError

if TYPE_CHECKING:
    from lengthwise.loader.streaming.config import StreamingConfig
    from lengthwise.loader.streaming.stats import StreamStats

LengthFn = Callable[[Any], int]
TruncateFn = Callable[[Any, int], Any]


class Admitted(NamedTuple):
    """A sample that goes into a batch, and its length in tokens."""

    length: int
    sample: Any


class Intake:
    """Measures samples and applies the oversize policy.

    Args:
        length: a function from a sample to its tokens, or the name of a field that holds the
            number of tokens or the tokens themselves.
        config: says what fits a batch, and what to do with a sample that does not.
        truncate_fn: ``truncate_fn(sample, num_tokens)`` returns the sample cut to that length.
    """

    def __init__(
        self,
        length: str | LengthFn,
        config: StreamingConfig,
        truncate_fn: TruncateFn | None,
    ) -> None:
        """Check that the policy has what it needs."""
        if not isinstance(length, str) and not callable(length):
            raise ConfigError(f"length must be a field's name or a function, got {length!r}")
        if (config.oversize == "truncate") != (truncate_fn is not None):
            raise ConfigError(
                "oversize='truncate' and truncate_fn belong together: truncate_fn(sample, "
                "num_tokens) returns the sample cut to that length"
            )
        self._length_of = FieldLength(length) if isinstance(length, str) else length
        self.longest_allowed = config.longest_allowed
        self._max_tokens = config.limits.max_tokens
        self._oversize, self._truncate = config.oversize, truncate_fn

    def measure(self, sample: Any, number: int) -> int:
        """The sample's length, a whole number of at least 1.

        Raises:
            BadLengthError: anything else; names the sample's number in the stream.
        """
        length = self._length_of(sample)
        if type(length) is int and length >= 1:
            return length
        return _checked(length, number)

    def admit(self, length: int, number: int, sample: Any, stats: StreamStats) -> Admitted | None:
        """What goes on of a sample of this length; ``None`` where it is dropped.

        One that is still longer than ``longest_allowed`` must be a batch on its own.

        Raises:
            OversizeError: it fits no batch and the policy is ``"error"``.
            DataError: ``truncate_fn`` returned a sample that is still too long.
        """
        if length <= self.longest_allowed:
            return Admitted(length, sample)
        stats.num_oversize += 1
        if self._oversize == "error":
            raise OversizeError(
                f"sample {number:,} of the stream has {length:,} tokens, longer than a batch may "
                f"be ({self.longest_allowed:,} tokens under max_tokens={self._max_tokens:,}). "
                f"Raise max_tokens, or choose oversize='drop', 'truncate' or 'single'."
            )
        if self._oversize == "drop":
            stats.num_dropped_oversize += 1
            return None
        if self._oversize == "single":
            return Admitted(length, sample)
        stats.num_truncated += 1
        return self._cut(sample, number)

    def _cut(self, sample: Any, number: int) -> Admitted:
        assert self._truncate is not None
        short = self._truncate(sample, self.longest_allowed)
        length = self.measure(short, number)
        if length > self.longest_allowed:
            raise DataError(
                f"truncate_fn left sample {number:,} of the stream at {length:,} tokens; it was "
                f"asked for at most {self.longest_allowed:,}"
            )
        return Admitted(length, short)


@dataclass(frozen=True, slots=True)
class FieldLength:
    """The number in a field of a sample, or how many things the field holds."""

    name: str

    def __call__(self, sample: Any) -> int:
        """Any value but text; the caller checks that it is a length."""
        name = self.name
        try:
            value = sample[name] if isinstance(sample, Mapping) else getattr(sample, name)
        except (KeyError, AttributeError) as error:
            known = ", ".join(map(str, sample)) if isinstance(sample, Mapping) else repr(sample)
            raise DataError(
                f"a sample of the stream has no field {name!r}; it has: {known:.200}"
            ) from error
        if isinstance(value, (str, bytes)):
            raise DataError(
                f"field {name!r} holds text, whose tokens are not known: give length= a function, "
                f"for example lambda sample: len(tokenizer(sample[{name!r}])['input_ids'])"
            )
        if hasattr(value, "__len__") and getattr(value, "shape", None) != ():
            return len(value)
        return value  # type: ignore[no-any-return]  # checked by the caller


def _checked(value: Any, number: int) -> int:
    """A length of another type than int, as an int.

    Raises:
        BadLengthError: no whole number of at least 1.
    """
    item = value.item() if getattr(value, "shape", None) == () else value
    whole = isinstance(item, (int, np.integer)) and not isinstance(item, bool)
    if not whole and isinstance(item, (float, np.floating)):
        whole = float(item).is_integer()
    if not whole or item < 1:
        raise BadLengthError(
            f"the length of sample {number:,} of the stream is {value!r}: it must be a whole "
            f"number of at least 1 (filter such samples out of the stream, or correct length=)"
        )
    return int(item)
