"""What ``lengthwise optimize`` is to minimise, as options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel
    from lengthwise.predict import Fit

NAMES = ("padding", "steps", "seconds")

ObjectiveOption = Annotated[
    str,
    typer.Option(
        "--objective",
        help="What to minimise: padded tokens (padding), the number of batches (steps), or the "
        "time of an epoch: a file that `lengthwise calibrate` wrote, or seconds "
        "FIXED,PER_TOKEN,PER_TOKEN_SQUARED such as 0.05,2e-5,3e-9; or the word seconds with the "
        "coefficients below.",
    ),
]
FixedSeconds = Annotated[
    float, typer.Option("--fixed-seconds", min=0, help="Seconds that any step takes (seconds).")
]
PerToken = Annotated[
    float,
    typer.Option("--seconds-per-token", min=0, help="Seconds for a padded token (seconds)."),
]
PerSquare = Annotated[
    float,
    typer.Option(
        "--seconds-per-token-squared",
        min=0,
        help="Seconds for samples x longest^2: attention (seconds).",
    ),
]


def read_objective(
    text: str, coefficients: tuple[float, float, float]
) -> tuple[str, Fit | CostModel | None]:
    """The objective's name, and the cost of a batch in seconds where it is one.

    Args:
        text: as given to ``--objective``.
        coefficients: as given for ``--objective seconds``.

    Raises:
        ConfigError: no such objective, or coefficients that belong to another.
    """
    from lengthwise.core.cost import StepTime

    if text != "seconds" and any(coefficients):
        raise ConfigError("coefficients of a step's time need --objective seconds")
    if text in ("padding", "steps"):
        return text, None
    if text == "seconds":
        fixed, token, square = coefficients
        return "seconds", StepTime(
            fixed_seconds=fixed, seconds_per_token=token, seconds_per_token_squared=square
        )
    if not _looks_like_a_cost(text):
        raise ConfigError(
            f"--objective takes {', '.join(NAMES)}, a file that lengthwise calibrate wrote, or "
            f"seconds such as 0.05,2e-5,3e-9; got {text!r}"
        )
    from lengthwise.cli.costs import read_cost

    return "seconds", read_cost("--objective", text)


def _looks_like_a_cost(text: str) -> bool:
    """Whether it is no misspelt word: numbers, or the name of a file."""
    return not text.isalpha()
