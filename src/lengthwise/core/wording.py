"""Numbers in words, the same in every message, table and page."""

from __future__ import annotations

from itertools import pairwise

_TIMES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def percent(share: float, digits: int = 1) -> str:
    """``0.8742`` as ``87.4 %``: with a space, as the SI has it."""
    return f"{100 * share:.{digits}f} %"


def duration(seconds: float) -> str:
    """The two largest units, as "2 h 5 min"."""
    left = max(0, round(seconds))
    for (size, unit), (smaller, sub) in pairwise(_TIMES):
        if left >= size:
            return f"{left // size} {unit} {left % size // smaller} {sub}"
    return f"{left} s"


def seconds_of(value: float) -> str:
    """Seconds with their fractions up to two minutes, then larger units."""
    return f"{value:,.3g} s" if value < 120 else duration(value)


def memory(num_bytes: float) -> str:
    """``3_221_225_472`` as ``3.0 GiB``: the unit in which the number has one to three digits."""
    place = 0
    while num_bytes >= 1000 and place + 1 < len(_SIZES):
        num_bytes, place = num_bytes / 1024, place + 1
    return f"{num_bytes:,.{1 if place else 0}f} {_SIZES[place]}"
