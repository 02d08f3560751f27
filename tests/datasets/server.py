"""Server of files on loopback that can misbehave like those on the network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Files:
    """Content by path, what the server does wrong, and what it was asked for."""

    content: dict[str, bytes]
    address: str = ""
    breaks_after: list[int | None] = field(default_factory=list)
    """Of each answer in turn, the number of bytes after which the connection ends; None: all."""
    failures: list[int] = field(default_factory=list)
    """Status of the first answers."""
    says_length: bool = True
    asked: list[str] = field(default_factory=list)
    """Path of each request."""


def handler(files: Files) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            files.asked.append(self.path)
            if files.failures:
                self.send_error(files.failures.pop(0))
                return
            content = files.content.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            if files.says_length:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            end = files.breaks_after.pop(0) if files.breaks_after else None
            self.wfile.write(content[:end])
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def serving(files: Files) -> Iterator[Files]:
    """Serve until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(files))
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    files.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
