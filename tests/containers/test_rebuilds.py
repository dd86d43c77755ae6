"""Several engines of one cell, in one process: what is recorded, kept and served of them."""

from __future__ import annotations

import pytest

from tests.containers.conftest import GOOD, Done, Project

CELLS = ("--trt", GOOD, "--repro", "endings", "--case", "passes,is-wrong")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("rebuilds"))


@pytest.fixture(scope="module")
def done(project: Project) -> Done:
    return project.run(*CELLS, "--rebuilds", "3")


def executed(done: Done) -> set[str]:
    return {cell["case"] for cell in done.data["cells"] if cell["executed"]}


def test_every_engine_is_measured(done: Done, project: Project) -> None:
    assert done.code == 0, done.told
    record = project.record(done.cell("is-wrong"))
    errors = [build["measurements"]["outputs"]["y"]["max_abs"] for build in record["builds"]]
    assert errors == [1.0, 1.0, 1.0]
    assert record["builds"][0]["measurements"] == record["measurements"]


def test_the_outputs_of_every_engine_are_kept(done: Done, project: Project) -> None:
    kept = project.record(done.cell("is-wrong"))["kept"]
    assert set(kept) == {"y", "y@1", "y@2"}
    assert len({facts["sha256"] for facts in kept.values()}) == 1
    assert "kept" not in project.record(done.cell("passes"))


def test_as_many_engines_are_served_and_more_are_built(done: Done, project: Project) -> None:
    assert executed(done) == {"passes", "is-wrong"}
    assert executed(project.run(*CELLS)) == set()
    assert executed(project.run(*CELLS, "--rebuilds", "3")) == set()
    assert executed(project.run(*CELLS, "--rebuilds", "4")) == {"passes", "is-wrong"}
