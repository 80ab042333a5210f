"""Checked reads from a comparison's nested dict; every complaint names the key's full path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lengthwise.errors import DataError

T = TypeVar("T")

_ROUNDING = 1e-6
"""Shares are ratios of floats, so they may pass their bounds by rounding."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One mapping of the comparison and where it stands in it.

    A key that is absent, ``None`` or NaN reads as ``None``: a figure that was not measured.
    """

    source: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: object, where: str) -> Fields:
        """Wrap ``value``, or raise :class:`DataError` if it is not a mapping."""
        if not isinstance(value, Mapping):
            raise DataError(f"report data: {where} must be a mapping, got {_shown(value)}")
        return cls(value, where)

    def path(self, key: str) -> str:
        """The dotted path of ``key``, for messages."""
        return f"{self.where}.{key}" if self.where else key

    def number(self, key: str, *, least: float = -math.inf, most: float = math.inf) -> float | None:
        """A number in ``[least, most]``, or ``None`` where it was not measured."""
        value = self.source.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise DataError(f"report data: {self.path(key)} must be a number, got {_shown(value)}")
        number = float(value)
        if math.isnan(number):
            return None
        if not least - _ROUNDING <= number <= most + _ROUNDING or math.isinf(number):
            raise DataError(
                f"report data: {self.path(key)} must be a finite number in "
                f"[{least:g}, {most:g}], got {number!r}"
            )
        return min(max(number, least), most)

    def share(self, key: str) -> float | None:
        """A share in [0, 1], or ``None``."""
        return self.number(key, least=0.0, most=1.0)

    def count(self, key: str, *, least: int = 0) -> int | None:
        """A whole number of at least ``least``, or ``None``."""
        number = self.number(key, least=least)
        if number is None:
            return None
        if number != math.floor(number):
            raise DataError(f"report data: {self.path(key)} must be a whole number, got {number!r}")
        return int(self.source[key])

    def text(self, key: str, default: str = "") -> str:
        """A string; numbers are spelled out, ``None`` gives ``default``."""
        value = self.source.get(key)
        return default if value is None else str(value)

    def flag(self, key: str) -> bool:
        """True only for a true value."""
        return bool(self.source.get(key, False))

    def items(self, key: str) -> Sequence[Any]:
        """A list, empty where the key is absent."""
        value = self.source.get(key)
        if value is None:
            return ()
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
            raise DataError(f"report data: {self.path(key)} must be a list, got {_shown(value)}")
        return tuple(value)

    def whole_numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, empty where the key is absent."""
        values = self.items(key)
        for place, value in enumerate(values):
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise DataError(
                    f"report data: {self.path(key)}[{place}] must be a whole number, "
                    f"got {_shown(value)}"
                )
        return tuple(int(value) for value in values)

    def inner(self, key: str) -> Fields | None:
        """A nested mapping, or ``None`` where the key is absent."""
        value = self.source.get(key)
        return None if value is None else Fields.of(value, self.path(key))


def required(value: T | None, where: str) -> T:
    """Return ``value``, or say which figure the report cannot do without."""
    if value is None:
        raise DataError(f"report data: {where} is missing; a comparison always has it")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:60]}... ({type(value).__name__})" if len(text) > 60 else text
