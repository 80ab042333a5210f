"""Files behind URLs: object stores and web servers, by pyarrow's file systems or fsspec's.

pyarrow's own are used for what they know (``s3://``, ``gs://``, ``hdfs://``, ``abfs://``), fsspec's
for everything else (``hf://``, ``https://``, ``memory://`` ...). ``file://`` is a local path.
Credentials are found as these packages find them: in the environment or their config files.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lengthwise.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?\[]")
_OF_PYARROW = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_BUFFER_BYTES = 1 << 20


def is_url(path: str) -> bool:
    """Whether a path names a place that is no local file."""
    return _URL.match(path) is not None


def local_path(source: str) -> str:
    """A ``file://`` URL as a path; anything else as it is."""
    if not source.lower().startswith("file://"):
        return source
    parts = urlsplit(source)
    return unquote(parts.path)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells whether a file is still the same.

    Attributes:
        size: in bytes; None where the store does not say.
        modified: nanoseconds since 1970; None where the store does not say.
    """

    size: int | None
    modified: int | None


def identity_of(path: str) -> FileIdentity:
    """Size and date of a file or a directory that counts as one.

    Raises:
        DataError: it is not there.
    """
    if not is_url(path):
        status = Path(path).stat()
        return FileIdentity(status.st_size, status.st_mtime_ns)
    info = _Store.of(path).info(path)
    if info.type.name == "NotFound":
        raise DataError(f"there is no file {path!r}")
    return FileIdentity(info.size, info.mtime_ns)


def open_stream(path: str) -> IO[bytes]:
    """A file to be read from start to end."""
    if not is_url(path):
        return Path(path).open("rb")
    store = _Store.of(path)
    stream = _Stream(store.system.open_input_stream(store.inner(path)))
    return io.BufferedReader(stream, _BUFFER_BYTES)


class _Stream(io.RawIOBase):
    """A stream of pyarrow's, which cannot tell where it is."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._source.close()
        super().close()


def open_random(path: str) -> Any:
    """A file to be read here and there, as pyarrow reads it; nothing is read ahead."""
    if not is_url(path):
        from lengthwise.lengths.arrow import require_pyarrow

        return require_pyarrow().OSFile(path, "rb")
    store = _Store.of(path)
    return store.open_random(store.inner(path))


def expand_url(source: str) -> list[tuple[str, bool]]:
    """The files a URL names, and whether each was named (True) or found in a directory.

    Args:
        source: of a file, or of a directory (``s3://bucket/corpus``, ``https://host/corpus/``), or
            with wildcards.

    Raises:
        DataError: nothing is there.
    """
    store = _Store.of(source)
    fixed, pattern = _split(source)
    if not pattern:
        if not source.endswith("/") and store.info(source).type.name == "File":
            return [(source, True)]
        found = [(url, False) for url, _ in store.files(source.rstrip("/"))]
        if not found:
            raise DataError(f"there is no file or directory {source!r}")
        return found
    found = [
        (url, True) for url, inside in store.files(fixed) if _matches(inside.split("/"), pattern)
    ]
    if not found:
        raise DataError(f"no file matches {source!r}")
    return found


def _split(source: str) -> tuple[str, list[str]]:
    """The part of a URL before its first wildcard, and the parts from there on."""
    head, *parts = source.rstrip("/").partition("://")[2].split("/")
    scheme = source.partition("://")[0]
    place = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join([f"{scheme}://{head}", *parts[:place]]), parts[place:]


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """As ``pathlib``'s globs: ``*`` stays within a name, ``**`` is any number of directories."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skip:], pattern[1:]) for skip in range(len(parts) + 1))
    return (
        bool(parts)
        and not (parts[0].startswith(".") and not pattern[0].startswith("."))
        and fnmatchcase(parts[0], pattern[0])
        and _matches(parts[1:], pattern[1:])
    )


@dataclass(frozen=True, slots=True)
class _Store:
    """A file system, and how its paths and URLs belong together.

    Attributes:
        system: pyarrow's.
        of_fsspec: the one of fsspec behind it; None for pyarrow's own.
        prefix: what stands before a path in its URL.
    """

    system: Any
    of_fsspec: Any
    prefix: str

    @classmethod
    def of(cls, url: str) -> _Store:
        """The store of a URL, kept for the next one.

        Raises:
            DataError: no such kind of URL, or a store that cannot be reached.
            MissingDependencyError: a package for it is missing.
        """
        scheme, _, rest = url.partition("://")
        return _store(scheme.lower(), rest.partition("/")[0])

    def inner(self, url: str) -> str:
        """The path of a URL in the store."""
        return url.removeprefix(self.prefix)

    def info(self, url: str) -> Any:
        """What the store says about it: a ``pyarrow.fs.FileInfo``."""
        try:
            return self.system.get_file_info(self.inner(url))
        except OSError as error:
            raise DataError(f"{url} cannot be reached: {error}") from error

    def files(self, directory: str) -> Iterator[tuple[str, str]]:
        """All files below a directory, sorted by name: URL, and path from the directory."""
        from pyarrow.fs import FileSelector

        base = self.inner(directory)
        selector = FileSelector(base, recursive=True, allow_not_found=True)
        try:
            found = self.system.get_file_info(selector)
        except OSError as error:
            raise DataError(f"{directory} cannot be reached: {error}") from error
        paths = {
            info.path.removeprefix("/") if not base.startswith("/") else info.path
            for info in found
            if info.type.name == "File"
        }
        start = len(base.rstrip("/")) + 1
        return ((self.prefix + path, path[start:]) for path in sorted(paths))

    def open_random(self, path: str) -> Any:
        """A file for ranges: fsspec's own reading ahead is switched off."""
        if self.of_fsspec is None:
            return self.system.open_input_file(path)
        import pyarrow as pa

        return pa.PythonFile(self.of_fsspec.open(path, "rb", cache_type="none"), mode="r")


@lru_cache(maxsize=64)
def _store(scheme: str, host: str) -> _Store:
    from lengthwise.lengths.arrow import require_pyarrow

    require_pyarrow()
    from pyarrow import fs

    root = f"{scheme}://{host}"
    if scheme in _OF_PYARROW:
        try:
            system, base = fs.FileSystem.from_uri(root)
        except (OSError, ValueError) as error:
            raise DataError(f"{root} cannot be opened: {error}") from error
        return _Store(system, None, root.removesuffix(base.strip("/")))
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingDependencyError(
            f"{scheme}:// is read through fsspec: pip install 'lengthwise[ray]' or fsspec"
        ) from None
    try:
        found, base = url_to_fs(f"{root}/")
    except ImportError as error:
        raise MissingDependencyError(f"{scheme}://: {error}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{root} cannot be opened: {error}") from error
    prefix = "" if base.startswith(f"{scheme}://") else _prefix(scheme, host, base)
    return _Store(fs.PyFileSystem(fs.FSSpecHandler(found)), found, prefix)


def _prefix(scheme: str, host: str, base: str) -> str:
    """What fsspec cuts off a URL: all but the host, or the host too."""
    return f"{scheme}://" if host and host in base else f"{scheme}://{host}"
