"""What is asked before a run: all at once, within a time in all; who is waited for is told; whom pip asks."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtmatrix.common import deadline
from trtmatrix.common.deadline import ask_all
from trtmatrix.images import preflight
from trtmatrix.launchers.references import Trouble
from trtmatrix.launchers.wheels import DEFAULT_INDEX, pip_index


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
    monkeypatch.setattr(deadline, "PATIENCE", 0.2)


def test_a_registry_that_drips_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with dripping() as host:
        started = time.monotonic()
        answers = preflight.ask_registries([f"{host}/a:1", f"{host}/b:1"], (), seconds=0.8)
        assert time.monotonic() - started < 3
    assert [answer.trouble for answer in answers.values()] == [Trouble.UNREACHABLE] * 2
    assert "it does not answer within 1 s" in answers[f"{host}/a:1"].words
    assert capsys.readouterr().err == f"trtmatrix: asking {host} …\n"


def test_an_index_that_drips_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with dripping() as host:
        found = preflight.ask_indexes([f"http://{host}/simple"], seconds=0.8)
    assert found == {f"http://{host}/simple": "it does not answer within 1 s"}
    assert "asking 127.0.0.1 …" in capsys.readouterr().err


def test_the_index_that_pip_is_set_to_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:1/simple")
    assert preflight.ask_indexes([""]) == {"": "it does not answer (127.0.0.1): ConnectionError"}
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert preflight.ask_indexes([""]) == {}


@pytest.mark.parametrize(
    ("text", "environment", "index"),
    [
        ("", {}, DEFAULT_INDEX),
        ("[global]\nindex-url = http://a/simple\n", {}, "http://a/simple"),
        ("[global]\nindex-url = http://a/simple\n", {"PIP_INDEX_URL": "http://b"}, "http://b"),
        ("[global]\nextra-index-url = http://a\n", {}, ""),
        ("[global]\nproxy = http://a\n", {}, ""),
        ("", {"PIP_NO_INDEX": "1"}, ""),
        ("", {"PIP_FIND_LINKS": "/wheels"}, ""),
    ],
)
def test_whom_pip_asks(text: str, environment: dict[str, str], index: str, tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(text)
    assert pip_index({**environment, "XDG_CONFIG_HOME": str(tmp_path)}) == index


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


def test_who_asks_nobody_imports_no_client() -> None:
    code = "import sys, trtmatrix.images.preflight as p; p.ask_registries([], ())\n"
    code += "print('requests' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
