"""Open plain, .gz and .zst files alike, line by line, knowing how far the reading is."""

from __future__ import annotations

import gzip
import io
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from lengthwise.errors import DataError, MissingDependencyError
from lengthwise.lengths.storage import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPRESSIONS = (".gz", ".zst")
_BUFFER_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


@contextmanager
def open_bytes(path: str) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """Yield the decompressed file and a function that tells the stored bytes read so far.

    Raises:
        DataError: the compressed data is broken or cut off; names the file.
        MissingDependencyError: a .zst file and ``zstandard`` is not installed.
    """
    with open_stream(path) as stored:
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
    return io.BufferedReader(_ZstFrames(path, stored, zstandard), _BUFFER_BYTES)


class _ZstFrames(io.RawIOBase):
    """Decompresses zstandard frames one after the other.

    The package's own stream reader takes a file that is cut off inside a frame for a complete
    one; rows would vanish silently.
    """

    def __init__(self, path: str, stored: IO[bytes], zstandard: Any) -> None:
        self._path = path
        self._stored = stored
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._compressed or self._stored.read(_CHUNK_BYTES)
            self._compressed = b""
            if not chunk:
                if self._frame is not None:
                    raise DataError(f"{self._path}: the compressed data is cut off")
                return 0
            self._decompress(chunk)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _decompress(self, chunk: bytes) -> None:
        if self._frame is None:
            self._frame = self._decompressor.decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(chunk))
        except self._error as error:
            raise DataError(f"{self._path}: the compressed data is broken: {error}") from error
        if self._frame.eof:
            self._compressed, self._frame = self._frame.unused_data, None
