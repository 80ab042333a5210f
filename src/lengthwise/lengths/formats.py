"""Which file is read by which module; files named by paths, globs and directories."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol, cast

from lengthwise.errors import DataError
from lengthwise.lengths.columns import choose_column
from lengthwise.lengths.compressed import COMPRESSIONS
from lengthwise.lengths.manifest import is_shards
from lengthwise.lengths.storage import expand_url, is_url, local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.lengths.columns import Field
    from lengthwise.lengths.rows import Part
    from lengthwise.lengths.tokens import CountTokens

SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".arrows": "arrow",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "delimited", ".tsv": "delimited",
    ".npy": "npy", ".npz": "npy",
    ".txt": "text", ".text": "text",
}  # fmt: skip
"""Suffix -> the module of this package that reads it."""
COMPRESSIBLE = frozenset({"jsonl", "delimited", "text"})
_LOCAL_ONLY = frozenset({"npy"})
HF_MARKERS = ("state.json", "dataset_dict.json")
"""A directory with one of these was written by datasets' save_to_disk."""
_BESIDE_DATA = frozenset({"card.json", "dataset_info.json", "dataset_infos.json"})
"""Files that describe the data files they stand beside."""

_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What every reader needs to know.

    Attributes:
        stop_at_bad: a row without a length ends the scan with an error.
        count_tokens: counts the tokens of texts; None without a tokenizer.
    """

    stop_at_bad: bool
    count_tokens: CountTokens | None


class Format(Protocol):
    """What a module that reads files of one format offers."""

    def fields(self, path: str) -> list[Field] | None:
        """The columns of a file; None where there is nothing to choose."""

    def parts(self, path: str, field: Field | None, options: ReadOptions) -> list[Part]:
        """The shares of a file that can be read at the same time, in order."""


def format_name(path: str) -> str | None:
    """The module that reads a file, by its suffix; None if the suffix is unknown."""
    name = PurePath(path.lower())
    if name.suffix in COMPRESSIONS:
        module = SUFFIXES.get(PurePath(name.stem).suffix)
        return module if module in COMPRESSIBLE else None
    return SUFFIXES.get(name.suffix)


def format_of(path: str) -> Format:
    """The module that reads a file.

    Raises:
        DataError: no module reads files with this suffix.
    """
    name = format_name(path) if is_url(path) else _local_format(path)
    if name in _LOCAL_ONLY and is_url(path):
        raise DataError(f"{path}: files of this kind are read from local disks; download it first")
    if name is None:
        raise DataError(
            f"{path}: files of this kind are not read; these are: {', '.join(SUFFIXES)} "
            f"(text formats also as .gz and .zst)"
        )
    return cast("Format", import_module(f"lengthwise.lengths.{name}"))


def _local_format(path: str) -> str | None:
    if not Path(path).is_dir():
        return format_name(path)
    return "shards" if is_shards(Path(path)) else "hf"


def field_of(files: Sequence[str], column: str | None, options: ReadOptions) -> Field | None:
    """The column to take lengths from, judged by the first file; None where there is no choice.

    Raises:
        ColumnError: no such column, none found or several.
        DataError: a file that cannot be read.
    """
    fields = format_of(files[0]).fields(files[0])
    if fields is None:
        return None
    tokenized = options.count_tokens is not None
    return choose_column(fields, column, has_tokenizer=tokenized, where=files[0])


def is_path(item: object) -> bool:
    """Whether a value names files: a path object, or text that is a path, a glob or looks so."""
    if isinstance(item, os.PathLike):
        return True
    if not isinstance(item, str) or not item or len(item) > 4096 or "\n" in item or "\0" in item:
        return False
    if is_url(item):
        return not re.search(r"\s", item)
    if format_name(item) is not None or _exists(Path(item)):
        return True
    return not re.search(r"\s", item) and bool(_matches(item))


def expand(sources: Sequence[str]) -> list[str]:
    """The files that paths, globs and directories name, in order; each part sorted by name.

    Raises:
        DataError: a path that is not there, a glob without a match, an empty or mixed directory.
    """
    files: list[str] = []
    for source in sources:
        files += _expand_one(source)
    return files


def _expand_one(source: str) -> list[str]:
    source = local_path(source)
    if is_url(source):
        return _expand_url(source)
    path = Path(source).expanduser()
    if _exists(path):
        return _directory_files(path) if path.is_dir() else [str(path)]
    if _MAGIC.search(source):
        matches = _matches(str(path))
        if not matches:
            raise DataError(f"no file matches {source!r}")
        return [file for match in matches for file in _expand_one(match)]
    raise DataError(f"there is no file or directory {source!r}")


def _expand_url(source: str) -> list[str]:
    found = expand_url(source)
    if found[0][1]:
        return [url for url, _ in found]
    inside = [(url, PurePath(url.removeprefix(source.rstrip("/") + "/"))) for url, _ in found]
    return _of_one_kind(source.rstrip("/"), [url for url, path in inside if _is_data(path)])


def _matches(pattern: str) -> list[str]:
    """The files and directories a glob names, sorted; ``*`` matches no hidden name."""
    parts = PurePath(pattern).parts
    fixed = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), None)
    if fixed is None:
        return []
    root = Path(*parts[:fixed])
    try:
        found = list(root.glob(str(PurePath(*parts[fixed:]))))
    except (ValueError, OSError):  # no glob, such as "2**3"
        return []
    return sorted(str(path) for path in found if not _is_hidden(path.relative_to(root)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no path at all, such as a long text
        return False


def _directory_files(path: Path) -> list[str]:
    if any((path / marker).is_file() for marker in HF_MARKERS):
        return [str(path)]
    if is_shards(path):
        return [str(path)]
    found = [file for file in path.rglob("*") if file.is_file()]
    return _of_one_kind(str(path), [str(f) for f in found if _is_data(f.relative_to(path))])


def _of_one_kind(path: str, found: Sequence[str]) -> list[str]:
    files = sorted(file for file in found if format_name(file))
    if not files:
        raise DataError(f"{path} holds no file of a known kind ({', '.join(SUFFIXES)})")
    kinds = sorted({str(format_name(file)) for file in files})
    if len(kinds) > 1:
        raise DataError(
            f"{path} holds files of several kinds ({', '.join(kinds)}); name the wanted ones with "
            f"a glob such as {f'{path}/**/*.parquet'!r}"
        )
    return files


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _is_data(relative: PurePath) -> bool:
    """Hidden files, those set apart by an underscore (``_SUCCESS``) and cards are no data."""
    if relative.name in _BESIDE_DATA:
        return False
    return not any(part.startswith((".", "_")) for part in relative.parts)
