"""What is asked before a run: all at once, within a time in all; who is waited for is told; whom pip asks."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from trtmatrix.images import preflight, registry
from trtmatrix.images.registry import ask_registries
from trtmatrix.launchers.references import RegistryError, Trouble


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
    monkeypatch.setattr(registry, "PATIENCE", 0.2)


def test_a_registry_that_drips_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with dripping() as host:
        started = time.monotonic()
        answers = preflight.ask_for([f"{host}/a:1", f"{host}/b:1"], (), seconds=0.8)
        assert time.monotonic() - started < 3
    assert [answer and answer.trouble for answer in answers.values()] == [Trouble.UNREACHABLE] * 2
    assert "it does not answer within 0.8 s" in str(answers[f"{host}/a:1"])
    assert capsys.readouterr().err == f"trtmatrix: asking {host} …\n"


def test_what_answers_in_time_is_kept_in_order_and_an_error_is_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow = threading.Event()
    names = ["late.example/a:1", *(f"r{number}.example/a:1" for number in range(20))]
    found = ask_registries(lambda n: slow.wait(5) if n == names[0] else n, names, seconds=0.5)
    slow.set()
    late, *others = found.values()
    assert isinstance(late, RegistryError)
    assert others == names[1:] == list(found)[1:]
    assert capsys.readouterr().err == "trtmatrix: asking late.example …\n"
    assert ask_registries(str, [], seconds=1) == {}
    with pytest.raises(ZeroDivisionError):
        ask_registries(lambda n: 1 // len(n[20:]), ["r.example/a:1"], seconds=5)
