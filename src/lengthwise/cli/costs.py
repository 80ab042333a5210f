"""What a batch costs, as an option: a calibration file, or the numbers of a formula."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.calibrate.cost_fit import CostFit
    from lengthwise.core.cost import StepTime


def read_cost(option: str, text: str) -> StepTime | CostFit:
    """A fitted cost from a file of ``lengthwise calibrate``, or one that is written out.

    Args:
        option: it was given to, for messages.
        text: the file, or ``FIXED,PER_TOKEN,PER_TOKEN_SQUARED`` in seconds; fewer numbers leave
            the last ones at 0.

    Raises:
        ConfigError: neither a file nor such numbers.
    """
    from lengthwise.core.cost import StepTime

    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return _from_file(option, Path(text))
    if len(numbers) > 3:
        raise ConfigError(
            f"{option} takes up to three numbers, seconds of a batch: fixed, per token, per token "
            f"squared; got {len(numbers)}"
        )
    fixed, token, square = (*numbers, 0.0, 0.0)[:3]
    return StepTime(fixed_seconds=fixed, seconds_per_token=token, seconds_per_token_squared=square)


def _from_file(option: str, path: Path) -> CostFit:
    if not path.exists():
        raise ConfigError(
            f"{option} takes a file that lengthwise calibrate wrote, or seconds such as "
            f"0.05,2e-5,3e-9 (fixed, per token, per token squared); there is no file {path}"
        )
    from lengthwise.calibrate import read_calibration

    return read_calibration(path).fit
