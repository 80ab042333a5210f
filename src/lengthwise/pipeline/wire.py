"""The two ends of the connection between the coordinator and a child.

The coordinator must never wait for one child, so its end keeps what a child does not take yet and
gives out only whole messages, however slowly they come. A child has nothing else to wait for.
"""

from __future__ import annotations

import pickle
import struct
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socket import socket

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 18


class HangUpError(Exception):
    """The other end is gone."""


def _framed(message: object) -> bytes:
    """A message as bytes, its length first; pickled by value."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


class Wire:
    """A child's end: sends and receives whole messages; any thread may send, one receives.

    Messages come from our own processes, over a connection that nobody else can open.

    Args:
        end: of a pair of connected sockets.
    """

    def __init__(self, end: socket) -> None:
        """Take the end over."""
        end.setblocking(True)
        self._end = end
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message; waits until it is on its way.

        Raises:
            HangUpError: the coordinator is gone.
        """
        data = _framed(message)
        try:
            with self._lock:
                self._end.sendall(data)
        except OSError as error:
            raise HangUpError from error

    def receive(self) -> Any:
        """The next message; waits for it.

        Raises:
            HangUpError: the coordinator is gone.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return pickle.loads(self._exactly(length))  # noqa: S301 - from our own process

    def _exactly(self, count: int) -> bytearray:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._end.recv(min(_CHUNK, count - len(data)))
            except OSError as error:
                raise HangUpError from error
            if not piece:
                raise HangUpError
            data += piece
        return data


class Line:
    """The coordinator's end: nothing here ever waits.

    Args:
        end: of a pair of connected sockets.

    Attributes:
        ended: whether the child is gone; what it said before can still be heard.
    """

    def __init__(self, end: socket) -> None:
        """Take the end over."""
        end.setblocking(False)
        self._end = end
        self._in = bytearray()
        self._out = bytearray()
        self.ended = False

    def fileno(self) -> int:
        """To be waited on."""
        return self._end.fileno()

    @property
    def unsent(self) -> int:
        """Bytes that the child has not taken yet."""
        return len(self._out)

    def send(self, message: object) -> None:
        """Send a message, now or as soon as the child takes it; to a child that is gone, never."""
        self._out += _framed(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as the child takes."""
        try:
            while self._out and not self.ended:
                del self._out[: self._end.send(memoryview(self._out)[:_CHUNK].tobytes())]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # that it is gone is seen where it is heard

    def received(self) -> list[Any]:
        """All messages that have come whole."""
        self._read()
        messages = []
        while len(self._in) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._in)
            end = _LENGTH.size + length
            if len(self._in) < end:
                break
            messages.append(pickle.loads(self._in[_LENGTH.size : end]))  # noqa: S301 - our own
            del self._in[:end]
        return messages

    def _read(self) -> None:
        try:
            while piece := self._end.recv(_CHUNK):
                self._in += piece
        except BlockingIOError:
            return
        except OSError:
            pass
        self.ended = True

    def close(self) -> None:
        """Close this end, which tells the child to leave."""
        self._end.close()
