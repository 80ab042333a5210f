"""Checkpoints: written whole or not at all, checked when read, the oldest removed.

A checkpoint is a folder ``step-00000500`` with

    drafter/         the drafter in float32, in the published format: usable as it is
    optimizer.pt     state of the optimiser; read without unpickling code
    state.json       where the run stands, its config, what it was made with
    manifest.json    size and SHA-256 of every other file, written last

It is made under another name beside its place, synced, and renamed. So a killed run, or a full
disk, leaves no half of one, and a damaged file is found before it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors import SafetensorError

from lengthwise.core.file_format import CHECKPOINT
from lengthwise.errors import CheckpointError, CheckpointWriteError, DataError, LengthwiseWarning
from lengthwise.lengths.storage import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.dflash.training.places import Location

PREFIX, PARTIAL, MANIFEST = "step-", ".partial-", "manifest.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that was read and found whole.

    Attributes:
        path: its folder, on disk.
        state: what ``state.json`` holds.
        url: where it was copied from; None where ``path`` is the place itself.
        room: keeps the copy.
    """

    path: Path
    state: dict[str, Any]
    url: str | None = None
    room: object = None

    @property
    def place(self) -> Location:
        """Where it is, for whoever reads it again."""
        return self.path if self.url is None else self.url

    @property
    def num_steps(self) -> int:
        """Optimiser steps done."""
        return int(self.state["num_steps"])

    @property
    def drafter_dir(self) -> Path:
        """The drafter, in the published format."""
        return self.path / "drafter"

    def optimizer_state(self) -> dict[str, Any]:
        """State of the optimiser, on the CPU."""
        loaded = torch.load(self.path / "optimizer.pt", map_location="cpu", weights_only=True)
        assert isinstance(loaded, dict)
        return loaded


class Saver(Protocol):
    """Takes checkpoints."""

    def save(
        self,
        state: dict[str, Any],
        optimizer_state: dict[str, Any],
        write_drafter: Callable[[Path], object],
    ) -> Location:
        """Write one.

        Args:
            state: plain data; ``num_steps`` names the checkpoint.
            optimizer_state: of the optimiser.
            write_drafter: writes the drafter into a folder that does not exist yet.

        Returns:
            Where it is.

        Raises:
            CheckpointWriteError: as when the disk is full. What was there before is untouched.
        """


class Checkpoints(Saver, Protocol):
    """The checkpoints of one run, on disk or in a store."""

    @property
    def place(self) -> Location:
        """Where they are."""

    def paths(self) -> Sequence[Location]:
        """All of them, the newest first; not checked."""

    def latest(self) -> Checkpoint | None:
        """The newest that is whole; see :func:`newest_whole`."""


class CheckpointStore:
    """The checkpoints of one run on disk; see :class:`Checkpoints`.

    Args:
        directory: holds them and nothing else; made when the first is saved.
        keep: how many of the newest stay.
    """

    def __init__(self, directory: str | Path, keep: int = 3) -> None:
        """Nothing is read or written yet."""
        self.directory = Path(directory)
        self.keep = keep

    def save(
        self,
        state: dict[str, Any],
        optimizer_state: dict[str, Any],
        write_drafter: Callable[[Path], object],
    ) -> Path:
        """Write one; older ones are removed after it is in place."""
        place = self.directory / f"{PREFIX}{state['num_steps']:08d}"
        partial = self.directory / f"{PARTIAL}{os.getpid()}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write_drafter(partial / "drafter")
            with (partial / "optimizer.pt").open("wb") as stream:  # a path would hide the reason
                torch.save(optimizer_state, stream)
            _write_json(partial / "state.json", {**CHECKPOINT.stamp(), **state})
            _write_json(partial / MANIFEST, _describe_files(partial))
            _sync(partial)
            if place.exists():
                shutil.rmtree(place)
            partial.rename(place)
            _sync_folder(self.directory)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointWriteError(
                f"{place}: the checkpoint could not be written: {error}. Earlier ones are as they "
                f"were; make room, then resume"
            ) from error
        self._rotate()
        return place

    @property
    def place(self) -> Path:
        """Their folder."""
        return self.directory

    def paths(self) -> list[Path]:
        """Folders of all checkpoints, the newest first; not checked."""
        return sorted(self.directory.glob(f"{PREFIX}*"), reverse=True)

    def latest(self) -> Checkpoint | None:
        """The newest that is whole; see :func:`newest_whole`."""
        return newest_whole(self.paths())

    def _rotate(self) -> None:
        """Remove what is too old, and what processes that were killed have left behind."""
        for path in [*self.paths()[self.keep :], *self.directory.glob(f"{PARTIAL}*")]:
            shutil.rmtree(path)


def newest_whole(places: Sequence[Location]) -> Checkpoint | None:
    """The first that is whole; None if there is none at all.

    A damaged one is passed over with a warning.

    Args:
        places: of checkpoints, the newest first.

    Raises:
        CheckpointError: there are some, and all are damaged.
    """
    problems = []
    for place in places:
        try:
            return read_checkpoint(place)
        except CheckpointError as error:
            problems.append(str(error))
            warnings.warn(f"passed over: {error}", LengthwiseWarning, stacklevel=2)
    if problems:
        raise CheckpointError("no checkpoint is whole: " + "; ".join(problems))
    return None


def read_checkpoint(place: Location) -> Checkpoint:
    """Check every file of a checkpoint against its manifest; one in a store is copied first.

    Raises:
        CheckpointError: a file is missing, or not what was written; names it.
    """
    if is_url(str(place)):
        from lengthwise.dflash.training.remote_checkpoint import read_remote_checkpoint

        return read_remote_checkpoint(str(place))
    path = Path(place)
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        expected = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no checkpoint, or damaged: {MANIFEST}: {error}") from error
    for name, facts in expected.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{path}: damaged: {name} is missing")
        if file.stat().st_size != facts["bytes"]:
            raise CheckpointError(
                f"{path}: damaged: {name} has {file.stat().st_size:,} bytes, "
                f"{facts['bytes']:,} were written"
            )
        if _digest(file) != facts["sha256"]:
            raise CheckpointError(f"{path}: damaged: {name} is not what was written")
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if state.get("format") == 1:  # before formats had names
        state |= CHECKPOINT.stamp()
    try:
        CHECKPOINT.check(state, path)
    except DataError as error:
        raise CheckpointError(str(error)) from None
    return Checkpoint(path, state)


def _describe_files(folder: Path) -> dict[str, Any]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        "files": {
            file.relative_to(folder).as_posix(): {
                "bytes": file.stat().st_size,
                "sha256": _digest(file),
            }
            for file in files
        }
    }


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _sync(folder: Path) -> None:
    """Have the system write every file and folder out before the rename."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
