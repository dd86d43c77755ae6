"""Cells beside each other: one passes, one is wrong, and what the third leaves is a test's."""

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from playing import RIGHT, WRONG, Playing, cells_of, make_a_plan, make_run
from prepare.test_cases import loaded

from trtmatrix.judge.compare import make_entries
from trtmatrix.records.store import read_records
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.cells import Cell
from trtprobe.files import write_json

SECONDS = 20  # an attack that hangs the client fails after so long
CELLS = tuple(cells_of("right", "attacked", "wrong", "last", keep=True))
SECRET = np.arange(64, dtype=np.float64)
"""What is kept elsewhere on the host, and must not get into the cache."""

Shown = dict[str, tuple[str, str]]  # case → verdict and cause, as a table shows them


@dataclass(frozen=True, kw_only=True)
class Left:
    """Where a cell leaves something: its index, the folder of outputs of the job, and its record."""

    out: Path
    index: int
    record: dict[str, Any]
    host: Path

    @property
    def file(self) -> Path:
        return self.out / f"{self.index}.record.json"

    @property
    def own(self) -> Path:
        return self.out / str(self.index)

    def keep(self, *names: str) -> None:
        self.record["kept"] = {name: {"dtype": "float64", "shape": [64]} for name in names}
        write_json(self.file, self.record)


Attack = Callable[[Left], object]


class Leaving(Playing):
    """A launcher whose probe lets one case leave what an attack leaves."""

    def __init__(self, attack: Attack | None, host: Path) -> None:
        super().__init__(lambda case: WRONG if case == "wrong" else RIGHT)
        self.attack, self.host = attack, host

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        if self.attack is None or cell["cell"]["case"] != "attacked":
            super().cell(index, cell, out)
            return
        write_json(out / f"{index}.started.json", {})
        record = self.record(cell, RIGHT, out / str(index))
        (out / str(index)).mkdir()
        self.attack(Left(out=out, index=index, record=record, host=self.host))


def run_beside(folder: Path, attack: Attack | None, **more: Any) -> Shown:
    host = folder / "host"
    if not host.exists():
        host.mkdir()
        np.save(host / "secret.npy", SECRET)
    source = replace(loaded(), repro=CELLS[0].repro)
    moment = datetime(2025, 1, 1, tzinfo=timezone.utc)  # before what the played probe says
    state = make_run(folder, Leaving(attack, host), [source], confirm=False, clock=lambda: moment, **more)
    with in_time():
        execute_plan(make_a_plan(CELLS), state)
    return shown(folder)


def shown(folder: Path, cells: Sequence[Cell] = CELLS) -> Shown:
    (folder / "results").mkdir(exist_ok=True)
    if not (folder / "results" / "local").is_symlink():
        (folder / "results" / "local").symlink_to(folder / "local")
    entries = make_entries(cells, read_records(folder / "results"), {}, [])
    outcomes: Mapping[str, Any] = {entry.cell.case.id: entry.outcome for entry in entries}
    return {name: (o.verdict.value, o.cause.value if o.cause else "") for name, o in outcomes.items() if o}


def reason(folder: Path, case: str = "attacked") -> str:
    records = [one.record for one in read_records(folder / "results") if one.record.cell.case == case]
    return max(records, key=lambda record: record.started).detail


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Fail where the block is not done in time; where another thread hangs, end the tests a while later."""

    def late(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(3 * seconds, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def nest(folder: Path, folders: int) -> None:
    here = Path.cwd()
    os.chdir(folder)
    for _ in range(folders):
        Path("d").mkdir()
        os.chdir("d")
    os.chdir(here)
