"""An HTTP server on loopback that answers what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs


@attrs.define
class Small:
    """Where it listens, what it answers by path (a status and a JSON value, or bytes), and what it was asked."""

    base_url: str
    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, str, Mapping[str, str], bytes]] = attrs.field(factory=list)
    hold: threading.Event = attrs.field(factory=threading.Event)


@contextmanager
def small_server(answers: dict[str, tuple[int, Any]]) -> Iterator[Small]:
    """Listen while inside. An answer of None waits until the end."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            small.asked.append((self.command, self.path, dict(self.headers), body))
            answer = small.answers.get(self.path, (404, {"error": "no such place"}))
            if answer is None:
                small.hold.wait(30)
                return
            status, tree = answer
            content = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
            self.send_response(status)
            if status in {301, 302, 307}:
                self.send_header("Location", str(tree))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    small = Small(f"http://127.0.0.1:{server.server_address[1]}", answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield small
    finally:
        small.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
