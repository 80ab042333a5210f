"""What was promised before a run: its ``prediction.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.core.cost import StepTime
from lengthwise.dflash.training.run_files import PREDICTION_FORMAT, PREDICTION_VERSION
from lengthwise.diagnose.records import figure
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a run was expected to do.

    Attributes:
        tokens_per_second: real tokens learnt from.
        low: the least of them, with the prediction's own probability,
        high: and the most; None where it gives no interval.
        target_busy: share of the time that targets are at work, from 0 to 1.
        drafter_busy: the same of the drafter's devices.
        num_drafters: devices that train; 0: one device does both in turn.
        bottleneck: what was expected to hold the run up, in one word; None for nothing.
        target_cost: seconds of a batch of the target; None where the prediction has a table.
    """

    tokens_per_second: float
    low: float | None = None
    high: float | None = None
    target_busy: float
    drafter_busy: float
    num_drafters: int = 1
    bottleneck: str | None = None
    target_cost: StepTime | None = None

    def __post_init__(self) -> None:
        """Refuse what no run could be compared with."""
        if not self.tokens_per_second > 0:
            raise DataError(
                f"a prediction needs tokens_per_second above 0, got {self.tokens_per_second}"
            )
        for name in ("target_busy", "drafter_busy"):
            if not 0 <= getattr(self, name) <= 1 + 1e-9:
                raise DataError(f"{name} is a share from 0 to 1, got {getattr(self, name)}")

    def busy(self, stage: str) -> float:
        """Share of the time that a stage's devices were to be at work."""
        return self.target_busy if stage == "target" else self.drafter_busy


def read_promise(path: Path) -> Promise | None:
    """Read a prediction; None where there is no such file.

    Raises:
        DataError: it is damaged, or of another format or version.
    """
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not a prediction: {error}") from None
    if not isinstance(values, dict) or values.get("format") != PREDICTION_FORMAT:
        raise DataError(f'{path}: not a prediction: "format" must be "{PREDICTION_FORMAT}"')
    if values.get("version") != PREDICTION_VERSION:
        raise DataError(
            f"{path}: a prediction of version {values.get('version')!r}; this version of "
            f"lengthwise reads {PREDICTION_VERSION}"
        )
    try:
        return _promise(values)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _promise(values: dict[str, Any]) -> Promise:
    shares = [figure(values, name) for name in ("target_busy", "drafter_busy")]
    rate = figure(values, "tokens_per_second")
    if rate is None or None in shares:
        raise DataError("tokens_per_second, target_busy and drafter_busy must all be numbers")
    num_drafters = figure(values, "num_drafters")
    word = values.get("bottleneck")
    return Promise(
        tokens_per_second=rate,
        low=figure(values, "low"),
        high=figure(values, "high"),
        target_busy=shares[0] or 0.0,
        drafter_busy=shares[1] or 0.0,
        num_drafters=1 if num_drafters is None else int(num_drafters),
        bottleneck=word if isinstance(word, str) else None,
        target_cost=_step_time(values.get("target")),
    )


def _step_time(stage: Any) -> StepTime | None:
    """The cost of a stage's batch, where it is given by three coefficients."""
    cost = stage.get("cost") if isinstance(stage, dict) else None
    if not isinstance(cost, dict):
        return None
    names = ("fixed_seconds", "seconds_per_token", "seconds_per_token_squared")
    found = {name: figure(cost, name) for name in names}
    if any(value is None for value in found.values()):
        return None
    try:
        return StepTime(**{name: value or 0.0 for name, value in found.items()})
    except ConfigError as error:
        raise DataError(f"target.cost: {error}") from None
