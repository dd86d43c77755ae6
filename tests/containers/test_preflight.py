"""Preflight and the real engine agree: what it refuses would not have run, what passes is not refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.registry import TEST_IMAGE, Serving
from commandline import project_of
from projects import files_of

from tests.containers.conftest import HERE, Project
from tests.containers.test_pulls import FIRST, PASSES, SECOND, write_matrix
from tests.registry.registries import Image, push_image
from trtmatrix.images.checks import PROBE_LEAST_MEMORY
from trtmatrix.plan.context import open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.run.perform import Options, execute, look_ahead
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Pull


@pytest.fixture(autouse=True)
def _no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.mark.parametrize(("memory", "refused"), [(PROBE_LEAST_MEMORY - 1, True), (96 << 20, False)])
def test_a_memory_limit_that_is_refused_would_not_have_served(
    memory: int, *, refused: bool, project: Project
) -> None:
    write_matrix(project, {FIRST: TEST_IMAGE})
    files = files_of(project.folder, HERE / "repros")
    context = open_context(project_of("run", *files, "--trt", FIRST, *PASSES))
    survey = take_survey(context, Pull.NAMED)
    options = Options(memory=memory, output_size=64 << 20, quiet=True, confirm=False)
    excluded = look_ahead(context, survey, options, ()).survey.plan.excluded
    assert {item.why for item in excluded} == ({Exclusion.NO_MEMORY} if refused else set())
    (record,) = execute(context, survey, options, frozenset()).records
    assert (record.ended != "ran") == refused, "how it ends is the engine's and the kernel's affair"


def test_a_run_tells_what_it_leaves_out_and_runs_the_rest(serving: Serving, project: Project) -> None:
    push_image(serving.host, "small", "1", Image())
    write_matrix(project, {FIRST: f"{serving.host}/small:2", SECOND: TEST_IMAGE})
    done = project.run("--trt", f"{FIRST},{SECOND}", *PASSES)
    assert done.code == 3
    assert f"[!!] registry: {serving.host} has no {serving.host}/small:2" in done.told
    assert f"     prevents 1 cell of {FIRST}\n     -> check the tag" in done.told
    assert done.cell("passes", FIRST)["excluded"]["why"] == Exclusion.IMAGE_NOT_GIVEN.value
    assert done.cell("passes", SECOND)["verdict"] == "PASS"


def test_a_rerun_that_is_refused_is_not_shown_from_the_store(project: Project) -> None:
    write_matrix(project, {FIRST: TEST_IMAGE})
    assert project.run("--trt", FIRST, *PASSES).code == 0
    done = project.run("--trt", FIRST, *PASSES, "--rerun", "--memory", "30m")
    assert done.code == 3
    cell = done.cell("passes", FIRST)
    assert (cell["verdict"], cell["evidence"]) == (None, "none")
    assert cell["excluded"]["why"] == Exclusion.NO_MEMORY.value
