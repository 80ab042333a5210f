"""What a batcher's state holds besides the rest of its pass, and when it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lengthwise.core.file_format import STREAM_STATE
from lengthwise.errors import PlanMismatchError

if TYPE_CHECKING:
    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.streaming.config import StreamingConfig

STATE_VERSION = STREAM_STATE.version
"""Of the state, and of the rules by which batches are formed."""
_KEYS = ("epoch", "rank", "num_replicas", "settings", "rest")
_FREE_SETTINGS = ("state_samples",)
"""Settings that may differ between a state and the batcher it is loaded into."""


def to_dict(
    epoch: int, rest: Mapping[str, Any] | None, config: StreamingConfig, replica: Replica
) -> dict[str, Any]:
    """The state of a batcher.

    Args:
        epoch: the epoch that runs or comes next.
        rest: :meth:`StreamPass.state` of it; ``None`` before its first batch.
        config: every choice.
        replica: whose state.
    """
    return {
        **STREAM_STATE.stamp(),
        "epoch": epoch,
        "rank": replica.rank,
        "num_replicas": replica.num_replicas,
        "settings": config.to_dict(),
        "rest": rest,
    }


def check_state(state: Mapping[str, Any], config: StreamingConfig, replica: Replica) -> None:
    """Refuse a state of another kind, version, replica or other settings.

    Raises:
        PlanMismatchError: names everything that differs.
    """
    found = state if isinstance(state, Mapping) else {}
    is_named = found.get("format", STREAM_STATE.name) == STREAM_STATE.name
    if (
        not is_named
        or found.get("version") != STATE_VERSION
        or any(key not in found for key in _KEYS)
    ):
        raise PlanMismatchError(
            f"this is no state of a StreamingBucketBatcher of version {STATE_VERSION}"
        )
    then, now = dict(state["settings"]), config.to_dict()
    if config.sharding != "replicated":
        then |= {name: state[name] for name in ("rank", "num_replicas")}
        now |= {"rank": replica.rank, "num_replicas": replica.num_replicas}
    differences = [
        f"{name} ({then.get(name)!r} then, {now.get(name)!r} now)"
        for name in sorted(then.keys() | now.keys())
        if name not in _FREE_SETTINGS and then.get(name) != now.get(name)
    ]
    if differences:
        raise PlanMismatchError(
            f"the state belongs to other settings; these differ: {'; '.join(differences)}. To "
            f"train on as things are now, do not load this state: call "
            f"set_epoch({state['epoch'] + 1}) to begin the next epoch."
        )
