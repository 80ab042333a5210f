"""A check that a loader resumes exactly, for our tests and for yours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Resumable(Protocol):
    """What is checked: a sampler or a loader with a state."""

    def __iter__(self) -> Iterator[Any]:
        """Batches to the end of the epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Where it stands."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go there."""


@dataclass(frozen=True, slots=True)
class _Saved:
    state: dict[str, Any]
    epoch: int
    step: int
    """Batches of the epoch that had been handed out."""


def check_resume(
    make_loader: Callable[[], Resumable], *, num_epochs: int = 2, compare_states: bool = True
) -> int:
    """Save the state before every batch, restore each into a fresh object, compare what follows.

    The uninterrupted run has ``num_epochs`` epochs and one more. For every state, a fresh loader
    must yield the rest of that epoch and the whole next epoch, and must save the state it was
    given before it yields anything.

    Args:
        make_loader: a fresh loader (or sampler), as a restarted program would make it.
        num_epochs: epochs in which states are saved.
        compare_states: compare the state that a restored loader saves; off for loaders that add
            counters of their own.

    Returns:
        The number of states that were checked.

    Raises:
        AssertionError: something differs; says where.
    """
    loader = make_loader()
    epochs: list[list[Any]] = []
    saved: list[_Saved] = []
    for epoch in range(num_epochs + 1):
        batches: list[Any] = []
        saved.append(_Saved(deepcopy(loader.state_dict()), epoch, 0))
        for batch in loader:
            batches.append(plain(batch))
            saved.append(_Saved(deepcopy(loader.state_dict()), epoch, len(batches)))
        epochs.append(batches)
    checked = [place for place in saved if place.epoch < num_epochs]
    for place in checked:
        _check_one(make_loader(), place, epochs, compare_states=compare_states)
    return len(checked)


def _check_one(
    loader: Resumable, place: _Saved, epochs: list[list[Any]], *, compare_states: bool
) -> None:
    where = f"state saved in epoch {place.epoch} after {place.step} batches"
    given = deepcopy(place.state)
    loader.load_state_dict(given)
    if compare_states and loader.state_dict() != place.state:
        raise AssertionError(f"{where}: restored, it saves {loader.state_dict()}")
    if given != place.state:
        raise AssertionError(f"{where}: loading changed the dict that was given")
    rest = epochs[place.epoch][place.step :]
    following = [rest, epochs[place.epoch + 1]] if rest else [epochs[place.epoch + 1]]
    for number, expected in enumerate(following):
        found = [plain(batch) for batch in islice(iter(loader), len(expected) + 1)]
        if found != expected:
            raise AssertionError(f"{where}: pass {number + 1} {_difference(found, expected)}")


def _difference(found: list[Any], expected: list[Any]) -> str:
    for place, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"gave {one} as batch {place}, not {other}"
    if len(found) > len(expected):
        return f"gave more than {len(expected)} batches"
    return f"gave {len(found)} of {len(expected)} batches"


def plain(value: Any) -> Any:
    """A batch as lists, dicts and numbers, which compare by value."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value
