"""Trouble that a whole run meets gives no verdict, and the next run shows what an undisturbed one would.

Containers and engine are real. Between client and engine stands a socket that can be cut or fall silent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import Done, Project, end, wait_until
from tests.faults.disturbing import MODULE, let_go, letting_go, on_faults, waiting, words_on
from trtmatrix.launchers.containers import LEAVE_SECONDS
from trtmatrix.launchers.docker_engine import find_address

RUN: str = MODULE.RUN
CASES = tuple(role % RUN for role in MODULE.ROLES)
MEGABYTES = 64
ENGINE = find_address().removeprefix("unix://")


def verdicts(done: Done) -> list[tuple[str, str | None, str]]:
    return [(cell["verdict"], cell["cause"], cell["reason"]) for cell in map(done.cell, CASES)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str | None, str]]:
    project = Project(tmp_path_factory.mktemp("undisturbed"))
    let_go(project, RUN)
    return verdicts(on_faults(project, RUN))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project whose cache and results are disks of their own, small ones."""
    project = Project(tmp_path)
    disks = (project.cache, project.results)
    for disk in disks:
        disk.mkdir()
        mount(disk, f"size={MEGABYTES}m")
    yield project
    for disk in disks:
        subprocess.run(["/bin/umount", "--lazy", str(disk)], check=True)


def mount(disk: Path, options: str) -> None:
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)


def fill(disk: Path, *, room: int) -> None:
    """Leave so many bytes of a disk, which others may be writing to."""
    with (disk / "filled").open("wb") as file:
        while (left := os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - room) > 0:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, left)


def start_waiting(project: Project) -> subprocess.Popen[str]:
    """Start a run, and return once its second cell waits."""
    process = project.start(*words_on(RUN))
    wait_until(lambda: RUN in waiting(project), 30, "the start of the cell that waits")
    return process


@pytest.mark.parametrize("mask", ["777", "077"])
def test_a_umask_changes_nothing(mask: str, project: Project, undisturbed: object) -> None:
    let_go(project, RUN)
    done = project.run(*words_on(RUN), prefix=("sh", "-c", f'umask {mask}; exec "$@"', "sh"))
    assert (done.code, verdicts(done)) == (0, undisturbed)
    assert verdicts(on_faults(project, RUN)) == undisturbed


READERS = {
    "output closed": 'exec "$@" >&-', "errors closed": 'exec "$@" 2>&-', "both closed": 'exec "$@" >&- 2>&-',
    "reader of output gone": '{ "$@"; echo $? >&3; } 3>code | true; exit $(cat code)',
    "reader of errors gone": '{ "$@" 2>&1 >/dev/null; echo $? >&3; } 3>code | true; exit $(cat code)',
}  # fmt: skip


@pytest.mark.parametrize("how", READERS)
def test_who_reads_changes_nothing(how: str, project: Project, undisturbed: object) -> None:
    let_go(project, RUN)
    line = READERS[how].replace("code", str(project.folder / "code"))
    process = project.start(*words_on(RUN), prefix=("bash", "-c", line, "bash"))
    assert process.wait(timeout=60) == 0
    following = on_faults(project, RUN)
    assert verdicts(following) == undisturbed
    assert not any(cell["executed"] for cell in following.data["cells"])


@pytest.mark.parametrize("moment", ["preparing", "running"])
def test_a_client_that_is_killed_loses_no_verdict(moment: str, project: Project, undisturbed: object) -> None:
    if moment == "running":
        process = start_waiting(project)
    else:
        process = project.start(*words_on(RUN))
        wait_until((project.cache / "cases").exists, 30, "the first prepared case")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    let_go(project, RUN)
    following = on_faults(project, RUN)
    assert (following.code, verdicts(following)) == (0, undisturbed), following.told
    assert project.jobs() == []
    end(process)


def read_only(disk: Path) -> Callable[[bool], None]:
    def turn(on: bool) -> None:
        subprocess.run(["/bin/mount", "-o", f"remount,{'ro' if on else 'rw'}", str(disk)], check=True)

    return turn


def full(disk: Path, room: int) -> Callable[[bool], None]:
    def turn(on: bool) -> None:
        fill(disk, room=room) if on else (disk / "filled").unlink()

    return turn


DISKS: dict[str, Callable[[Project], Callable[[bool], None]]] = {
    "cache full": lambda project: full(project.cache, 0),
    "results full": lambda project: full(project.results, 0),
    "cache read-only": lambda project: read_only(project.cache),
    "results read-only": lambda project: read_only(project.results),
}


@pytest.mark.parametrize("trouble", DISKS)
def test_on_a_disk_that_takes_nothing_no_run_gives_a_verdict(
    trouble: str, project: Project, undisturbed: object
) -> None:
    turn = DISKS[trouble](project)
    let_go(project, RUN)
    turn(True)
    done = on_faults(project, RUN)
    assert done.code in {2, 3}, done.told
    check_trouble(done)
    turn(False)
    check_next(project, undisturbed)


@pytest.mark.parametrize(("disk", "room"), [("cache", 0), ("cache", 1 << 20), ("results", 0)])
def test_a_disk_that_fills_up_while_a_cell_runs_is_no_verdict(
    disk: str, room: int, project: Project, undisturbed: object
) -> None:
    process, turn = start_waiting(project), full(getattr(project, disk), room)
    with letting_go(project, RUN, "[Errno 28] No space left on device"):
        turn(True)
    done = project.done(process.wait(timeout=60))
    assert done.code == 3, done.told
    check_trouble(done)
    turn(False)
    check_next(project, undisturbed)


def check_trouble(done: Done) -> None:
    """Whatever has a verdict has the right one, or none for trouble of this host."""
    assert "Traceback" not in done.told
    for cell in done.data.get("cells", ()):
        right = "FAIL" if "wrong" in cell["case"] else "PASS"
        assert (cell["verdict"], cell["cause"]) in {(right, None), ("NO VERDICT", "launcher failed")}


def check_next(project: Project, undisturbed: object) -> None:
    """The next run shows what an undisturbed one does."""
    let_go(project, RUN)
    following = on_faults(project, RUN)
    assert (following.code, verdicts(following)) == (0, undisturbed), following.told
    assert project.jobs() == []


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


def test_after_a_restart_of_the_engine_the_rest_is_run(
    project: Project, undisturbed: object, between: Between
) -> None:
    process = start_waiting(project)
    between.cut()
    time.sleep(1)
    between.start()
    let_go(project, RUN)
    done = project.done(process.wait(timeout=60))
    assert done.code == 3, done.told
    check_trouble(done)
    assert done.cell(CASES[2])["verdict"] == "FAIL"
    check_next(project, undisturbed)


def test_an_engine_that_does_not_come_back_ends_the_run(
    project: Project, undisturbed: object, between: Between
) -> None:
    process = start_waiting(project)
    between.cut()
    done = project.done(process.wait(timeout=120))
    assert done.code == 3, done.told
    check_trouble(done)
    between.start()
    check_next(project, undisturbed)


def test_an_engine_that_falls_silent_delays_no_interrupt(
    project: Project, undisturbed: object, between: Between
) -> None:
    process = start_waiting(project)
    between.silent.set()
    time.sleep(1)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=LEAVE_SECONDS + 10) == 130
    between.cut()
    between.silent.clear()
    between.start()
    check_next(project, undisturbed)
