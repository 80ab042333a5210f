"""What an epoch is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Basis = Literal["plan", "expected"]

PARTS = {
    "overhead": "overhead of every batch",
    "tokens": "real tokens",
    "padding": "padding",
    "attention": "attention among real tokens",
    "padding_attention": "attention on padding",
    "waiting": "waiting for the slowest replica",
    "synchronising": "synchronising",
}
"""What an epoch's time can go into, in words. A cost model that is not a ``StepTime`` does not tell
attention from other work, nor overhead: there ``tokens`` and ``padding`` hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one epoch takes.

    Attributes:
        basis: ``"plan"``: every batch of a plan was costed. ``"expected"``: the mean over epochs.
        seconds: of the epoch, on the clock.
        low: the lower end of the interval of ``seconds``; None where the cost has no error bar.
        high: the upper end.
        level: how often such an interval holds the truth.
        real_tokens: tokens of the samples.
        padded_tokens: tokens that are computed, padding included.
        num_samples: samples.
        num_batches: batches, over all replicas.
        num_replicas: replicas that run one batch each in every step.
        rank_imbalance: share of the epoch that a replica waits for slower ones, on average; 0 where
            all always take equally long.
        num_shapes: distinct (samples, padded length); None in expectation.
        extrapolated: share of the seconds in batches larger or longer by more than a tenth than any
            shape that the cost was measured on; None where the cost is not from a fit.
        parts: what the seconds go into, by the names of :data:`PARTS`; they sum up to ``seconds``.
            Work is the mean over replicas.
    """

    basis: Basis
    seconds: float
    low: float | None
    high: float | None
    level: float
    real_tokens: int
    padded_tokens: float
    num_samples: int
    num_batches: float
    num_replicas: int
    rank_imbalance: float
    num_shapes: int | None
    extrapolated: float | None
    parts: dict[str, float]

    @property
    def num_steps(self) -> float:
        """Batches of each replica."""
        return self.num_batches / self.num_replicas

    @property
    def efficiency(self) -> float:
        """Real / padded tokens."""
        return self.real_tokens / self.padded_tokens

    @property
    def tokens_per_second(self) -> float:
        """Real tokens a second, over all replicas."""
        return self.real_tokens / self.seconds

    @property
    def tokens_per_second_low(self) -> float | None:
        """The lower end of its interval."""
        return None if self.high is None else self.real_tokens / self.high

    @property
    def tokens_per_second_high(self) -> float | None:
        """The upper end of its interval."""
        return None if self.low is None else self.real_tokens / self.low

    @property
    def padded_tokens_per_second(self) -> float:
        """Computed tokens a second, padding included, over all replicas."""
        return self.padded_tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields and what follows from them, as plain values."""
        derived = (
            "num_steps",
            "efficiency",
            "tokens_per_second",
            "tokens_per_second_low",
            "tokens_per_second_high",
            "padded_tokens_per_second",
        )
        names = (*self.__dataclass_fields__, *derived)
        return {name: getattr(self, name) for name in names}
