"""Checkpoints in a store that is named by a URL, for runs on several machines.

The same files as on disk. A store has no rename: ``manifest.json`` is sent last, and a folder
without it is no checkpoint. When one is read, a copy on disk is checked file by file.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.dflash.training.checkpoint import (
    MANIFEST,
    PREFIX,
    Checkpoint,
    CheckpointStore,
    newest_whole,
    read_checkpoint,
)
from lengthwise.dflash.training.places import (
    fetch,
    is_file,
    names_in,
    place_in,
    remove_folder,
    write_folder,
)
from lengthwise.errors import CheckpointError, CheckpointWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.training.places import Location


class RemoteCheckpointStore:
    """The checkpoints of one run in a store; see :class:`Checkpoints`.

    Args:
        url: of their folder.
        keep: how many of the newest stay.
    """

    def __init__(self, url: str, keep: int = 3) -> None:
        """Nothing is read or written yet."""
        self.url = url
        self.keep = keep

    def save(
        self,
        state: dict[str, Any],
        optimizer_state: dict[str, Any],
        write_drafter: Callable[[Path], object],
    ) -> Location:
        """Write one on disk, then send it; older ones are removed after it is in place.

        Raises:
            CheckpointWriteError: the disk is full, or the store does not take it.
        """
        place = place_in(self.url, f"{PREFIX}{state['num_steps']:08d}")

        def write(folder: Path) -> None:
            made = CheckpointStore(folder.parent / "made", 1)
            made.save(state, optimizer_state, write_drafter).rename(folder)

        try:
            write_folder(place, write, last=MANIFEST)
            for old in self._names()[self.keep :]:
                remove_folder(place_in(self.url, old))
        except CheckpointWriteError:
            raise
        except Exception as error:  # each store raises errors of its own
            raise CheckpointWriteError(
                f"{place}: the checkpoint could not be written: {error}. Earlier ones are as they "
                f"were"
            ) from error
        return place

    @property
    def place(self) -> str:
        """Their folder's URL."""
        return self.url

    def latest(self) -> Checkpoint | None:
        """The newest that is whole; see :func:`newest_whole`."""
        return newest_whole(self.paths())

    def paths(self) -> list[Location]:
        """All that are whole as far as their manifest says, the newest first; not checked."""
        names = [name for name in self._names() if is_file(f"{self.url}/{name}/{MANIFEST}")]
        return [place_in(self.url, name) for name in names]

    def _names(self) -> list[str]:
        return sorted(
            (name for name in names_in(self.url) if name.startswith(PREFIX)), reverse=True
        )


class _Room:
    """A folder on disk that goes when nobody holds this any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="lengthwise-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def read_remote_checkpoint(url: str) -> Checkpoint:
    """Copy a checkpoint out of a store and check it; the copy goes when nobody needs it.

    Raises:
        CheckpointError: it is not there, or damaged.
    """
    room = _Room()
    try:
        found = read_checkpoint(fetch(url, room.path / url.rstrip("/").rpartition("/")[2]))
    except CheckpointError as error:
        raise CheckpointError(f"{url}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{url}: cannot be read: {error}") from error
    return Checkpoint(found.path, found.state, url, room)
