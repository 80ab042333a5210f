"""What a batch costs: the objectives that bucket boundaries are optimised for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array

    Float64Array = npt.NDArray[np.float64]


@runtime_checkable
class CostModel(Protocol):
    """Any function of (batch size, longest), evaluated for many batches at once.

    ``batch_size`` and ``longest`` are int64 arrays of one shape (M,): samples of a batch, and
    tokens that each of them is padded to. The result is float64 of shape (M,), finite and >= 0.
    Costs of batches add up; their unit is the model's own.
    """

    def __call__(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Cost of every batch."""
        ...


@dataclass(frozen=True, slots=True)
class PaddedTokens:
    """Padded tokens: ``batch_size * longest``. Its minimum is the highest efficiency."""

    def __call__(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Padded tokens of every batch; exact up to 2**53."""
        return batch_size.astype(np.float64) * longest


@dataclass(frozen=True, slots=True)
class Steps:
    """One per batch: its minimum is the fewest batches, which is not the least padding."""

    def __call__(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """One for every batch."""
        return np.ones(np.broadcast(batch_size, longest).shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a step: ``fixed + per_token * n * m + per_token_squared * n * m**2``.

    ``n`` is the batch size and ``m`` the padded longest; the last term is attention's.

    Args:
        fixed_seconds: overhead of every step, in seconds.
        seconds_per_token: seconds for each padded token.
        seconds_per_token_squared: seconds for each pair of padded tokens of one sample.

    Raises:
        ConfigError: a coefficient is negative or not finite, or all are zero.
    """

    fixed_seconds: float = 0.0
    seconds_per_token: float = 0.0
    seconds_per_token_squared: float = 0.0

    def __post_init__(self) -> None:
        """Refuse coefficients under which a step could take no or negative time."""
        for name in ("fixed_seconds", "seconds_per_token", "seconds_per_token_squared"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value) or value < 0:
                raise ConfigError(f"{name} must be finite and not negative, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.fixed_seconds == self.seconds_per_token == self.seconds_per_token_squared == 0:
            raise ConfigError("a step time needs at least one coefficient above 0")

    def __call__(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Seconds of every batch."""
        tokens = batch_size.astype(np.float64) * longest
        per_token = self.seconds_per_token + self.seconds_per_token_squared * longest
        return self.fixed_seconds + tokens * per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTime:
    """Seconds of a step from a table over (padded tokens, longest), linear in both in between.

    A :class:`StepTime` is linear in the padded tokens ``n * m`` and in the longest ``m``, so a
    table holds every one of them exactly, and kinks besides: launches that hide small batches,
    another kernel above some length. ``seconds[q][p]`` is the time of ``tokens[p]`` padded tokens
    in samples of ``longest[q]`` tokens each; it never falls along ``tokens``.

    Outside the table: more tokens than the last column cost as much each as in the last interval;
    below the first ``longest`` its row holds; above the last, the change between the last two rows
    goes on where it is a rise, and the last row holds where it is not. So the result is never
    negative, and more samples of one longest never cost less.

    Args:
        tokens: padded tokens of each column, rising from 0; shape (P,), P >= 2.
        longest: longest of each row, in tokens, rising; shape (Q,), Q >= 1.
        seconds: a row for each ``longest``; shape (Q, P).

    Raises:
        ConfigError: other shapes, knots that do not rise, a time that is negative or not finite,
            falls along a row, or is 0 everywhere.
    """

    tokens: tuple[float, ...]
    longest: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Normalise to tuples of floats; refuse tables under which a step could take no time."""
        put = object.__setattr__
        put(self, "tokens", tuple(float(value) for value in self.tokens))
        put(self, "longest", tuple(float(value) for value in self.longest))
        put(self, "seconds", tuple(tuple(float(v) for v in row) for row in self.seconds))
        if [len(row) for row in self.seconds] != [len(self.tokens)] * max(len(self.longest), 1):
            raise ConfigError(
                f"a table of step times needs a row for each of its {len(self.longest)} longest "
                f"and in it a time for each of its {len(self.tokens)} token counts, got rows of "
                f"{[len(row) for row in self.seconds]}"
            )
        if len(self.tokens) < 2 or self.tokens[0] != 0 or not _rises(self.tokens):
            raise ConfigError(f"tokens must rise from 0, got {self.tokens}")
        if self.longest[0] < 0 or not _rises(self.longest):
            raise ConfigError(f"longest must rise and not be negative, got {self.longest}")
        table = np.array(self.seconds)
        if not np.isfinite(table).all() or (table < 0).any() or not (table > 0).any():
            raise ConfigError("times must be finite, not negative, and not all 0")
        if (np.diff(table, axis=1) < 0).any():
            raise ConfigError("times must not fall along tokens: more samples never take less")

    def __call__(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """Seconds of every batch."""
        rises, left, right, share = self._rows(longest)
        rises = rises[left] * (1 - share) + rises[right] * share
        seconds: Float64Array = (self._along(batch_size, longest) * rises).sum(axis=-1)
        return seconds

    def weights(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """How much of each entry's rise over the entry before it a batch takes; shape (M, Q, P).

        The seconds of a batch are the sum of these weights times the rises, so they are its
        seconds as a linear function of the table.
        """
        rises, left, right, share = self._rows(longest)
        between = np.zeros((*left.shape, *rises.shape))
        np.put_along_axis(between, left[..., None, None], (1 - share)[..., None, :], axis=-2)
        if rises.shape[0] > 1:
            np.put_along_axis(between, right[..., None, None], share[..., None, :], axis=-2)
        return between * self._along(batch_size, longest)[..., None, :]

    def _along(self, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
        """1 for each interval left of the batch, a share of the one that it falls in; (M, P)."""
        tokens = (batch_size.astype(np.float64) * longest)[..., None]
        knots = np.array(self.tokens)
        share = np.maximum((tokens - knots[:-1]) / np.diff(knots), 0.0)
        share[..., :-1] = np.minimum(share[..., :-1], 1.0)
        return np.concatenate((np.ones_like(tokens), share), axis=-1)

    def _rows(
        self, longest: Int64Array
    ) -> tuple[Float64Array, Int64Array, Int64Array, Float64Array]:
        """Rises (Q, P); for each batch its two rows (M,) and the share of the second (M, P)."""
        rises = np.diff(np.array(self.seconds), axis=1, prepend=0.0)
        knots = np.array(self.longest)
        right = np.clip(np.searchsorted(knots, longest, side="right"), 1, max(knots.size - 1, 1))
        if knots.size == 1:
            zero = np.zeros(longest.shape, np.int64)
            return rises, zero, zero, np.zeros((*longest.shape, 1))
        share = (longest - knots[right - 1]) / (knots[right] - knots[right - 1])
        share = np.maximum(share, 0.0)[..., None]
        goes_on = (share <= 1) | (rises[-1] > rises[-2])
        return rises, right - 1, right, np.where(goes_on, share, 1.0)


def _rises(values: tuple[float, ...]) -> bool:
    return bool((np.diff(values) > 0).all()) and bool(np.isfinite(values).all())


Objective = str | CostModel | Callable[..., "Float64Array"]
"""``"padding"``, ``"steps"``, or a cost model."""


def resolve_objective(objective: Objective) -> tuple[str, CostModel]:
    """The name and the cost model of an objective.

    Raises:
        ConfigError: neither a known name nor callable.
    """
    if objective == "padding" or isinstance(objective, PaddedTokens):
        return "padding", PaddedTokens()
    if objective == "steps" or isinstance(objective, Steps):
        return "steps", Steps()
    if isinstance(objective, (StepTime, TableTime)):
        return "seconds", objective
    if callable(objective):
        return str(getattr(objective, "__name__", type(objective).__name__)), objective
    raise ConfigError(
        f"objective must be 'padding', 'steps' or a cost model (a function of batch size and "
        f"longest, such as StepTime), got {objective!r}"
    )


def evaluate_model(model: CostModel, batch_size: Int64Array, longest: Int64Array) -> Float64Array:
    """Call a cost model and check what it returns.

    Raises:
        ConfigError: wrong shape, or a cost that is not finite or negative.
    """
    costs = np.asarray(model(batch_size, longest), np.float64)
    if costs.shape != batch_size.shape:
        raise ConfigError(
            f"a cost model must return one cost for each batch: expected shape "
            f"{batch_size.shape}, got {costs.shape}"
        )
    bad = ~(np.isfinite(costs) & (costs >= 0))
    if bool(bad.any()):
        at = int(np.argmax(bad))
        raise ConfigError(
            f"a cost model must return finite costs of at least 0; a batch of "
            f"{int(batch_size[at]):,} samples padded to {int(longest[at]):,} tokens cost "
            f"{costs[at]}"
        )
    return costs


@runtime_checkable
class FittedCost(Protocol):
    """A cost in seconds with an error bar; :class:`lengthwise.calibrate.CostFit` is one."""

    @property
    def cost(self) -> CostModel:
        """Seconds of a batch of ``batch_size`` samples padded to ``longest`` tokens."""
        ...

    def interval(
        self, batch_size: Int64Array, longest: Int64Array, level: float
    ) -> tuple[float, float]:
        """Seconds of all batches together, with probability ``level``: from, and up to."""
        ...


def spread(
    fit: FittedCost, batch_size: Int64Array, longest: Int64Array, level: float = 0.9
) -> tuple[float, float]:
    """How many times as long as fitted some batches may take together: at best, at worst.

    What is unknown about the coefficients is the same in every batch, so it does not average out;
    the noise of single batches does.

    Args:
        fit: of what runs them.
        batch_size: samples of each batch; int64, shape (M,).
        longest: tokens that each is padded to; int64, shape (M,).
        level: probability that the truth is between.
    """
    whole = float(evaluate_model(fit.cost, batch_size, longest).sum())
    low, high = fit.interval(batch_size, longest, level)
    return (float(low) / whole, float(high) / whole) if whole else (1.0, 1.0)
