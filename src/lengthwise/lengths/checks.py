"""Warnings about lengths that are all valid and still look wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.wording import percent
from lengthwise.lengths.result import Scanned

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.lengths.result import Ordered

DOMINANT_SHARE = 0.5
"""A single length that more than this share of the samples has is worth a warning."""
FEWEST_EQUAL, FEWEST_SORTED, FEWEST_DOMINATED = 3, 5, 10
"""With fewer samples, equal, sorted or dominating lengths are no surprise."""
_BLOCK = 1 << 16
_NUM_LISTED = 5


def warnings_for(
    lengths: npt.ArrayLike | Scanned | LengthHistogram, limits: BatchLimits | None = None
) -> list[str]:
    """What looks wrong about lengths, one sentence each.

    Looks for lengths that are all equal (padded rows, or a count that never ran), one length that
    dominates (truncation), a source sorted by length (reading it in order is no shuffle), and,
    with ``limits``, samples above the budget.

    Args:
        lengths: an array in source order, a scan, or a histogram (which has no order).
        limits: what a batch may hold.
    """
    ordered: Ordered | None
    rows_of: Callable[[Int64Array], Int64Array] = _same
    if isinstance(lengths, Scanned):
        histogram, ordered, rows_of = lengths.histogram, lengths.ordered, lengths.source_rows
    elif isinstance(lengths, LengthHistogram):
        histogram, ordered = lengths, None
    else:
        histogram = LengthHistogram.from_lengths(lengths)
        ordered = np.asarray(lengths).astype(np.int64, copy=False)
    found = [*_shape_warnings(histogram), *_order_warnings(ordered, histogram)]
    if limits is not None:
        found += _budget_warnings(histogram, ordered, rows_of, limits)
    return found


def _same(samples: Int64Array) -> Int64Array:
    return samples


def _shape_warnings(histogram: LengthHistogram) -> list[str]:
    samples = histogram.num_samples
    if samples == 0:
        return ["there are no samples"]
    if samples < FEWEST_EQUAL:
        return []
    top = int(np.argmax(histogram.counts))
    length, count = int(histogram.lengths[top]), int(histogram.counts[top])
    if len(histogram) == 1:
        equal = (
            f"all {samples:,} lengths are {length:,}: are the rows padded, or was the length never "
            f"computed? Batching by length can gain nothing here"
        )
        return [equal]
    if samples >= FEWEST_DOMINATED and count > DOMINANT_SHARE * samples:
        dominant = (
            f"{percent(count / samples)} of the samples have exactly {length:,} tokens: were they "
            f"truncated or padded to that length?"
        )
        return [dominant]
    return []


def _order_warnings(ordered: Ordered | None, histogram: LengthHistogram) -> list[str]:
    if ordered is None or ordered.size < FEWEST_SORTED or len(histogram) == 1:
        return []
    for direction, sign in (("rising", 1), ("falling", -1)):
        if _is_sorted(ordered, sign):
            in_order = (
                f"the source is sorted by length ({direction}): reading it in order gives batches "
                f"without diversity; shuffle, or let lengthwise plan the order"
            )
            return [in_order]
    return []


def _is_sorted(lengths: Ordered, sign: int) -> bool:
    """Whether lengths never fall (sign 1) or never rise (-1); stops at the first break."""
    for first in range(0, lengths.size - 1, _BLOCK):
        block = lengths[first : first + _BLOCK + 1]
        if bool(np.any(np.diff(block) * sign < 0)):
            return False
    return True


def _budget_warnings(
    histogram: LengthHistogram,
    ordered: Ordered | None,
    rows_of: Callable[[Int64Array], Int64Array],
    limits: BatchLimits,
) -> list[str]:
    allowed = limits.longest_allowed
    above = histogram.between(allowed + 1, np.iinfo(np.int64).max)
    if above.num_samples == 0:
        return []
    where = ""
    if ordered is not None:
        rows = rows_of(_first_above(ordered, allowed))
        more = ", ..." if above.num_samples > rows.size else ""
        where = f" (rows {', '.join(f'{row:,}' for row in rows.tolist())}{more})"
    verb = "sample is" if above.num_samples == 1 else "samples are"
    too_long = (
        f"{above.num_samples:,} {verb} longer than {allowed:,} tokens, the longest that fits "
        f"max_tokens = {limits.max_tokens:,}{where}; the longest has {above.longest:,}"
    )
    return [too_long]


def _first_above(lengths: Ordered, allowed: int) -> Int64Array:
    """The first samples that are longer, as many as are listed."""
    found: list[int] = []
    for first in range(0, lengths.size, _BLOCK):
        block = lengths[first : first + _BLOCK]
        found += (first + np.flatnonzero(block > allowed)).tolist()
        if len(found) >= _NUM_LISTED:
            break
    return np.array(found[:_NUM_LISTED], np.int64)
