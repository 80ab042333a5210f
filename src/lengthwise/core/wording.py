"""Numbers in words, the same in every message, table and page."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    """``0.8742`` as ``87.4 %``: with a space, as the SI has it."""
    return f"{100 * share:.{digits}f} %"
