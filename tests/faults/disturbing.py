"""How the files of cells are disturbed, and when."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.containers.conftest import GOOD, Done, Project
from trtmatrix.suite.repro_files import read_repro

REPROS = Path(__file__).resolve().parent / "repros"
MODULE = read_repro(REPROS / "faults.py").module
BETWEEN, MEANWHILE, RECORDS = (tuple(getattr(MODULE, name)) for name in ("BETWEEN", "MEANWHILE", "RECORDS"))
FAULTS = (*BETWEEN, *MEANWHILE, *RECORDS)


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


START = {case["id"]: case["params"]["start"] for case in MODULE.cases()}


def words_on(*faults: str) -> tuple[str, ...]:
    """Return the options of a run over these faults' cells and their neighbours."""
    cases = ",".join(f"right-beside-{fault},{fault},wrong-beside-{fault}" for fault in faults)
    return ("--trt", GOOD, f"--repros={REPROS}", "--case", cases)


def on_faults(project: Project, *faults: str, more: Sequence[str] = ()) -> Done:
    """Run these faults' cells and their neighbours."""
    return project.run(*words_on(*faults), *more, seconds=200)


@contextmanager
def letting_go(project: Project, case: str, raising: str = "") -> Iterator[None]:
    """Let a cell that waits go on after the block, or raise what is said; that needs no room on the disk."""
    mark = project.cache / "cases" / f".done-{START[case]}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.with_suffix(".partial").write_text(raising)
    yield
    mark.with_suffix(".partial").replace(mark)


def let_go(project: Project, case: str, raising: str = "") -> None:
    """Let a cell that waits go on, or raise what is said."""
    with letting_go(project, case, raising):
        pass


def hold(project: Project, case: str) -> None:
    """Let a cell wait again."""
    (project.cache / "cases" / f".done-{START[case]}").unlink()


def waiting(project: Project) -> Iterator[str]:
    """Find the cases whose cells have begun, of those that wait."""
    for started in project.cache.glob("jobs/*/out/*.started.json"):
        told = started.parents[1] / "job" / started.name.replace("started", "cell")
        try:
            case = json.loads(told.read_text())["cell"]["case"]
        except FileNotFoundError:  # the job has ended
            continue
        if case in (*MEANWHILE, MODULE.RUN):
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
