"""How the files of cells are disturbed, and when."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.calling import Done
from tests.containers.conftest import GOOD, Project
from tests.waiting import wait_until
from trtmatrix.suite.repro_files import read_repro

REPROS = Path(__file__).resolve().parent / "repros"
MODULE = read_repro(REPROS / "faults.py").module
BETWEEN, MEANWHILE, RECORDS, FAULTS = (
    tuple(getattr(MODULE, name)) for name in ("BETWEEN", "MEANWHILE", "RECORDS", "FAULTS")
)
RUN: str = MODULE.RUN


def flip(file: Path) -> None:
    """Change the last bit but a few, in the very file that others share."""
    with file.open("r+b") as stream:
        stream.seek(-3, os.SEEK_END)
        byte = stream.read(1)[0]
        stream.seek(-3, os.SEEK_END)
        stream.write(bytes([byte ^ 1]))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))  # as a clock of full seconds would not show


def cut(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)


def swap(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def swapped(file: Path) -> None:
        file.unlink()
        make(file)

    return swapped


def nest(file: Path) -> None:
    file.write_text("[" * 100_000)


def spoil(file: Path) -> None:
    """Write a number that strict JSON has no word for where a measurement is."""
    file.write_text(json.dumps({**json.loads(file.read_text()), "attempts": float("nan")}))


CHANGES: dict[str, Callable[[Path], Any]] = {
    "flipped": flip, "half": cut, "gone": Path.unlink, "empty": swap(Path.touch), "pipe": swap(os.mkfifo),
    "link": swap(lambda file: file.symlink_to("/etc/hostname")), "folder": swap(Path.mkdir),
    "more": lambda file: shutil.copy(file, file.with_name(f"more-{file.name}")), "nan": spoil, "deep": nest,
}  # fmt: skip


def edit(folder: Path, field: str) -> None:
    facts = json.loads((folder / "case.json").read_text())
    facts[field] = {} if field != "content" else "0"
    (folder / "case.json").write_text(json.dumps(facts))


def alter(folder: Path) -> None:
    """Make the reference another one, as whole as the right one: who believes it says FAIL."""
    reference = np.load(folder / "reference" / "y.npy")
    (folder / "reference" / "y.npy").unlink()
    np.save(folder / "reference" / "y.npy", reference + 1)


def disturb(fault: str, folder: Path) -> str:
    """Do to a prepared case what the fault is named after; returns what the cell is to raise, if anything."""
    if fault == "while-quota":
        return "[Errno 122] Disk quota exceeded"
    change, what = fault.removeprefix("while-").rsplit("-", 1)
    if change == "edited":
        edit(folder, what)
    elif change == "altered":
        alter(folder)
    elif change == "case":
        shutil.rmtree(folder)
    else:
        CHANGES[change](folder / MODULE.FILES[what])
    return ""


PASS, FAIL = ("PASS", None, ""), ("FAIL", None, "max_abs 1 > 0")
"""What an undisturbed cell says, and the one after it: its output ``y`` is right."""


def words_on(*cases: str) -> tuple[str, ...]:
    return ("--trt", GOOD, f"--repros={REPROS}", "--case", ",".join(cases))


def verdicts(done: Done, *cases: str) -> list[tuple[str, str | None, str]]:
    return [(cell["verdict"], cell["cause"], cell["reason"]) for cell in map(done.cell, cases)]


@contextmanager
def letting_go(project: Project, case: str, raising: str = "") -> Iterator[None]:
    """Let a cell that waits go on after the block, or raise what is said; that needs no room on the disk."""
    mark = project.cache / "cases" / f".done-{MODULE.CASES.index(case)}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.with_suffix(".partial").write_text(raising)
    yield
    mark.with_suffix(".partial").replace(mark)


def let_go(project: Project, case: str, raising: str = "") -> None:
    with letting_go(project, case, raising):
        pass


def hold(project: Project, case: str) -> None:
    """Let a cell wait again."""
    (project.cache / "cases" / f".done-{MODULE.CASES.index(case)}").unlink()


def waiting(project: Project) -> Iterator[str]:
    """Find the cases whose cells have begun, of those that wait."""
    for started in project.cache.glob("jobs/*/out/*.started.json"):
        told = started.parents[1] / "job" / started.name.replace("started", "cell")
        try:
            case = json.loads(told.read_text())["cell"]["case"]
        except FileNotFoundError:  # the job has ended
            continue
        if case in (*MEANWHILE, RUN):
            yield case


@contextmanager
def disturbing(project: Project, folders: Mapping[str, Path]) -> Iterator[None]:
    """Disturb each case of ``MEANWHILE`` once its cell runs, and let it go on."""
    over = threading.Event()

    def watch() -> None:
        done = set[str]()
        while not over.wait(0.01):
            begun = set[str]()
            with suppress(FileNotFoundError):  # a job's folder goes while it is looked through
                begun.update(waiting(project))
            for case in begun - done:
                done.add(case)
                let_go(project, case, disturb(case, folders[case]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


CASES = ("before-run", RUN, f"after-{RUN}")
WORDS = words_on(*CASES)


def start_waiting(project: Project) -> subprocess.Popen[str]:
    process = project.start(*WORDS)
    wait_until(lambda: RUN in waiting(project), 90, "the start of the cell that waits")
    return process


def check_trouble(done: Done) -> None:
    """Whatever has a verdict has the right one, or none for trouble of this host."""
    assert "Traceback" not in done.told
    for cell in done.data.get("cells", ()):
        right = "FAIL" if "after" in cell["case"] else "PASS"
        assert (cell["verdict"], cell["cause"]) in {(right, None), ("NO VERDICT", "launcher failed")}


def check_next(project: Project) -> Done:
    let_go(project, RUN)
    done = project.run(*WORDS)
    assert (done.code, verdicts(done, *CASES)) == (0, [PASS, PASS, FAIL]), done.told
    assert project.jobs() == []
    return done
