"""A real HTTP server in a thread, with every way a download can go wrong."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """What the server does with one path. ``cuts`` are byte counts after which it drops the connection."""

    data: bytes = b""
    status: int = 200
    cuts: list[int] = field(default_factory=list)
    fail_first: int = 0  # answer 503 this often
    redirect: str = ""
    stall_after: int | None = None
    ranges: bool = True
    wrong_range: bool = False
    length: bool = True
    tag: str = '"v1"'
    requests: list[str] = field(default_factory=list)  # the Range header of each


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths: dict[str, Behaviour] = {}
        self.released = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that turns away in the middle is what these tests are about."""

    def url(self, path: str, **behaviour: object) -> str:
        self.paths[path] = Behaviour(**behaviour)  # type: ignore[arg-type]
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Tests stay quiet."""

    def do_GET(self) -> None:
        rule = self.server.paths.get(self.path, Behaviour(status=404))
        asked = self.headers.get("Range", "")
        rule.requests.append(asked)
        if rule.redirect:
            self.send_response(302)
            self.send_header("Location", rule.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if rule.fail_first > 0:
            rule.fail_first -= 1
            self.send_error(503)
            return
        if rule.status != 200:
            self.send_error(rule.status)
            return
        self._send(rule, asked)

    def _send(self, rule: Behaviour, asked: str) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", asked)
        unchanged = self.headers.get("If-Range") in (None, rule.tag)
        start = int(match[1]) if match and rule.ranges and unchanged else 0
        if start and start >= len(rule.data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(rule.data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            first = 0 if rule.wrong_range else start
            self.send_header("Content-Range", f"bytes {first}-{len(rule.data) - 1}/{len(rule.data)}")
        if rule.length:
            self.send_header("Content-Length", str(len(rule.data) - start))
        self.send_header("ETag", rule.tag)
        self.end_headers()
        body = rule.data[start:]
        if rule.cuts:
            self._cut(body[: rule.cuts.pop(0)])
        elif rule.stall_after is not None:
            self.wfile.write(body[: rule.stall_after])
            self.wfile.flush()
            self.server.released.wait(30)
        else:
            self.wfile.write(body)

    def _cut(self, body: bytes) -> None:
        self.wfile.write(body)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
