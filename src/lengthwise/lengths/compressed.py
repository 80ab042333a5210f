"""Open plain, .gz and .zst files alike, line by line, knowing how far the reading is."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from lengthwise.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPRESSIONS = (".gz", ".zst")
_BUFFER_BYTES = 1 << 20


@contextmanager
def open_bytes(path: str) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Yield the decompressed file and a function that tells the stored bytes read so far.

    Raises:
        DataError: the compressed data is broken or cut off; names the file.
        MissingDependencyError: a .zst file and ``zstandard`` is not installed.
    """
    with Path(path).open("rb") as stored:
        try:
            yield _decompress(path, stored), stored.tell
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path}: the compressed data is broken: {error}") from error


def _decompress(path: str, stored: IO[bytes]) -> IO[bytes]:
    if path.endswith(".gz"):
        return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=stored)), _BUFFER_BYTES)
    if path.endswith(".zst"):
        return _zst(path, stored)
    return stored


def _zst(path: str, stored: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise MissingDependencyError(
            f"{path} needs the zstandard package: pip install 'lengthwise[zstd]'"
        ) from None

    class Checked(io.RawIOBase):
        """A .zst stream whose faults are our errors."""

        def __init__(self) -> None:
            self._frames = zstandard.ZstdDecompressor().stream_reader(
                stored, read_across_frames=True
            )

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
            try:
                return int(self._frames.readinto(buffer))
            except zstandard.ZstdError as error:
                raise DataError(f"{path}: the compressed data is broken: {error}") from error

    return io.BufferedReader(Checked(), _BUFFER_BYTES)
