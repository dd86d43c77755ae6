"""Versions that are compared take turns on one board: A B A B, one engine a visit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from playing import RIGHT, WRONG, Playing, boards_of, cells_of, perform, stored

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.progress import Progress
from trtmatrix.launchers.launcher import Ready
from trtmatrix.run.tasks import Run
from trtmatrix.suite.plan import Launch

OLD, NEW = "10.7.0", "10.8.0"


class Noting(Playing):
    """Notes which version ran which case, in order; the case ``bad`` is wrong, all go on at once."""

    def __init__(self, dying: bool = False, absent: str = "") -> None:
        super().__init__(lambda case: WRONG if case == "bad" else RIGHT)
        self.order, self.dying, self.absent = list[tuple[str, str]](), dying, absent

    def make_ready(self, launch: Launch) -> Ready:
        if launch.version.name == self.absent:
            raise MachineryError("no image")
        return super().make_ready(launch)

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        version, case = cell["cell"]["version"], cell["cell"]["case"]
        self.order.append((version, case))
        super().cell(index, cell, out)
        if self.dying and (version, case) == (NEW, "a"):  # once: the probe ends after its record
            self.dying = False
            raise EOFError

    def visits(self, case: str) -> list[str]:
        return [version for version, name in self.order if name == case]


def run(folder: Path, launcher: Playing, *cases: str, boards: int = 1, **more: Any) -> Run:
    cells = cells_of(*cases, versions=(OLD, NEW))
    return perform(folder, launcher, cells, *boards_of(boards), interleaved=True, rebuilds=3, **more)


@pytest.mark.parametrize("boards", [1, 2])
def test_versions_take_turns_and_build_one_engine_a_visit(tmp_path: Path, boards: int) -> None:
    launcher = Noting()
    run(tmp_path, launcher, "a", "b", boards=boards)
    for case in ("a", "b"):
        seen = launcher.visits(case)
        assert sorted(seen) == sorted([OLD, NEW] * 3)
        assert all(seen[k] != seen[k + 1] for k in range(5)), seen
    assert [len(job) for job in launcher.jobs] == [6, 6], "one warm process a version"
    assert len({launch.gpu.index for launch in launcher.launches}) == 1, "on the same board"
    assert all(cell["builds"] == 1 and cell["own_engines"] for job in launcher.jobs for cell in job)
    assert len(stored(tmp_path)) == 12, "a record a visit"


def test_a_doubtful_case_is_seen_again_once_and_a_probe_that_dies_costs_no_other_case(tmp_path: Path) -> None:
    launcher = Noting(dying=True)
    run(tmp_path, launcher, "a", "bad")
    assert sorted(launcher.visits("a")) == sorted([OLD, NEW] * 3)
    again = [cell for job in launcher.jobs for cell in job if cell["alone"]]
    assert {(cell["cell"]["version"], cell["cell"]["case"]) for cell in again} == {(OLD, "bad"), (NEW, "bad")}
    assert [cell["builds"] for cell in again] == [3, 3], "once a version, on engines enough to be believed"


def test_a_version_that_cannot_be_started_keeps_nobody_waiting(tmp_path: Path) -> None:
    launcher, told = Noting(absent=OLD), io.StringIO()
    state = run(tmp_path, launcher, "a", progress=Progress(told, full=True))
    assert f"[3/3] sdpa-scale/a@{NEW}" in told.getvalue(), "what is left out is not waited for"
    assert launcher.visits("a") == [NEW] * 3
    assert [item.cell.version.name for item in state.not_ready] == [OLD]
