"""What a sampler's state holds, and when it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.core.file_format import SAMPLER_STATE
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.limits import require_int
from lengthwise.core.resharding import Segment
from lengthwise.errors import ConfigError, PlanMismatchError

if TYPE_CHECKING:
    from lengthwise.core.planner import Planner

STATE_VERSION = SAMPLER_STATE.version
_KEYS = (
    "version",
    "plan_version",
    "epoch",
    "step",
    "num_replicas",
    "history",
    "num_samples",
    "lengths",
    "config",
)
_WAY_OUT = (
    "To train on as things are now, do not load this state: call set_epoch({next_epoch}) to begin "
    "the next epoch."
)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a run: an epoch, and what of it is done.

    Positions are equal if and only if the same batches follow: a part of no steps is left out, and
    two parts on one number of replicas in a row are one.

    Attributes:
        epoch: which epoch, from 0.
        done: the parts of the epoch that are done, each on its number of replicas.
    """

    epoch: int = 0
    done: tuple[Segment, ...] = ()

    def after(self, num_replicas: int, num_steps: int) -> Position:
        """Where ``num_steps`` further steps on ``num_replicas`` lead, in the same epoch."""
        if num_steps == 0:
            return self
        earlier, same = self.split(num_replicas)
        return Position(self.epoch, (*earlier, Segment(num_replicas, same + num_steps)))

    def split(self, num_replicas: int) -> tuple[tuple[Segment, ...], int]:
        """The parts before the dealing that ``num_replicas`` go on with, and steps done in it."""
        if self.done and self.done[-1].num_replicas == num_replicas:
            return self.done[:-1], self.done[-1].num_steps
        return self.done, 0


@dataclass(frozen=True, slots=True)
class PlanIdentity:
    """What decides all plans of a run, apart from epoch and replicas; small and exact.

    Attributes:
        num_samples: samples of the data set.
        lengths: a hash of their lengths, in order.
        config: the config as plain values, its boundaries found.
        plan_version: of the planning rules.
    """

    num_samples: int
    lengths: str
    config: dict[str, Any]
    plan_version: int = PLAN_VERSION

    @classmethod
    def of(cls, planner: Planner) -> PlanIdentity:
        """Of a planner's data and config."""
        return cls(int(planner.lengths.size), planner.lengths_hash, planner.config.to_dict())

    def differences(self, state: Mapping[str, Any]) -> list[str]:
        """What a state says otherwise, one phrase each."""
        found = []
        if state["plan_version"] != self.plan_version:
            found.append(
                f"planning rules (version {state['plan_version']} then, {self.plan_version} in "
                f"this version of lengthwise)"
            )
        if state["num_samples"] != self.num_samples:
            found.append(
                f"number of samples ({state['num_samples']:,} then, {self.num_samples:,} now)"
            )
        elif state["lengths"] != self.lengths:
            found.append("lengths (as many samples, but other lengths or another order)")
        return found + _config_differences(state["config"], self.config)


def _config_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = _flat(then), _flat(now)
    names = sorted(old.keys() | new.keys())
    return [
        f"{name} ({old.get(name)!r} then, {new.get(name)!r} now)"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Limits beside the other fields; tuples as lists, so that JSON changes nothing."""
    values = {**config.get("limits", {}), **config}
    values.pop("limits", None)
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }


def to_dict(position: Position, num_replicas: int, identity: PlanIdentity) -> dict[str, Any]:
    """A position as a plain dict: a few numbers and the config, whatever the data's size.

    Args:
        position: what to save.
        num_replicas: replicas now; recorded where the epoch has not begun.
        identity: of the plans it belongs to.
    """
    *history, last = (*position.done,) or (None,)
    config = {**identity.config, "limits": dict(identity.config["limits"])}
    return {
        **SAMPLER_STATE.stamp(),
        "plan_version": identity.plan_version,
        "epoch": position.epoch,
        "step": 0 if last is None else last.num_steps,
        "num_replicas": num_replicas if last is None else last.num_replicas,
        "history": [[part.num_replicas, part.num_steps] for part in history if part is not None],
        "num_samples": identity.num_samples,
        "lengths": identity.lengths,
        "config": config,
    }


def from_dict(state: Mapping[str, Any], identity: PlanIdentity) -> Position:
    """The position of a saved state, if it belongs to these plans.

    Raises:
        PlanMismatchError: no state of this kind or version, or of other data or another config;
            names everything that differs.
    """
    if not isinstance(state, Mapping):
        raise PlanMismatchError(f"a sampler's state is a dict, got {type(state).__name__}")
    is_named = state.get("format", SAMPLER_STATE.name) == SAMPLER_STATE.name
    if state.get("version") != STATE_VERSION or not is_named:
        raise PlanMismatchError(
            f"this is no sampler state of version {STATE_VERSION}: its version is "
            f"{state.get('version')!r}, its keys are {', '.join(map(str, state)) or 'missing'}"
        )
    missing = [key for key in _KEYS if key not in state]
    if missing:
        raise PlanMismatchError(f"the sampler's state lacks {', '.join(missing)}")
    position = _position(state)
    differences = identity.differences(state)
    if differences:
        raise PlanMismatchError(
            f"the state belongs to another plan; these differ: {'; '.join(differences)}. "
            f"{_WAY_OUT.format(next_epoch=position.epoch + 1)}"
        )
    return position


def _position(state: Mapping[str, Any]) -> Position:
    try:
        epoch = require_int("epoch", state["epoch"], least=0)
        step = require_int("step", state["step"], least=0)
        num_replicas = require_int("num_replicas", state["num_replicas"], least=1)
        done = tuple(Segment(*part) for part in state["history"])
    except (ConfigError, TypeError) as error:
        raise PlanMismatchError(f"the sampler's state is damaged: {error}") from error
    return Position(epoch, done).after(num_replicas, step)
