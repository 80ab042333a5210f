"""The bucket-adjusted loss curve."""

from __future__ import annotations

import math
from dataclasses import dataclass


class DecayedMean:
    """A mean in which a value counts half as much after ``half_life`` steps.

    Only the visit changes it: between visits, sum and weight shrink alike, which their quotient
    does not see. So a step costs the same however many means there are.
    """

    __slots__ = ("_decay", "_step", "_sum", "_weight", "num_values")

    def __init__(self, half_life: float) -> None:
        """No value yet."""
        self._decay = 0.5 ** (1 / half_life)
        self._step = 0
        self._sum = 0.0
        self._weight = 0.0
        self.num_values = 0

    def add(self, step: int, value: float, weight: float = 1.0) -> None:
        """Take in the value of a step."""
        shrink = self._decay ** (step - self._step)
        self._sum = self._sum * shrink + value * weight
        self._weight = self._weight * shrink + weight
        self._step = step
        self.num_values += 1

    @property
    def value(self) -> float | None:
        """The mean; None without values."""
        return self._sum / self._weight if self.num_values else None


@dataclass(frozen=True, slots=True)
class Jumps:
    """Mean squared change of the loss from one step to the next, recent steps first.

    Attributes:
        raw: of the loss.
        adjusted: of the adjusted loss.
    """

    raw: float
    adjusted: float

    @property
    def share_of_buckets(self) -> float:
        """What of the raw curve's jumps goes away by adjusting; from 0 to 1."""
        return max(0.0, 1.0 - self.adjusted / self.raw) if self.raw > 0 else 0.0


class LossCurve:
    """The loss of each step, and the same with its bucket's usual distance from the rest removed.

    For step t of bucket k with loss l(t),

        adjusted(t) = l(t) - m_k(t) + m(t),

    where m(t) is the mean of the losses before t, one s steps old weighing ``2**(-s / half_life)``,
    and m_k(t) the mean with the same weights over the steps of bucket k alone. Weights go by the
    run's steps in both, so that a falling loss cancels. The first step of a bucket is left as it
    is. A loss that is not finite is no part of any mean.

    Args:
        num_buckets: length classes.
        half_life: in steps; about as long as the loss takes to change visibly.
    """

    def __init__(self, num_buckets: int, half_life: float) -> None:
        """No loss yet."""
        self.buckets = [DecayedMean(half_life) for _ in range(num_buckets)]
        self.overall = DecayedMean(half_life)
        self.num_non_finite = 0
        self._raw = DecayedMean(half_life)
        self._adjusted = DecayedMean(half_life)
        self._last: tuple[float, float] | None = None

    def add(self, step: int, bucket: int, loss: float) -> float:
        """Take in a step's loss; returns it adjusted (a loss that is not finite, unchanged)."""
        if not math.isfinite(loss):
            self.num_non_finite += 1
            return loss
        own, level = self.buckets[bucket].value, self.overall.value
        adjusted = loss if own is None or level is None else loss - own + level
        if self._last is not None:
            self._raw.add(step, (loss - self._last[0]) ** 2)
            self._adjusted.add(step, (adjusted - self._last[1]) ** 2)
        self._last = (loss, adjusted)
        self.buckets[bucket].add(step, loss)
        self.overall.add(step, loss)
        return adjusted

    @property
    def jumps(self) -> Jumps | None:
        """How the curves jump; None before two losses."""
        raw, adjusted = self._raw.value, self._adjusted.value
        return None if raw is None or adjusted is None else Jumps(raw, adjusted)


class MixedLossCurve:
    """The same where a step mixes classes: what its mixture usually adds is removed.

    For step t with loss l(t), in which class k has the share w_k(t) of the weight,

        adjusted(t) = l(t) - sum over k of w_k(t) * (m_k(t) - m(t)),

    with m as in :class:`LossCurve`, and m_k the mean of the class's losses, weighted by its shares
    as well. Where every step is of one class it is the same curve.

    Args:
        num_classes: length classes.
        half_life: in steps.
    """

    def __init__(self, num_classes: int, half_life: float) -> None:
        """No loss yet."""
        self.classes = [DecayedMean(half_life) for _ in range(num_classes)]
        self.overall = DecayedMean(half_life)

    def add(self, step: int, loss: float, losses: list[float], shares: list[float]) -> float:
        """Take in a step; returns its loss adjusted (a loss that is not finite, unchanged).

        Args:
            step: its number, rising.
            loss: of the step.
            losses: of each class in it; anything where the share is 0.
            shares: of each class in the step's weight; they add up to 1.
        """
        if not math.isfinite(loss):
            return loss
        level, usual = self.overall.value, 0.0
        for mean, value, share in zip(self.classes, losses, shares, strict=True):
            if share > 0:
                own = mean.value
                usual += share * (own - level) if own is not None and level is not None else 0.0
                mean.add(step, value, share)
        self.overall.add(step, loss)
        return loss - usual
