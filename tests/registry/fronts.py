"""What stands between a registry and who asks it: a front that spoils answers, and a proxy for TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOP = frozenset({"connection", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer. ``cut``: the connection ends after so many bytes of the body, whatever was announced."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None


Rule = Callable[[Asked], Reply | None]  # answers a request in the place of the registry, or leaves it to it
Change = Callable[[Asked, Reply], Reply]  # changes what the registry answered


class Front:
    """An HTTP server on loopback in front of a registry (port ``target``); ``asked`` is all that came.

    Set ``rule`` and ``change`` to spoil what comes back. Use it as a context manager.
    """

    def __init__(self, target: int = 0, tls: tuple[Path, Path] | None = None) -> None:
        """Name the registry behind it; without one, ``rule`` answers all. ``tls``: certificate and key."""
        self.target = target
        self.asked: list[Asked] = []
        self.rule: Rule = lambda _: None
        self.change: Change = lambda _, reply: reply
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Front:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, asked: Asked) -> Reply:
        """Return what is answered: by the rule, else what the registry says, changed."""
        self.asked.append(asked)
        return self.rule(asked) or self.change(asked, self._pass_on(asked))

    def _pass_on(self, asked: Asked) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.target, timeout=60)
        try:
            headers = {name: value for name, value in asked.headers.items() if name.lower() not in HOP}
            connection.request(asked.method, asked.path, body=asked.body, headers=headers)
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in HOP}
            return Reply(status=answer.status, headers=kept, body=answer.read())
        finally:
            connection.close()


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            named = {name: ", ".join(self.headers.get_all(name, [])) for name in self.headers}
            asked = Asked(method=self.command, path=self.path, headers=named, body=body)
            self.close_connection = True
            self._send(front.answer(asked))

        def _send(self, reply: Reply) -> None:
            self.send_response_only(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body[: reply.cut])

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
            """Say nothing."""

    return Handler


@contextlib.contextmanager
def tunnel(target: int) -> Iterator[tuple[str, list[str]]]:
    """Serve a proxy that leads each CONNECT to one port of loopback; yields its URL and who was asked for."""
    asked: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                near, _ = listening.accept()
                threading.Thread(target=_lead, args=(near, target, asked), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _lead(near: socket.socket, target: int, asked: list[str]) -> None:
    with near, contextlib.suppress(OSError):
        head = b""
        while b"\r\n\r\n" not in head:
            head += near.recv(4096)
        asked.append(head.split()[1].decode())
        with socket.create_connection(("127.0.0.1", target)) as far:
            near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join(timeout=10)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
