"""The settings with which a run takes the least time, of a bounded number that are planned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lengthwise.compare.frontier import thin
from lengthwise.compare.strategies import plannable
from lengthwise.core.cost import StepTime
from lengthwise.core.diversity import partner_repeat_rate
from lengthwise.core.histogram import check_lengths
from lengthwise.core.limits import require_int
from lengthwise.core.planner import Planner
from lengthwise.core.pool import MOST_REPEATS
from lengthwise.errors import PlanError
from lengthwise.predict.candidates import ALIGNMENTS, families, fixed_shapes, variations
from lengthwise.predict.plan import DEFAULT_TIMING, predict_plan
from lengthwise.predict.pricing import Pricing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.core.config import BatchingConfig, Oversize
    from lengthwise.core.cost import CostModel
    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.predict.candidates import Labelled
    from lengthwise.predict.prediction import Prediction
    from lengthwise.predict.pricing import Fit, Timing

    Progress = Callable[[int, int, str], None]

MOST_CANDIDATES = 40
LEADERS = 3
"""How many of the fastest families are varied."""
CLOSE = 0.005
"""Times this close, as a share, count as equal: no fit tells them apart, so diversity decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One setting, planned and predicted.

    Attributes:
        label: the setting in words.
        config: the setting; its boundaries are found.
        prediction: what an epoch takes (of the thinned data set, where it was thinned).
        seconds: of the whole run: all epochs of the whole data set, and new shapes.
        shape_seconds: of these, for shapes that the first epoch meets for the first time.
        repeat_rate: share of pairs that share a batch and meet again in the next epoch.
        diverse: whether that is few enough for the candidate to be chosen.
    """

    label: str
    config: BatchingConfig
    prediction: Prediction
    seconds: float
    shape_seconds: float
    repeat_rate: float
    diverse: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the prediction's own keys under ``prediction``."""
        return {
            "label": self.label,
            "config": self.config.to_dict(),
            "prediction": self.prediction.to_dict(),
            "seconds": self.seconds,
            "shape_seconds": self.shape_seconds,
            "repeat_rate": self.repeat_rate,
            "diverse": self.diverse,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsSearch:
    """Settings ranked by predicted time.

    Attributes:
        candidates: the fastest first.
        best: the one to take: the fastest that is diverse; of those within half a percent of it,
            the most diverse.
        least_padding: within the limits as given, the one that computes the fewest padded tokens.
        most_repeats: repeat rate up to which a candidate counts as diverse.
        num_samples: samples that were planned, of ``total_samples``.
        total_samples: samples of the data set.
        num_epochs: epochs of the run.
    """

    candidates: tuple[Candidate, ...]
    best: Candidate
    least_padding: Candidate
    most_repeats: float
    num_samples: int
    total_samples: int
    num_epochs: int

    @property
    def gain(self) -> float:
        """Share of the time of least padding that the best one saves; below 0 where it costs."""
        return 1 - self.best.seconds / self.least_padding.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values; ``best`` and ``least_padding`` as places in ``candidates``."""
        return {
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "best": self.candidates.index(self.best),
            "least_padding": self.candidates.index(self.least_padding),
            "gain": self.gain,
            "most_repeats": self.most_repeats,
            "num_samples": self.num_samples,
            "total_samples": self.total_samples,
            "num_epochs": self.num_epochs,
        }


def optimize_seconds(
    lengths: npt.ArrayLike,
    limits: BatchLimits,
    cost: Fit | CostModel,
    *,
    num_buckets: int | None = None,
    num_replicas: int = 1,
    num_epochs: int = 1,
    oversize: Oversize = "error",
    max_candidates: int = MOST_CANDIDATES,
    timing: Timing = DEFAULT_TIMING,
    progress: Progress | None = None,
) -> SecondsSearch:
    """The settings with which a run takes the least time, of at most so many that are planned.

    First come families within the limits: pools, buckets optimised for time and for padding,
    windows. Then the three fastest with smaller budgets and, where that could pay (a table knows
    shapes that run faster; new shapes cost time), with longest lengths rounded up, and buckets that
    are padded to their longest. Each is planned for two epochs and predicted batch by batch.
    A data set above a million samples is thinned evenly, and times are scaled back.

    Fewest seconds alone would favour batches that never change. A candidate is chosen only if no
    more than 5 % of the pairs that share a batch meet again in the next epoch, or no more than
    under the default, where that has more.

    Args:
        lengths: tokens of each sample, shape (N,).
        limits: what a batch may hold at most: the memory's limit, not a wish.
        cost: a fit from ``lengthwise.calibrate``, or a cost model that returns seconds.
        num_buckets: try only this many buckets.
        num_replicas: replicas that run one batch each in every step.
        num_epochs: epochs of the run, over which new shapes pay off.
        oversize: what happens to samples that fit no batch.
        max_candidates: settings to plan at most.
        timing: how replicas meet, how wide intervals are to be, and what a new shape takes.
        progress: called as ``progress(done, total, what)``.

    Raises:
        OversizeError, PlanError, ConfigError: see :class:`~lengthwise.core.planner.Planner`.
    """
    values = check_lengths(lengths)
    if values.size == 0:
        raise PlanError("there are no samples to plan: lengths is empty")
    most = require_int("max_candidates", max_candidates, least=2)
    run = _Run(
        thin(values),
        values.size,
        cost,
        require_int("num_replicas", num_replicas, least=1),
        require_int("num_epochs", num_epochs, least=1),
        timing,
    )
    hist, _ = plannable(run.lengths, limits, oversize)
    model = Pricing.of(cost, timing.level).model
    shared = {"oversize": oversize}
    found: list[Candidate] = []

    def weigh(wanted: Iterator[Labelled]) -> None:
        for label, config in islice(wanted, most - len(found)):
            if progress is not None:
                progress(len(found), most, label)
            found.append(run.weigh(label, config))

    weigh(families(hist, limits, model, num_buckets, shared))
    allowed = max(MOST_REPEATS, found[0].repeat_rate)
    leaders = sorted((one for one in found if one.repeat_rate <= allowed), key=_seconds)[:LEADERS]
    alignments = () if isinstance(model, StepTime) and not timing.seconds_per_shape else ALIGNMENTS
    more = variations([(o.label, o.config) for o in leaders], hist, alignments=alignments)
    fixed = fixed_shapes(hist, limits, model, shared) if timing.seconds_per_shape else iter(())
    weigh(chain(fixed, more))
    return _ranked(found, allowed, limits, run)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What is the same for all candidates."""

    lengths: Int64Array
    total_samples: int
    cost: Fit | CostModel
    num_replicas: int
    num_epochs: int
    timing: Timing

    def weigh(self, label: str, config: BatchingConfig) -> Candidate:
        """Plan two epochs, predict the first, count who meets again in the second."""
        planner = Planner(self.lengths, config, num_replicas=self.num_replicas)
        plan = planner.plan(0)
        prediction = predict_plan(plan, self.lengths, self.cost, self.timing)
        assert prediction.num_shapes is not None
        shape_seconds = prediction.num_shapes * self.timing.seconds_per_shape
        scale = self.total_samples / self.lengths.size
        return Candidate(
            label=label,
            config=config,
            prediction=prediction,
            seconds=self.num_epochs * prediction.seconds * scale + shape_seconds,
            shape_seconds=shape_seconds,
            repeat_rate=partner_repeat_rate(plan.batches, planner.plan(1).batches),
            diverse=False,
        )


def _seconds(candidate: Candidate) -> float:
    return candidate.seconds


def _ranked(
    found: list[Candidate], allowed: float, limits: BatchLimits, run: _Run
) -> SecondsSearch:
    judged = [replace(one, diverse=one.repeat_rate <= allowed) for one in found]
    ranked = tuple(sorted(judged, key=_seconds))
    diverse = [one for one in ranked if one.diverse]
    given = [one for one in ranked if one.config.limits == limits]
    close = [one for one in diverse if one.seconds <= diverse[0].seconds * (1 + CLOSE)]
    return SecondsSearch(
        candidates=ranked,
        best=min(close, key=lambda one: one.repeat_rate),
        least_padding=max(given, key=lambda one: one.prediction.efficiency),
        most_repeats=allowed,
        num_samples=int(run.lengths.size),
        total_samples=run.total_samples,
        num_epochs=run.num_epochs,
    )
