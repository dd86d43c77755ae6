"""Preflight and the real engine agree: what it refuses would not have run, what passes is not refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.registry import TEST_IMAGE, Serving
from commandline import project_of
from projects import files_of

from tests.containers.conftest import HERE, Project
from tests.containers.test_pulls import FIRST, PASSES, SECOND, write_matrix
from tests.registry.registries import Image, push_image, serve_registry
from trtmatrix.images.checks import PROBE_LEAST_MEMORY
from trtmatrix.plan.context import Context, open_context
from trtmatrix.plan.survey import Survey, take_survey
from trtmatrix.run.perform import Options, execute, look_ahead
from trtmatrix.run.tasks import Run
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Pull

LAYER = 24 << 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Serve an image of one layer that does not shrink."""
    with serve_registry(tmp_path_factory.mktemp("plain")) as serving:
        push_image(serving.host, "large", "1", Image(layers=({"ballast": os.urandom(LAYER)},)))
        yield serving


@pytest.fixture(autouse=True)
def _no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def looked(project: Project, image: str) -> tuple[Context, Survey]:
    """Return project and survey of one version with this image."""
    write_matrix(project, {FIRST: image})
    files = files_of(project.folder, HERE / "repros")
    context = open_context(project_of("run", *files, "--trt", FIRST, *PASSES))
    return context, take_survey(context, Pull.NAMED)


def refusals(context: Context, survey: Survey, options: Options) -> set[Exclusion]:
    """Return why preflight refuses what the plan has."""
    looked = look_ahead(context, survey, options, ())
    able = looked.survey
    assert any(finding.prevents for finding in looked.findings) is (able.plan != survey.plan)
    return {item.why for item in able.plan.excluded}


def tried(context: Context, survey: Survey, options: Options) -> Run:
    """Run what the plan has, whatever preflight says."""
    return execute(context, survey, options, frozenset())


OPTIONS = Options(memory=1 << 30, output_size=64 << 20, quiet=True, confirm=False)


@pytest.mark.parametrize("name", ["{plain}/large:no-such-tag", "{plain}/nowhere:1", "127.0.0.1:1/nowhere:1"])
def test_an_image_that_is_refused_cannot_be_pulled(name: str, plain: Serving, project: Project) -> None:
    context, survey = looked(project, name.format(plain=plain.host))
    assert refusals(context, survey, OPTIONS) == {Exclusion.IMAGE_NOT_GIVEN}
    performed = tried(context, survey, OPTIONS)
    assert [item.why for item in performed.not_ready] == [Exclusion.NOT_READY]
    assert not performed.records
    if "no-such-tag" in name:
        assert "cannot be had: " in performed.not_ready[0].detail


@pytest.mark.parametrize("memory", [5 << 20, PROBE_LEAST_MEMORY - 1])
def test_with_a_memory_limit_that_is_refused_nothing_runs(memory: int, project: Project) -> None:
    context, survey = looked(project, TEST_IMAGE)
    options = replace(OPTIONS, memory=memory)
    assert refusals(context, survey, options) == {Exclusion.NO_MEMORY}
    (record,) = tried(context, survey, options).records
    assert record.ended != "ran", "how it ends is the engine's and the kernel's affair"


def test_what_passes_runs(project: Project) -> None:
    context, survey = looked(project, TEST_IMAGE)
    options = replace(OPTIONS, memory=96 << 20)
    assert refusals(context, survey, options) == set()
    (record,) = tried(context, survey, options).records
    assert record.ended == "ran"


def test_a_run_tells_what_it_leaves_out_and_runs_the_rest(plain: Serving, project: Project) -> None:
    write_matrix(project, {FIRST: f"{plain.host}/large:2", SECOND: TEST_IMAGE})
    done = project.run("--trt", f"{FIRST},{SECOND}", *PASSES)
    assert done.code == 3
    assert f"[!!] registry: {plain.host} has no {plain.host}/large:2" in done.told
    assert f"     prevents 1 cell of {FIRST}\n     -> check the tag" in done.told
    assert done.cell("passes", FIRST)["excluded"]["why"] == Exclusion.IMAGE_NOT_GIVEN.value
    assert done.cell("passes", SECOND)["verdict"] == "PASS"


def test_a_plan_names_what_it_pulls_and_what_it_cannot(plain: Serving, project: Project) -> None:
    large, missing = (f"{plain.host}/large:{tag}" for tag in (1, 2))
    write_matrix(project, {FIRST: large, SECOND: missing})
    words = project.command("--trt", f"{FIRST},{SECOND}", *PASSES, "--plan")
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"  pulls {large}: its size is not known: it is not locked" in text
    assert f"not run: 1 cells: {Exclusion.IMAGE_NOT_GIVEN.value} (" in text
    data = json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [launch["fetched"][0].split(": ")[0] for launch in data["launches"]] == [f"pulls {large}"]
    assert "registry" in {item["rule"] for item in data["findings"]}
    assert not project.results.exists()
    assert not project.cache.exists()


def test_a_rerun_that_is_refused_is_not_shown_from_the_store(project: Project) -> None:
    write_matrix(project, {FIRST: TEST_IMAGE})
    assert project.run("--trt", FIRST, *PASSES).code == 0
    done = project.run("--trt", FIRST, *PASSES, "--rerun", "--memory", "30m")
    assert done.code == 3
    cell = done.cell("passes", FIRST)
    assert (cell["verdict"], cell["evidence"]) == (None, "none")
    assert cell["excluded"]["why"] == Exclusion.NO_MEMORY.value
