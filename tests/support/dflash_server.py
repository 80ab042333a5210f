"""A small HTTP server in a thread that speaks as much of the OpenAI protocol as tests need."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Served:
    """What was asked, and where to ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0


@contextmanager
def serving(reply: Callable[[int, dict[str, Any]], tuple[int, Any]]) -> Iterator[Served]:
    """Serve ``reply(number of the request, body) -> (status, body or bytes)`` on a free port.

    A status below 0 closes the connection without a word.
    """
    lock = threading.Lock()
    busy = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(served.requests)
                served.requests.append(body)
                served.paths.append(self.path)
                served.headers.append(dict(self.headers))
                busy[0] += 1
                served.most_at_once = max(served.most_at_once, busy[0])
            try:
                status, answer = reply(number, body)
            finally:
                with lock:
                    busy[0] -= 1
            if status < 0:
                return
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
            except ConnectionError:
                return  # the client had enough of waiting

        def log_message(self, *_what: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def completion(text: str, reason: str = "stop", **more: Any) -> dict[str, Any]:
    """A reply of /v1/completions."""
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}


def chat(content: str | None, reason: str = "stop", **more: Any) -> dict[str, Any]:
    """A reply of /v1/chat/completions."""
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
