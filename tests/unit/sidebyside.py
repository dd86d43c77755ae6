"""Runs of many cells over launchers that a test plays, for what happens at the same time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import make_case, make_cell, make_repro
from playing import LIMIT, make_a_plan, make_run
from prepare.test_cases import loaded

from trtmatrix.launchers.launcher import Launcher
from trtmatrix.run.execute import execute_plan
from trtmatrix.run.tasks import Run
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case

SECONDS = 20.0
"""Longest wait for what must happen."""


def cases_of(*names: str) -> list[Case]:
    return [
        make_case(name, limits=LIMIT["limits"], params={"n": number}) for number, name in enumerate(names)
    ]


def cells_of(*names: str, versions: Sequence[str] = ("10.7.0",)) -> list[Cell]:
    repro = make_repro(*cases_of(*names))
    return [make_cell(repro, case, version) for version in versions for case in repro.cases]


def source_of(cells: Sequence[Cell], **result: Any) -> LoadedRepro:
    return replace(loaded(**result), repro=cells[0].repro)


def perform(
    folder: Path, launcher: Launcher, cells: Sequence[Cell], *boards: Any, pull: bool = False, **more: Any
) -> Run:
    run = make_run(folder, launcher, [source_of(cells)], **more)
    return execute_plan(make_a_plan(cells, *boards, pull=pull), frozenset(), run)


def wait(event: threading.Event) -> None:
    assert event.wait(SECONDS), "what must happen at the same time does not"


def stored(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / "local").rglob("*.json"))
