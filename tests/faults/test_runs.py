"""Trouble that a whole run meets gives no verdict, and the next run shows what an undisturbed one would.

Containers and engine are real.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.conftest import Project, end
from tests.faults.disturbing import RUN, WORDS, check_next, check_trouble, let_go, letting_go, start_waiting
from tests.waiting import wait_until

MEGABYTES = 64


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


def fill(disk: Path) -> None:
    with (disk / "filled").open("wb") as file:
        while (left := os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize) > 0:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, left)


READERS = {
    "nobody by its umask": 'umask 777; exec "$@"',
    "reader of output gone": '{ "$@"; echo $? >&3; } 3>code | true; exit $(cat code)',
}  # fmt: skip


@pytest.mark.parametrize("how", READERS)
def test_who_reads_changes_nothing(how: str, project: Project) -> None:
    let_go(project, RUN)
    line = READERS[how].replace("code", str(project.folder / "code"))
    process = project.start(*WORDS, prefix=("bash", "-c", line, "bash"))
    assert process.wait(timeout=120) == 0
    assert not any(cell["executed"] for cell in check_next(project).data["cells"])


@pytest.mark.parametrize("moment", ["preparing", "running"])
def test_a_client_that_is_killed_loses_no_verdict(moment: str, project: Project) -> None:
    if moment == "running":
        process = start_waiting(project)
    else:
        process = project.start(*WORDS)
        wait_until((project.cache / "cases").exists, 90, "the first prepared case")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    check_next(project)
    end(process)


@pytest.mark.parametrize("disk", ["cache", "results"])
def test_a_disk_that_fills_up_while_a_cell_runs_is_no_verdict(disk: str, project: Project) -> None:
    process, folder = start_waiting(project), Path(getattr(project, disk))
    with letting_go(project, RUN, "[Errno 28] No space left on device"):
        fill(folder)
    done = project.done(process.wait(timeout=120))
    assert done.code == 3, done.told
    check_trouble(done)
    (folder / "filled").unlink()
    check_next(project)
