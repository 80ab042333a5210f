"""What a report shows: one comparison, checked and frozen.

:class:`ReportData` is the only input of the pure functions in this folder. It is read from the
plain dict of a comparison (``Comparison.to_dict()``, or the same object from a JSON file), so a
report can be made again later from saved JSON. Figures that were not measured are ``None`` and are
left out of the report; nothing is invented for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lengthwise.core.file_format import COMPARISON
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import DataError
from lengthwise.report.fields import Fields, required

if TYPE_CHECKING:
    from collections.abc import Mapping

BOUND = "packed"
"""Name of the row that is a bound and no plan: samples packed without padding."""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One strategy's figures for an epoch; shares in [0, 1], ``None`` where not measured."""

    name: str
    strategy: str
    label: str
    num_batches: float
    efficiency: float | None = None
    utilization: float | None = None
    padded_tokens: int | None = None
    repeat_rate: float | None = None
    order_correlation: float | None = None
    length_spread: float | None = None
    design_effect: float | None = None
    tokens_per_step_cv: float | None = None
    samples_per_step_cv: float | None = None
    num_shapes: int | None = None
    replica_balance: float | None = None
    planning_seconds: float | None = None
    recommended: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether this is the upper bound rather than a plan one can run."""
        return self.name == BOUND

    @classmethod
    def read(cls, name: str, fields: Fields) -> StrategyRow:
        """Read one entry of ``strategies``."""
        num_batches = required(fields.number("num_batches", least=0), fields.path("num_batches"))
        return cls(
            name=name,
            strategy=fields.text("strategy", name),
            label=fields.text("label", name),
            num_batches=num_batches,
            efficiency=fields.share("efficiency"),
            utilization=fields.share("utilization"),
            padded_tokens=fields.count("padded_tokens"),
            repeat_rate=fields.share("repeat_rate"),
            order_correlation=fields.number("order_correlation", least=-1, most=1),
            length_spread=fields.number("length_spread", least=0),
            design_effect=fields.number("design_effect", least=0),
            tokens_per_step_cv=fields.number("tokens_per_step_cv", least=0),
            samples_per_step_cv=fields.number("samples_per_step_cv", least=0),
            num_shapes=fields.count("num_shapes"),
            replica_balance=fields.number("replica_balance", least=0),
            planning_seconds=fields.number("planning_seconds", least=0),
            recommended=fields.flag("recommended"),
        )


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One plan on the frontier: ``parameter`` is the number of buckets or the window size."""

    family: str
    parameter: float
    efficiency: float
    repeat_rate: float
    num_batches: float | None = None
    design_effect: float | None = None

    @classmethod
    def read(cls, fields: Fields) -> FrontierPoint:
        """Read one entry of ``frontier``."""
        return cls(
            family=required(fields.text("family") or None, fields.path("family")),
            parameter=required(fields.number("parameter", least=0), fields.path("parameter")),
            efficiency=required(fields.share("efficiency"), fields.path("efficiency")),
            repeat_rate=required(fields.share("repeat_rate"), fields.path("repeat_rate")),
            num_batches=fields.number("num_batches", least=0),
            design_effect=fields.number("design_effect", least=0),
        )


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket ``[lo, hi)`` under greedy packing; counts may be expectations."""

    lo: int
    hi: int
    num_samples: int
    mean_length: float | None
    batch_size: float | None
    num_batches: float | None
    padded_tokens: float
    efficiency: float

    @property
    def padding_tokens(self) -> float:
        """Tokens of padding in this bucket's batches."""
        return self.padded_tokens * (1.0 - self.efficiency)

    @classmethod
    def read(cls, fields: Fields) -> BucketRow:
        """Read one entry of ``bucketing.buckets``."""
        lo, hi = (required(fields.count(key), fields.path(key)) for key in ("lo", "hi"))
        if lo >= hi:
            raise DataError(f"report data: {fields.where} is empty: lo {lo:,} is not below {hi:,}")
        padded = fields.number("padded_tokens", least=0)
        return cls(
            lo=lo,
            hi=hi,
            num_samples=required(fields.count("num_samples"), fields.path("num_samples")),
            mean_length=fields.number("mean_length", least=0),
            batch_size=fields.number("batch_size", least=0),
            num_batches=fields.number("num_batches", least=0),
            padded_tokens=required(padded, fields.path("padded_tokens")),
            # An empty bucket has no batch, so it wastes nothing.
            efficiency=1.0 if not padded else fields.share("efficiency") or 0.0,
        )


