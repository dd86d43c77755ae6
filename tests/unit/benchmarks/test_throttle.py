"""The slow line of the benchmark: as slow as it says, shared by all connections, and it changes nothing."""

from __future__ import annotations

import http.server
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.throttle import Throttle

BODY = bytes(range(256)) * 1600  # 400 kB
RATE = 400_000


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield httpd.server_address[1]
        httpd.shutdown()


def fetch(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_line_is_shared_and_changes_nothing(server: int, at_once: int) -> None:
    with Throttle(server, RATE * at_once) as line, ThreadPoolExecutor(at_once) as pool:
        started = time.monotonic()
        bodies = list(pool.map(fetch, [line.port] * at_once))
        took = time.monotonic() - started
    assert set(bodies) == {BODY}
    assert 0.95 < took < 3, "a second, whether one asks or three share a line of three times the rate"
    assert at_once * len(BODY) < line.passed < at_once * (len(BODY) + 1000)
