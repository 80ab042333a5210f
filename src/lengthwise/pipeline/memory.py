"""The memory that a pipeline is planned to take, device by device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.dflash.training.setup import count_weights, target_bytes_of
from lengthwise.pipeline.dispatch import RANK_DEPTH

if TYPE_CHECKING:
    from lengthwise.dflash.target.sizes import TargetBytes
    from lengthwise.pipeline.setup import PipelineSetup

UPDATE_BYTES = 16
"""Of a drafter's weight: itself, its gradient and AdamW's two averages, all in float32."""


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What one place is planned to hold. What layers need while they compute comes on top.

    Attributes:
        place: a device and what it does, or the machine's shared memory.
        parts: what -> bytes; None where it cannot be known beforehand.
    """

    place: str
    parts: dict[str, int | None]

    @property
    def num_bytes(self) -> int:
        """All that is known."""
        return sum(part or 0 for part in self.parts.values())


def plan_memory(setup: PipelineSetup) -> list[PlannedMemory]:
    """What every device and the shared memory will hold; reads no weights."""
    config, arena = setup.config, setup.arena
    target = target_bytes_of(config)
    token = arena.feature_size * arena.dtype.itemsize
    features = config.batching.max_tokens * token
    weights: dict[str, int | None] = {
        "weights": target.weights if target else None,
        "features of a batch": features,
    }
    ranks = _rank_parts(setup, target, token)
    section = config.pipeline
    waiting: dict[str, int | None] = {"features that wait": arena.num_bytes}
    if section.engine == "ray":  # alike, and perhaps many
        return [
            PlannedMemory("object stores", waiting),
            PlannedMemory(f"each of {len(section.targets):,} target workers", weights),
            PlannedMemory(f"each of {len(section.drafters):,} drafter ranks", ranks),
        ]
    return [
        PlannedMemory("shared memory", waiting),
        *(
            PlannedMemory(f"target worker {number} ({device})", weights)
            for number, device in enumerate(section.targets)
        ),
        *(
            PlannedMemory(f"drafter rank {rank} ({device})", ranks)
            for rank, device in enumerate(section.drafters)
        ),
    ]


def _rank_parts(
    setup: PipelineSetup, target: TargetBytes | None, token_bytes: int
) -> dict[str, int | None]:
    ranks = len(setup.config.pipeline.drafters)
    largest = int(setup.plan.epoch(0).mix.steps.tokens.max())
    return {
        "weights and optimiser": count_weights(setup.drafter) * UPDATE_BYTES,
        "the target's ends": target.ends if target else None,
        f"features of {RANK_DEPTH} steps": RANK_DEPTH * largest * token_bytes // ranks,
    }
