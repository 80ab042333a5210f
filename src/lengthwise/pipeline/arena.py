"""The block of shared memory in which features wait between target and drafter."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.pipeline.messages import Part
    from lengthwise.pipeline.wire import Wire

SHARED_FOLDER = "/dev/shm"  # noqa: S108 - where Linux keeps shared memory; only its size is read


@dataclass(frozen=True, slots=True)
class ArenaShape:
    """What an arena looks like.

    Attributes:
        num_pages: of it.
        page_tokens: tokens of a page.
        feature_size: F, values of a token.
        dtype: of the values.
    """

    num_pages: int
    page_tokens: int
    feature_size: int
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Of the whole arena."""
        return self.num_pages * self.page_tokens * self.feature_size * self.dtype.itemsize

    def check(self, part: Part, features: torch.Tensor) -> None:
        """Refuse features that are not a sample's.

        Raises:
            DataError: not one row a token, or values that would lose something.
        """
        width = self.feature_size
        if features.shape != (part.num_tokens, width):
            raise DataError(
                f"sample {part.sample_id}: the target gave features {tuple(features.shape)} for "
                f"{part.num_tokens:,} tokens; ({part.num_tokens}, {width}) belong to them"
            )
        if torch.promote_types(features.dtype, self.dtype) != self.dtype:
            raise DataError(
                f"sample {part.sample_id}: the target gave {features.dtype}, and features wait in "
                f"{self.dtype}, which would lose some of it: set target.dtype"
            )


class Channel(Protocol):
    """Where features wait between target and drafter; an :class:`Arena` on one machine."""

    def pin(self) -> None:
        """Let CUDA copy to and from it without detours; call it once in a process with CUDA."""

    def write(self, part: Part, features: torch.Tensor) -> None:
        """Write a sample's features, (T, F).

        Raises:
            DataError: they are not what belongs there.
        """

    def read(self, part: Part, device: torch.device | None = None) -> torch.Tensor:
        """A copy of a sample's features, (T, F); on CUDA made on the current stream."""

    def close(self) -> None:
        """Let go of it."""


class Place(Protocol):
    """How a child gets to the features; travels with its task.

    Attributes:
        shape: of what waits there.
    """

    @property
    def shape(self) -> ArenaShape:
        """Of what waits there."""

    def open(self, wire: Wire) -> Channel:
        """Get to it, in a child.

        Args:
            wire: the child's.
        """


@dataclass(frozen=True, slots=True)
class ArenaPlace:
    """An arena, by the name under which others attach.

    Attributes:
        shape: of the arena.
        name: its.
    """

    shape: ArenaShape
    name: str

    def open(self, _wire: Wire) -> Arena:
        """Attach."""
        return Arena(self.shape, self.name)


class Arena:
    """Pages of features, (num_pages, page_tokens, F), seen by all processes of a run.

    The process that creates it removes it; others attach by name. Who may write or read which pages
    is decided elsewhere, so there is no lock in it.

    Args:
        shape: of it.
        name: of an arena that exists; None creates one.

    Raises:
        ConfigError: there is not that much shared memory.
    """

    def __init__(self, shape: ArenaShape, name: str | None = None) -> None:
        """Create it, or attach to it."""
        self.shape = shape
        self._own = name is None
        self._hidden = False
        if self._own:
            _check_room(shape.num_bytes)
        self._memory = SharedMemory(name, create=self._own, size=shape.num_bytes)
        self._rows = torch.frombuffer(
            self._memory.buf, dtype=shape.dtype, count=shape.num_bytes // shape.dtype.itemsize
        ).view(shape.num_pages * shape.page_tokens, shape.feature_size)

    @property
    def name(self) -> str:
        """By which other processes attach."""
        return self._memory.name

    @property
    def place(self) -> ArenaPlace:
        """How other processes get to it."""
        return ArenaPlace(self.shape, self.name)

    def pin(self) -> None:
        """Let CUDA copy to and from it without detours; call it once in a process with CUDA."""
        status = torch.cuda.cudart().cudaHostRegister(  # type: ignore[no-untyped-call]
            self._rows.data_ptr(), self.shape.num_bytes, 0
        )
        torch.cuda.check_error(int(status))

    def write(self, part: Part, features: torch.Tensor) -> None:
        """Write a sample's features, (T, F), into its pages.

        Raises:
            DataError: not one row a token.
        """
        self.shape.check(part, features)
        for here, there in self._stretches(part):
            self._rows[there].copy_(features[here], non_blocking=True)

    def read(self, part: Part, device: torch.device | None = None) -> torch.Tensor:
        """A copy of a sample's features, (T, F); on CUDA made on the current stream.

        Args:
            part: which sample, and where it lies.
            device: for the copy; default: the CPU.
        """
        size = part.num_tokens, self.shape.feature_size
        features = torch.empty(size, dtype=self.shape.dtype, device=device)
        for here, there in self._stretches(part):
            features[here].copy_(self._rows[there], non_blocking=True)
        return features

    def _stretches(self, part: Part) -> Iterator[tuple[slice, slice]]:
        """Tokens of a sample and rows of the arena that belong together: as few as can be.

        Pages that follow each other make one stretch.
        """
        size, pages = self.shape.page_tokens, part.pages
        first = 0
        for place in range(1, len(pages) + 1):
            if place == len(pages) or pages[place] != pages[place - 1] + 1:
                begin, end = first * size, min(place * size, part.num_tokens)
                row = pages[first] * size
                yield slice(begin, end), slice(row, row + end - begin)
                first = place

    def hide(self) -> None:
        """Take its name away, in the process that created it, when all others have attached.

        From then on the system itself frees it with the last process, however they end.
        """
        if self._own and not self._hidden:
            self._memory.unlink()
            self._hidden = True

    def close(self) -> None:
        """Let go of it; the process that created it removes it."""
        del self._rows
        self._memory.close()
        self.hide()


def _check_room(num_bytes: int) -> None:
    """Refuse more than there is: who writes to memory that is promised and not there is killed."""
    if not Path(SHARED_FOLDER).is_dir():
        return
    facts = os.statvfs(SHARED_FOLDER)
    free = facts.f_bavail * facts.f_frsize
    if num_bytes > free:
        raise ConfigError(
            f"the features that wait between target and drafter need {num_bytes / 2**30:,.1f} GiB "
            f"of shared memory, {SHARED_FOLDER} has {free / 2**30:,.1f} GiB free: lower "
            f"remix.pool_batches or pipeline.prefetch_batches, or give it more (containers: "
            f"--shm-size)"
        )
