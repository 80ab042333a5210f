"""The few shapes whose measurement tells what every batch of a plan costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.measurement import Shape
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import BatchLimits, Int64Array

FILLS = (1, 8, 2)
"""A full batch is divided by these. Full batches are what plans make nearly always; an eighth
shows what a step costs whatever is in it; a half shows a bend in between."""
_FIRST_SHARE = 0.01


def choose_shapes(
    limits: BatchLimits, lengths: LengthHistogram | npt.ArrayLike, num_shapes: int = 24
) -> tuple[Shape, ...]:
    """Shapes to measure: batches that a plan makes of these lengths, and smaller ones.

    Longest lengths are spread evenly over the tokens of the data, from the length below which 1 %
    of the tokens lie to the longest, which is always one of them. At each a full batch, an eighth
    and a half are taken, as far as they differ. No shape exceeds the limits, so measuring each of
    them once runs at most ``num_shapes * max_tokens`` padded tokens, in practice about half.

    Args:
        limits: the limits of the plan.
        lengths: of the samples, in tokens, or their histogram. Samples that fit no batch do not
            count.
        num_shapes: how many shapes, at least 4; fewer come back where the limits and lengths
            allow fewer. A shape's own time lies a few percent off any smooth cost, however often
            it is repeated, so more shapes say more than more repeats of few.

    Returns:
        Different shapes, the one with the fewest padded tokens first.

    Raises:
        ConfigError: fewer than 4 shapes are asked for.
        DataError: no sample fits a batch.
    """
    require_int("num_shapes", num_shapes, least=4, most=10_000)
    hist = lengths if isinstance(lengths, LengthHistogram) else _count(lengths)
    usable = hist.between(1, limits.longest_allowed + 1)
    if not usable.num_samples:
        raise DataError(
            f"no sample fits a batch of {limits.max_tokens:,} tokens, so there is no shape to "
            f"measure; raise max_tokens"
        )
    num_levels = -(-num_shapes // len(FILLS))
    while True:
        levels = _levels(limits, usable, num_levels)
        shapes = _shapes_at(limits, levels)
        if len(shapes) >= num_shapes or num_levels >= min(len(usable), num_shapes):
            break
        num_levels += 1
    return tuple(sorted(shapes[:num_shapes], key=lambda shape: (shape[0] * shape[1], shape)))


def _count(lengths: npt.ArrayLike) -> LengthHistogram:
    return LengthHistogram.from_lengths(lengths)


def _levels(limits: BatchLimits, hist: LengthHistogram, number: int) -> Int64Array:
    """Padded lengths at even shares of the tokens, the longest included."""
    tokens = np.cumsum(hist.lengths.astype(np.float64) * hist.counts)
    shares = np.linspace(_FIRST_SHARE, 1.0, number)
    places = np.searchsorted(tokens / tokens[-1], shares)
    chosen = hist.lengths[np.minimum(places, len(hist) - 1)]
    return np.unique(limits.padded_lengths(chosen))


def _shapes_at(limits: BatchLimits, levels: Int64Array) -> list[Shape]:
    """Different shapes, all full ones first, then the smallest."""
    step = limits.batch_size_multiple_of
    found: dict[Shape, None] = {}
    for divisor in FILLS:
        for longest in levels.tolist():
            size = max(limits.batch_size_for(longest) // divisor, 1)
            found[Shape(size // step * step if size >= step else size, longest)] = None
    return list(found)


def require_shapes(shapes: object) -> list[Shape]:
    """The shapes as :class:`Shape`, duplicates left out, or an error.

    Raises:
        ConfigError: not pairs of whole numbers of at least 1, or none.
    """
    found: dict[Shape, None] = {}
    try:
        for size, longest in shapes:  # type: ignore[attr-defined]
            checked = (
                require_int("batch_size", size, least=1),
                require_int("longest", longest, least=1),
            )
            found[Shape(*checked)] = None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"shapes are pairs (batch size, longest): {error}") from None
    if not found:
        raise ConfigError("no shapes to measure; choose_shapes(limits, lengths) makes some")
    return list(found)
