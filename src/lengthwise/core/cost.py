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
    if isinstance(objective, StepTime):
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