@dataclass(frozen=True, slots=True)
class BoundariesRow:
    """Boundaries and what they give: the optimum, or a baseline beside it."""

    name: str
    boundaries: tuple[int, ...]
    efficiency: float
    num_batches: float | None
    buckets: tuple[BucketRow, ...] = ()

    @classmethod
    def read(cls, name: str, fields: Fields) -> BoundariesRow:
        """Read ``bucketing`` or one entry of ``baselines``."""
        buckets = [
            BucketRow.read(Fields.of(value, fields.path(f"buckets[{place}]")))
            for place, value in enumerate(fields.items("buckets"))
        ]
        return cls(
            name=name.replace("_", " "),
            boundaries=fields.whole_numbers("boundaries"),
            efficiency=required(fields.share("efficiency"), fields.path("efficiency")),
            num_batches=fields.number("num_batches", least=0),
            buckets=tuple(buckets),
        )


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers come from; empty strings where unknown."""

    version: str = ""
    command: str = ""
    source: str = ""
    seed: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything one report shows."""

    num_samples: int
    real_tokens: int
    limits: BatchLimits
    strategies: tuple[StrategyRow, ...]
    num_replicas: int = 1
    accumulation_steps: int = 1
    histogram: LengthHistogram | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    frontier_samples: int | None = None
    bucketing: BoundariesRow | None = None
    baselines: tuple[BoundariesRow, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        """A report needs at least one strategy, and at most one recommendation."""
        if not self.strategies:
            raise DataError("report data: strategies is empty; there is nothing to compare")
        chosen = [row.name for row in self.strategies if row.recommended]
        if len(chosen) > 1:
            raise DataError(f"report data: one strategy can be recommended, got {chosen}")

    @classmethod
    def from_dict(cls, comparison: Mapping[str, Any]) -> ReportData:
        """Read a comparison's plain dict.

        Args:
            comparison: the object of ``Comparison.to_dict()`` or of ``compare --json``.

        Raises:
            DataError: a required figure is missing or a value is impossible; names its path.
        """
        top = Fields.of(comparison, "")
        COMPARISON.check(comparison, "report data")
        strategies = required(top.inner("strategies"), "strategies")
        histogram, bucketing = top.inner("histogram"), top.inner("bucketing")
        baselines = top.inner("baselines") or Fields({}, "baselines")
        origin = top.inner("provenance") or Fields({}, "provenance")
        return cls(
            num_samples=required(top.count("num_samples", least=1), "num_samples"),
            real_tokens=required(top.count("real_tokens", least=1), "real_tokens"),
            limits=_read_limits(required(top.inner("limits"), "limits")),
            strategies=tuple(
                StrategyRow.read(name, Fields.of(value, strategies.path(name)))
                for name, value in strategies.source.items()
            ),
            num_replicas=top.count("num_replicas", least=1) or 1,
            accumulation_steps=top.count("accumulation_steps", least=1) or 1,
            histogram=_read_histogram(histogram) if histogram else None,
            frontier=tuple(
                FrontierPoint.read(Fields.of(value, f"frontier[{place}]"))
                for place, value in enumerate(top.items("frontier"))
            ),
            frontier_samples=top.count("frontier_samples"),
            bucketing=BoundariesRow.read("optimal", bucketing) if bucketing else None,
            baselines=tuple(
                BoundariesRow.read(name, Fields.of(value, baselines.path(name)))
                for name, value in baselines.source.items()
            ),
            warnings=tuple(str(text) for text in top.items("warnings")),
            reason=top.text("reason"),
            provenance=Provenance(
                **{key: origin.text(key) for key in Provenance.__dataclass_fields__}
            ),
        )

    @property
    def recommended(self) -> StrategyRow | None:
        """The recommended plan, if the comparison names one."""
        return next((row for row in self.strategies if row.recommended), None)

    @property
    def reference(self) -> StrategyRow | None:
        """What padding costs when nothing is done about it: the random strategy."""
        return next((row for row in self.strategies if row.name == "random"), None)


def _read_limits(fields: Fields) -> BatchLimits:
    return BatchLimits(
        max_tokens=required(fields.count("max_tokens"), fields.path("max_tokens")),
        max_batch_size=fields.count("max_batch_size"),
        pad_to_multiple_of=fields.count("pad_to_multiple_of") or 1,
        batch_size_multiple_of=fields.count("batch_size_multiple_of") or 1,
    )


def _read_histogram(fields: Fields) -> LengthHistogram | None:
    lengths, counts = fields.whole_numbers("lengths"), fields.whole_numbers("counts")
    return LengthHistogram.from_counts(lengths, counts) if lengths else None
