"""What dead runs left goes before preflight counts what is free, and before anything is planned upon it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from builders import make_cell, make_matrix, make_repro, make_version
from playing import make_run

from trtmatrix.common.paths import Project
from trtmatrix.images import preflight as preflighting
from trtmatrix.images.checks import Facts, Wants
from trtmatrix.images.preflight import Preflight
from trtmatrix.launchers import containers, docker_engine, images
from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey
from trtmatrix.run import perform
from trtmatrix.run.perform import Options
from trtmatrix.run.tasks import Run
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import Origin
from trtmatrix.suite.plan import Engine, Host, Keep, Launch, Plan

BEFORE = Engine(available=True, images={"left:1": "sha256:a", "mine:1": "sha256:b"})
AFTER = Engine(available=True, images={"mine:1": "sha256:b"})
CELL = make_cell(make_repro(), version=make_version("10.7.0"))
SERVED = make_cell(make_repro(), version=make_version("10.8.0"))


@dataclass
class Seen:
    """What was done, in its order, and the engine that preflight was given."""

    done: list[str] = field(default_factory=list)
    engine: Engine | None = None
    left: bool = True


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Seen:
    seen = Seen()

    def remove_leftovers() -> list[str]:
        seen.done.append("containers")
        return ["trtmatrix-dead"]

    def drop(_: images.Images, wanted: Iterable[Origin]) -> bool:
        assert list(wanted) == [CELL.version.origin]
        seen.done.append("images")
        return seen.left

    def preflight(_: Context, survey: Survey, *__: object) -> Preflight:
        seen.done.append("preflight")
        seen.engine = survey.host.engine
        return Preflight(facts=Facts(engine=survey.host.engine), wants=Wants(), survey=survey, findings=())

    def execute(*_: object) -> Run:
        seen.done.append("run")
        return make_run(tmp_path, None, [])

    monkeypatch.setattr(containers, "remove_leftovers", remove_leftovers)
    monkeypatch.setattr(images.Images, "drop_leftovers", drop)
    monkeypatch.setattr(docker_engine, "find_engine", lambda **_: AFTER)
    monkeypatch.setattr(preflighting, "preflight", preflight)
    monkeypatch.setattr(perform, "execute", execute)
    monkeypatch.setattr(perform, "tell_pins", lambda *_: None)
    monkeypatch.setattr(perform, "served_among", lambda *_: frozenset({SERVED.id}))
    return seen


def perform_on(found: Engine, folder: Path, python: str | None = None) -> None:
    project = Project(matrix=folder, repros=folder, results=folder, cache=folder)
    context = Context(project=project, matrix=make_matrix(), repros={}, selection=Selection(), pythons=())
    launches = [
        Launch(version=cell.version, gpu=cell.gpu, cells=(cell,), python=python) for cell in (CELL, SERVED)
    ]
    plan = Plan(launches=tuple(launches), excluded=())
    scan = GpuScan(gpus=(), reason="none")
    survey = Survey(host=Host(engine=found), scan=scan, cells=(), plan=plan, stored=())
    perform.perform(context, survey, Options(keep=Keep.NONE))


def test_what_dead_runs_left_goes_before_preflight(
    seen: Seen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perform_on(BEFORE, tmp_path)
    assert seen.done == ["containers", "images", "preflight", "run"]
    assert seen.engine == AFTER, "an image that went is not here for preflight"
    assert "removed the container trtmatrix-dead, whose run had died" in capsys.readouterr().err


def test_where_nothing_runs_in_a_container_the_engine_is_left_alone(seen: Seen, tmp_path: Path) -> None:
    perform_on(BEFORE, tmp_path, python="/usr/bin/python3")
    assert seen.done == ["preflight", "run"]
