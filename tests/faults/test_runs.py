"""Trouble that a whole run meets: no verdict comes of it, and the next run shows what an undisturbed one would.

The containers and the engine are real. Between client and engine stands a socket that can be cut or go silent.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import Done, Project, end, wait_until
from tests.containers.engines import find_address
from tests.faults.disturbing import MODULE, let_go, on_faults, waiting, words_on

RUN: str = MODULE.RUN
CASES = tuple(role % RUN for role in MODULE.ROLES)
MEGABYTES = 64


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
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def mount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)


def fill(disk: Path, *, room: int) -> None:
    """Leave so many bytes of a disk."""
    left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - room
    with (disk / "filled").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, left)


def while_it_runs(
    project: Project, does: Callable[[subprocess.Popen[str]], object], raising: str = ""
) -> Done:
    """Do something to a run while its second cell runs, then let that go on."""
    process = project.start(*words_on(RUN))
    try:
        wait_until(lambda: RUN in waiting(project), 30, "the start of the cell that waits")
        does(process)
        let_go_anyhow(project, raising)
        return project.done(process.wait(timeout=60))
    finally:
        end(process)


def let_go_anyhow(project: Project, raising: str) -> None:
    """Let the cell go on, where the disk allows it."""
    try:
        let_go(project, RUN, raising)
    except OSError:
        os.sync()


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
    process = project.start(*words_on(RUN))
    if moment == "running":
        wait_until(lambda: RUN in waiting(project), 30, "the start of the cell that waits")
    else:
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
        subprocess.run(["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(disk)], check=True)

    return turn


def full(disk: Path, room: int) -> Callable[[bool], None]:
    def turn(on: bool) -> None:
        fill(disk, room=room) if on else (disk / "filled").unlink()

    return turn


DISKS: dict[str, Callable[[Project], Callable[[bool], None]]] = {
    "cache full": lambda project: full(project.cache, 0),
    "cache nearly full": lambda project: full(project.cache, 1 << 20),
    "results full": lambda project: full(project.results, 0),
    "cache read-only": lambda project: read_only(project.cache),
    "results read-only": lambda project: read_only(project.results),
}


@pytest.mark.parametrize("trouble", DISKS)
@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
def test_trouble_with_a_disk_is_no_verdict(
    trouble: str, before: bool, project: Project, undisturbed: object
) -> None:
    turn = DISKS[trouble](project)
    if before:
        let_go(project, RUN)
        turn(True)
        done = on_faults(project, RUN)
    else:
        done = while_it_runs(project, lambda _: turn(True), "[Errno 28] No space left on device")
    assert done.code == 3, done.told
    assert "Traceback" not in done.told
    causes = {cell["cause"] for cell in done.data.get("cells", ())}
    assert causes <= {None, "launcher failed"}, done.data
    turn(False)
    let_go(project, RUN)
    following = on_faults(project, RUN)
    assert (following.code, verdicts(following)) == (0, undisturbed), following.told
    assert project.jobs() == []
