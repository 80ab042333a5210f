"""Folders that a run writes for others to read: on disk, or in a store that is named by a URL.

A store (``s3://``, ``gs://``, any that fsspec knows) has no rename. A folder is therefore made on
disk first and sent file by file, the one that says that it is whole at the end.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lengthwise.errors import MissingDependencyError
from lengthwise.lengths.storage import is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Location: TypeAlias = "Path | str"
"""A folder on disk, or the URL of one in a store."""


def place_in(parent: Location, *names: str) -> Location:
    """A folder below another."""
    if is_url(str(parent)):
        return "/".join([str(parent).rstrip("/"), *names])
    return Path(parent, *names)


def store_and_path(url: str) -> tuple[Any, str]:
    """The file system of a URL, fsspec's, and the path in it.

    Raises:
        MissingDependencyError: fsspec, or its package for this kind of store, is not installed.
    """
    try:
        from fsspec.core import url_to_fs

        found, path = url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(
            f"{url} needs fsspec and its package for this kind of store: pip install "
            f"'lengthwise[ray]': {error}"
        ) from error
    return found, str(path).rstrip("/")


def write_folder(
    place: Location, write: Callable[[Path], object], *, last: str | None = None
) -> None:
    """Make a folder in place of what was there.

    Args:
        place: of it.
        write: writes it to a path on disk where there is nothing yet.
        last: the file that is sent to a store after all others.

    Raises:
        OSError: as when the disk is full.
    """
    if not is_url(str(place)):
        shutil.rmtree(place, ignore_errors=True)
        write(Path(place))
        return
    with tempfile.TemporaryDirectory(prefix="lengthwise-") as room:
        folder = Path(room, "folder")
        write(folder)
        remove_folder(place)
        system, path = store_and_path(str(place))
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        for file in sorted(files, key=lambda file: file == folder / (last or "")):
            target = f"{path}/{file.relative_to(folder).as_posix()}"
            system.makedirs(target.rpartition("/")[0], exist_ok=True)
            system.put_file(str(file), target)


@contextmanager
def on_disk(place: Location) -> Iterator[Path]:
    """A folder on disk with the same files; of a URL a copy, which is removed afterwards.

    Raises:
        OSError: it is not there, or cannot be reached.
    """
    if not is_url(str(place)):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="lengthwise-") as room:
        yield fetch(str(place), Path(room))


def fetch(url: str, folder: Path) -> Path:
    """Copy a folder out of a store into one on disk, which may exist."""
    system, path = store_and_path(url)
    system.invalidate_cache()  # others may have written it just now
    for found in system.find(path):
        target = folder / found.removeprefix(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(found, str(target))
    return folder


def names_in(url: str) -> list[str]:
    """Names of files and folders right below a URL; none where there is nothing."""
    system, path = store_and_path(url)
    system.invalidate_cache()
    try:
        found = system.ls(path, detail=False)
    except FileNotFoundError:
        return []
    return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)


def is_file(url: str) -> bool:
    """Whether there is such a file in a store."""
    system, path = store_and_path(url)
    return bool(system.isfile(path))


def remove_folder(place: Location) -> None:
    """Remove a folder, if it is there."""
    if not is_url(str(place)):
        shutil.rmtree(place, ignore_errors=True)
        return
    system, path = store_and_path(str(place))
    system.invalidate_cache()
    if system.exists(path):
        system.rm(path, recursive=True)
