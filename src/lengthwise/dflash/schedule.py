"""The learning rate over optimiser steps, as a pure function: nothing to save or restore."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

ScheduleKind: TypeAlias = Literal["cosine", "wsd", "constant"]

WARMUP_RATIO = 0.04
"""The paper's warm-up: this share of all optimiser steps."""


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Warm-up, then the shape of the rest; all in optimiser steps, not in micro-batches.

    With W warm-up steps, step i (from 0) has the factor (i + 1) / W while i < W. Then:

    - ``"cosine"``: falls from 1 at step W to ``final_ratio`` at the end, half a cosine.
    - ``"wsd"``: 1, then in a straight line to ``final_ratio`` over the last steps (warm-up,
      stable, decay).
    - ``"constant"``: 1.

    "The end" is the step after the last, so the last step still learns something.

    Args:
        kind: the shape.
        warmup_ratio: share of all steps, rounded to a whole number of steps; default 0.04.
        warmup_steps: steps, instead of the share.
        final_ratio: what is left of the peak at the end.
        decay_ratio: share of all steps in which ``"wsd"`` falls, rounded.

    Raises:
        ConfigError: a value out of its range, or both kinds of warm-up.
    """

    kind: ScheduleKind = "cosine"
    warmup_ratio: float | None = None
    warmup_steps: int | None = None
    final_ratio: float = 0.0
    decay_ratio: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.kind not in get_args(ScheduleKind):
            raise ConfigError(
                f"kind of schedule must be one of {', '.join(get_args(ScheduleKind))}; "
                f"got {self.kind!r}"
            )
        if self.warmup_steps is not None:
            require_int("warmup_steps", self.warmup_steps, least=0)
            if self.warmup_ratio is not None:
                raise ConfigError("give warmup_steps or warmup_ratio, not both")
        for name in ("warmup_ratio", "final_ratio", "decay_ratio"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"{name} must be in [0, 1], got {value!r}")

    def num_warmup_steps(self, total_steps: int) -> int:
        """Optimiser steps of the warm-up.

        Raises:
            ConfigError: there are more than steps in all.
        """
        if self.warmup_steps is None:
            ratio = WARMUP_RATIO if self.warmup_ratio is None else self.warmup_ratio
            return round(ratio * total_steps)
        if self.warmup_steps > total_steps:
            raise ConfigError(
                f"warmup_steps must be at most the {total_steps:,} optimiser steps of the run, got "
                f"{self.warmup_steps:,}; lower it, or give warmup_ratio"
            )
        return self.warmup_steps

    def factor(self, step: int, total_steps: int) -> float:
        """What the peak learning rate is multiplied by at an optimiser step.

        Args:
            step: from 0; beyond the end the factor stays as it was there.
            total_steps: of the run, at least 1.
        """
        require_int("step", step, least=0)
        require_int("total_steps", total_steps, least=1)
        warmup = self.num_warmup_steps(total_steps)
        if step < warmup:
            return (step + 1) / warmup
        if self.kind == "constant":
            return 1.0
        falling = total_steps - warmup
        if self.kind == "wsd":
            falling = min(falling, round(self.decay_ratio * total_steps))
        left = min(max(0, total_steps - step), falling)
        share = left / falling if falling else float(step < total_steps)
        if self.kind == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return self.final_ratio + (1 - self.final_ratio) * share
