"""An engine that is started again, is gone or falls silent: no verdict is lost, and no interrupt waits.

Containers and engine are real. Between client and engine stands a socket that can be cut or fall silent.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import Project
from tests.faults.disturbing import check_next, check_trouble, start_waiting
from trtmatrix.launchers.containers import LEAVE_SECONDS
from trtmatrix.launchers.docker_engine import find_address

ENGINE = find_address().removeprefix("unix://")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class Between:
    """A socket that passes on what client and engine say, until it is cut or falls silent."""

    def __init__(self, path: Path) -> None:
        self.path, self.silent, self.open = path, threading.Event(), list[socket.socket]()
        self.start()

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.path))
        self.listening.listen()
        threading.Thread(target=self._accept, args=(self.listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                ours, _ = listening.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(ENGINE)
            self.open += [ours, theirs]
            for one, other in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if not self.silent.is_set():
                    other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        for each in (self.listening, *self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.open.clear()
        self.path.unlink()


@pytest.fixture
def between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    between = Between(tmp_path / "engine")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{between.path}")
    yield between
    monkeypatch.undo()


def test_an_engine_that_does_not_come_back_ends_the_run(project: Project, between: Between) -> None:
    process = start_waiting(project)
    between.cut()
    done = project.done(process.wait(timeout=120))
    assert done.code == 3, done.told
    check_trouble(done)
    between.start()
    check_next(project)


def test_an_engine_that_falls_silent_delays_no_interrupt(project: Project, between: Between) -> None:
    process = start_waiting(project)
    between.silent.set()
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=LEAVE_SECONDS + 30) == 130
    between.cut()
    between.silent.clear()
    between.start()
    check_next(project)
