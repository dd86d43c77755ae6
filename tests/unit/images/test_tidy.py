"""What dead runs left goes before preflight counts what is free, and before anything is planned upon it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import make_cell, make_matrix, make_repro, make_version
from playing import make_run

from trtmatrix.common.paths import Project
from trtmatrix.images import preflight as preflighting
from trtmatrix.images.checks import Facts, Wants
from trtmatrix.images.preflight import Preflight
from trtmatrix.launchers import containers
from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey
from trtmatrix.run import perform
from trtmatrix.run.perform import Options
from trtmatrix.run.tasks import Run
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.plan import Engine, Host, Launch, Plan

ENGINE = Engine(available=True)
CELL = make_cell(make_repro(), version=make_version("10.7.0"))
SERVED = make_cell(make_repro(), version=make_version("10.8.0"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What was done, in its order."""
    done = list[str]()

    def remove_leftovers() -> list[str]:
        done.append("containers")
        return ["trtmatrix-dead"]

    def preflight(_: Context, survey: Survey, *__: object) -> Preflight:
        done.append("preflight")
        return Preflight(facts=Facts(engine=survey.host.engine), wants=Wants(), survey=survey, findings=())

    def execute(*_: object) -> Run:
        done.append("run")
        return make_run(tmp_path, None, [])

    monkeypatch.setattr(containers, "remove_leftovers", remove_leftovers)
    monkeypatch.setattr(preflighting, "preflight", preflight)
    monkeypatch.setattr(perform, "execute", execute)
    monkeypatch.setattr(perform, "tell_pins", lambda *_: None)
    monkeypatch.setattr(perform, "served_among", lambda *_: frozenset({SERVED.id}))
    return done


def perform_on(folder: Path, python: str | None = None) -> None:
    project = Project(matrix=folder, repros=folder, results=folder, cache=folder)
    context = Context(project=project, matrix=make_matrix(), repros={}, selection=Selection(), pythons=())
    launches = [
        Launch(version=cell.version, gpu=cell.gpu, cells=(cell,), python=python) for cell in (CELL, SERVED)
    ]
    plan = Plan(launches=tuple(launches), excluded=())
    scan = GpuScan(gpus=(), reason="none")
    survey = Survey(host=Host(engine=ENGINE), scan=scan, cells=(), plan=plan, stored=())
    perform.perform(context, survey, Options())


def test_what_dead_runs_left_goes_before_preflight(
    done: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perform_on(tmp_path)
    assert done == ["containers", "preflight", "run"]
    assert "removed the container trtmatrix-dead, whose run had died" in capsys.readouterr().err


def test_where_nothing_runs_in_a_container_the_engine_is_left_alone(done: list[str], tmp_path: Path) -> None:
    perform_on(tmp_path, python="/usr/bin/python3")
    assert done == ["preflight", "run"]
