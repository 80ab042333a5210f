"""What a plan amounts to, in exact numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


_WORDS = {
    "num_dropped_oversize": "oversize samples dropped",
    "num_truncated": "oversize samples truncated",
    "num_split_batches": "batches split for equal replicas",
    "num_dropped_batches": "batches dropped for equal replicas",
    "num_dropped_samples": "samples in dropped batches",
}


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """What a policy changed, in words; only what happened.

    Args:
        counts: by the names of :class:`PlanStats`.
    """
    return {words: counts[name] for name, words in _WORDS.items() if counts[name]}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStats:
    """Totals of one epoch's plan. Token totals are exact integers.

    Attributes:
        num_samples: samples in the plan.
        num_batches: batches, over all replicas.
        num_steps: batches of each replica.
        real_tokens: tokens of the planned samples.
        padded_tokens: tokens that are computed, padding included.
        max_tokens: the budget of a batch.
        num_oversize: samples longer than a batch may be, whatever became of them.
        num_dropped_oversize: of these, how many were left out.
        num_truncated: of these, how many count as cut to the budget.
        num_split_batches: batches that were cut in two so that replicas get equally many.
        num_dropped_batches: batches dropped for the same reason.
        num_dropped_samples: samples in the dropped batches.
    """

    num_samples: int
    num_batches: int
    num_steps: int
    real_tokens: int
    padded_tokens: int
    max_tokens: int
    num_oversize: int = 0
    num_dropped_oversize: int = 0
    num_truncated: int = 0
    num_split_batches: int = 0
    num_dropped_batches: int = 0
    num_dropped_samples: int = 0

    @property
    def efficiency(self) -> float:
        """Real tokens / padded tokens."""
        return self.real_tokens / self.padded_tokens

    @property
    def utilization(self) -> float:
        """Real tokens / (num_batches * max_tokens); the number of steps follows it."""
        return self.real_tokens / (self.num_batches * self.max_tokens)

    @property
    def num_left_out(self) -> int:
        """Samples of the data set that the plan does not contain."""
        return self.num_dropped_oversize + self.num_dropped_samples

    def left_out(self) -> dict[str, int]:
        """What a policy changed, by name; only what happened."""
        return left_out({name: getattr(self, name) for name in _WORDS})

    def to_dict(self) -> dict[str, Any]:
        """All fields and the derived shares, as plain numbers."""
        names = self.__dataclass_fields__
        return {
            **{name: getattr(self, name) for name in names},
            "efficiency": self.efficiency,
            "utilization": self.utilization,
            "num_left_out": self.num_left_out,
        }
