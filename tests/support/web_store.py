"""A folder behind HTTP, with ranges: the plainest object store that several processes can read."""

import functools
import re
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    """Serves files whole or in part, and notes what was asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = self.translate_path(self.path)
        if wanted is None:
            self.server.reads.append((self.path, None))
            super().do_GET()
            return
        first, last = map(int, wanted.groups())
        with open(path, "rb") as file:  # noqa: PTH123
            size = file.seek(0, 2)
            file.seek(first)
            data = file.read(last + 1 - first)
        self.server.reads.append((self.path, (first, first + len(data))))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(data) - 1}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *args):
        pass


@contextmanager
def web_store(folder):
    """Serve a folder; yields the server, its ``url`` and ``reads``: (path, range or None)."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))
    )
    server.daemon_threads = True
    server.reads = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
