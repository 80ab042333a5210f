"""One end of a pipe between the coordinator and a child."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Wire:
    """Sends and receives whole messages; any thread may send, one receives.

    Messages are pickled by value. They come from our own processes over a pipe that nobody else can
    open.

    Args:
        pipe: one end.
    """

    def __init__(self, pipe: Connection[Any, Any]) -> None:
        """Take the end over."""
        self.pipe = pipe
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            OSError: the other end is gone.
        """
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self.pipe.send_bytes(data)

    def receive(self) -> Any:
        """The next message; waits for it.

        Raises:
            EOFError: the other end is gone.
        """
        return pickle.loads(self.pipe.recv_bytes())  # noqa: S301 - from our own process

    def close(self) -> None:
        """Close this end."""
        self.pipe.close()
