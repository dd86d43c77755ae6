"""What a run pulls while it runs, what trouble ends it, and how it is cut off.

The launchers are stand-ins: that a pull lasts as long as a launch cannot be arranged with real ones. What
must happen together waits for each other, with a limit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playing import RIGHT, Playing, always, cells_of, make_a_plan, make_run, perform, source_of, stored, wait
from prepare.test_cases import Preparing

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Launch


class Pulling(Playing):
    """A launcher whose pulls and launches tell of themselves, and wait for what a test says."""

    def __init__(self, before: Callable[[str, str], None] = lambda *_: None) -> None:
        super().__init__(always(RIGHT))
        self.before, self.told = before, list[str]()
        self.pulling = threading.Lock()

    def make_ready(self, launch: Launch) -> Ready:
        name = launch.version.name
        if launch.pull:
            assert self.pulling.acquire(blocking=False), "two pulls at once"
            try:
                self.told.append(f"pull {name}")
                self.before("pull", name)
            finally:
                self.pulling.release()
        return super().make_ready(launch)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        self.told.append(f"run {ready.launch.version.name}")
        self.before("run", ready.launch.version.name)
        return super().run(ready, folder, poll)


def test_what_is_here_runs_while_the_rest_is_pulled(tmp_path: Path) -> None:
    here = threading.Event()

    def before(what: str, name: str) -> None:
        if (what, name) == ("pull", "10.7.0"):
            wait(here)
        if (what, name) == ("run", "10.8.0"):
            here.set()

    cells = cells_of("a", versions=("10.7.0", "10.8.0"))
    plan = make_a_plan(cells)
    launches = tuple(replace(launch, pull=launch.version.name == "10.7.0") for launch in plan.launches)
    launcher = Pulling(before)
    run = make_run(tmp_path, launcher, [source_of(cells)])
    assert len(execute_plan(replace(plan, launches=launches), frozenset(), run).records) == 2


def test_an_image_that_cannot_be_pulled_leaves_its_cells_out_and_no_others(tmp_path: Path) -> None:
    def before(what: str, name: str) -> None:
        if (what, name) == ("pull", "10.7.0"):
            raise MachineryError("nobody answers\n  try it by hand")

    launcher = Pulling(before)
    performed = perform(tmp_path, launcher, cells_of("a", versions=("10.7.0", "10.8.0")), pull=True)
    assert [record.cell.version for record in performed.records] == ["10.8.0"]
    assert [(item.why, item.detail) for item in performed.not_ready] == [
        (Exclusion.NOT_READY, "nobody answers")
    ]


class Endless(Playing):
    """A probe that plays its first cell and then does nothing until it is ended."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(always(RIGHT))
        self.then, self.cleaned = then, False

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        if index == 0:
            super().cell(index, cell, out)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        def watch() -> None:
            poll()
            if stored(folder.parents[1]):
                self.then()

        try:
            return super().run(ready, folder, watch)
        finally:
            self.cleaned = True


def test_an_interruption_ends_all_and_a_second_one_disturbs_nothing(tmp_path: Path) -> None:
    sent = threading.Event()

    def interrupt() -> None:
        if not sent.is_set():
            sent.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    cells, before = cells_of("a", "b"), {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    launcher = Endless(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            perform(tmp_path, launcher, cells)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert launcher.cleaned
    assert stored(tmp_path) == ["a"]
    assert not list(tmp_path.glob("jobs/*"))


def test_a_repro_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    cells = cells_of("a", "b")
    broken = Preparing(reference={"y": object()})
    run = make_run(tmp_path, Playing(always(RIGHT)), [replace(source_of(cells), module=broken)])
    with pytest.raises(UsageError, match="prepare"):
        execute_plan(make_a_plan(cells), frozenset(), run)
    assert not list(tmp_path.glob("jobs/*"))


def test_nothing_is_done_where_all_is_served(tmp_path: Path) -> None:
    cells = cells_of("a")
    launcher = Pulling()
    run = make_run(tmp_path, launcher, [source_of(cells)])
    performed = execute_plan(make_a_plan(cells, pull=True), frozenset(cell.id for cell in cells), run)
    assert (performed.records, launcher.told, list(tmp_path.iterdir())) == ([], [], [])
