"""What every adapter is given, and what it says of itself."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

STEP = 8
"""Batches of an optimiser step, wherever a peer wants to know it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Lengths and limits, the same for every peer."""

    lengths: np.ndarray
    """Tokens of each sample, int64, in random order."""
    max_tokens: int
    """Padded tokens of a batch at most (for packers: tokens of a row)."""
    max_batch_size: int
    boundaries: tuple[int, ...] | None = None
    """Published bucket boundaries, where the data has some."""
    seed: int = 0

    @property
    def longest(self) -> int:
        """The longest sample."""
        return int(self.lengths.max())

    @property
    def safe_size(self) -> int:
        """Samples of a batch that is within the limits whatever it holds."""
        return min(self.max_batch_size, self.max_tokens // self.longest)

    @property
    def mean_size(self) -> int:
        """Samples of a batch that fills the budget with samples of mean length."""
        return min(self.max_batch_size, int(self.max_tokens // self.lengths.mean()))


@dataclass(frozen=True, slots=True)
class Replica:
    """One of the processes that train together."""

    rank: int = 0
    num_replicas: int = 1
    step: int = STEP
    """Batches of an optimiser step on all replicas together, at least."""

    @property
    def accumulation(self) -> int:
        """Batches of each replica in a step."""
        return max(1, self.step // self.num_replicas)


@dataclass(frozen=True, slots=True)
class About:
    """What a peer promises, and how it was set."""

    package: str
    settings: str
    """As its authors recommend."""
    source: str
    """Where they do."""
    dealing: str | None = None
    """Who deals one list of batches to replicas, batch ``s * W + r`` to replica ``r`` in step
    ``s``, and how the last step is filled; None where the peer itself deals. Then ``make`` is
    asked for rank 0 of W and yields the whole list."""
    resume: str = "replay"
    """``state``: it saves one. ``replay``: a trainer goes through the epoch's batches again."""
    packed: bool = False
    """Whether a batch is one row of samples laid end to end, without padding."""
    most_samples: int | None = None
    """It reads tokens, not lengths, and is measured on the first so many samples."""
    leaves_out: str = ""
    """Samples that its authors let it leave out or repeat."""


class Epochs:
    """A sampler from a function of the epoch."""

    def __init__(self, batches: Callable[[int], Iterable[Sequence[int]]]) -> None:
        """Begin at epoch 0."""
        self.batches, self.epoch = batches, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Sequence[int]]:
        """Batches of sample numbers."""
        return iter(self.batches(self.epoch))


class Reading:
    """A peer's own sampler, with its states, whose batches are read as sample numbers."""

    def __init__(self, sampler: Any, read: Callable[[Any], Iterator[Sequence[int]]]) -> None:
        """Keep the sampler; ``read(sampler)`` goes through an epoch of it."""
        self.sampler, self.read = sampler, read
        self.set_epoch, self.state_dict = sampler.set_epoch, sampler.state_dict
        self.load_state_dict = sampler.load_state_dict

    def __iter__(self) -> Iterator[Sequence[int]]:
        """Batches of sample numbers."""
        return self.read(self.sampler)


def skip_package_code(*names: str) -> None:
    """Let modules of a package be imported without the package's own ``__init__``.

    Many peers import the world there. The modules that are measured run as they are.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    top = find_spec(names[0])
    if top is None or not top.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {names[0]!r}")
    root = Path(next(iter(top.submodule_search_locations)))
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        module.__spec__ = top if name == names[0] else None
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
