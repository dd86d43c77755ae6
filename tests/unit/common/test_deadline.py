"""What is asked before a run: all at once, within a time in all; who is waited for is told; whom pip asks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from trtmatrix.common import processes
from trtmatrix.common.processes import ask_all
from trtmatrix.images import preflight
from trtmatrix.launchers.references import Trouble


@contextlib.contextmanager
def dripping() -> Iterator[str]:
    """A server that sends a byte of a header every tenth of a second, to whoever asks; yields its address."""
    end = threading.Event()

    def drip(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not end.wait(0.1):
                client.sendall(b"x")

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            end.set()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.2)


def test_a_registry_that_drips_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with dripping() as host:
        started = time.monotonic()
        answers = preflight.ask_for([f"{host}/a:1", f"{host}/b:1"], (), seconds=0.8)
        assert time.monotonic() - started < 3
    assert [answer and answer.trouble for answer in answers.values()] == [Trouble.UNREACHABLE] * 2
    assert "it does not answer within 0.8 s" in str(answers[f"{host}/a:1"])
    assert capsys.readouterr().err == f"trtmatrix: asking {host} …\n"


def test_what_answers_in_time_is_kept_in_order_and_an_error_is_raised() -> None:
    told: list[list[str]] = []
    slow = threading.Event()
    names = ["late", *map(str, range(20))]
    found = ask_all(lambda n: slow.wait(5) if n == "late" else n, names, seconds=0.5, note=told.append)
    slow.set()
    assert list(found.items()) == [(name, name) for name in names[1:]]
    assert told == [["late"]]
    assert ask_all(str, [], seconds=1, note=told.append) == {}
    with pytest.raises(ZeroDivisionError):
        ask_all(lambda n: 1 // int(n), ["0"], seconds=5, note=told.append)
