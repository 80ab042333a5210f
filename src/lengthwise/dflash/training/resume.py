"""Whether a checkpoint belongs to a run, and what may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import CheckpointError

if TYPE_CHECKING:
    from lengthwise.dflash.training.checkpoint import Checkpoint
    from lengthwise.dflash.training.config import TrainConfig

HARMLESS = (
    "output_dir",
    "device",
    "checkpoint.",
    "evaluation.",
    "logging.",
    "pipeline.",
    # These change how a step is computed, not what: the loss is the same but for rounding.
    "attention",
    "compile",
    "gradient_checkpointing",
    "step.rows",
    "step.shape_multiple",
    "step.max_anchors_per_batch",
    "target.attn_implementation",
)
"""Fields, or sections ending in a point, that a resumed run may change."""


def check_same_run(checkpoint: Checkpoint, config: TrainConfig, fingerprint: str) -> list[str]:
    """Refuse a checkpoint of another run.

    Args:
        checkpoint: to be resumed.
        config: the run's now.
        fingerprint: of its plan now.

    Returns:
        The harmless differences, each ``field: old -> new``.

    Raises:
        CheckpointError: fields that decide the result differ, or the data does; names each.
    """
    old, new = _flat(checkpoint.state["config"]), _flat(config.model_dump(mode="json"))
    changed = {
        name: f"{name}: {old.get(name)!r} -> {new.get(name)!r}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }
    harmless = {name for name in changed if _is_harmless(name)}
    # Where the data lies may change; what it is shows in the fingerprint.
    moved = {name for name in changed if name in {"data.train", "data.held_out", "target.model"}}
    harmful = [text for name, text in changed.items() if name not in harmless | moved]
    if harmful:
        raise CheckpointError(
            f"{checkpoint.path} belongs to a run with other settings: {'; '.join(harmful)}. Go on "
            f"with the old values, or begin a new run in another output_dir "
            f"(drafter.init_from takes this checkpoint's weights)"
        )
    if checkpoint.state["plan"] != fingerprint:
        raise CheckpointError(
            f"{checkpoint.path} belongs to other data: the plan's fingerprint was "
            f"{checkpoint.state['plan']} and is {fingerprint}. Give the same samples in the same "
            f"order, or begin a new run in another output_dir"
        )
    return [changed[name] for name in sorted(harmless | moved)]


def _is_harmless(name: str) -> bool:
    return any(
        name.startswith(known) if known.endswith(".") else name == known for known in HARMLESS
    )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
