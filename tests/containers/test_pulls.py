"""Images that a run gets first, pulled or built, and what preflight leaves out of it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.registry import TEST_IMAGE, Registry, Serving, forget, open_registry
from bench.throttle import Throttle
from commandline import project_of
from projects import files_of, matrix_text

from tests.calling import Done
from tests.containers.conftest import HERE, LIMITS, Project
from tests.containers.engines import client
from tests.registry.registries import Image, push_image
from trtmatrix.images.checks import PROBE_LEAST_MEMORY
from trtmatrix.plan.context import open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.run.perform import Options, execute, look_ahead
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Pull

PASSES = ("--repro", "endings", "--case", "passes")
FIRST, SECOND = "onnxruntime-1.31.1", "onnxruntime-1.31.1.1"
BALLAST, RATE = 6 << 20, 3 << 20
BUILDER = Path(__file__).resolve().parents[2] / "docker" / "wheels" / "build"
MADE = "trtmatrix/test-made:1"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with open_registry() as opened:
        for tag in ("one", "two"):
            opened.push_with_ballast(tag, BALLAST)
        yield opened


@pytest.fixture
def line(registry: Registry) -> Iterator[Throttle]:
    with Throttle(registry.port, RATE) as throttle:
        yield throttle
        forget(registry.client, *(registry.name(tag, throttle.port) for tag in ("one", "two")))


def write_matrix(project: Project, images: dict[str, str], *, build: bool = False) -> None:
    made: dict[str, Any] = {"build": {"base": TEST_IMAGE, "wheels": ["onnxruntime==1.31.1"]}}
    more = made if build else {}
    columns = [(version, {"image": image, **more}, "1.31.1") for version, image in images.items()]
    (project.folder / "matrix.yaml").write_text(matrix_text(*columns))


def test_of_two_versions_one_comes_meanwhile(registry: Registry, line: Throttle, project: Project) -> None:
    one, two = (registry.name(tag, line.port) for tag in ("one", "two"))
    write_matrix(project, {FIRST: one, SECOND: two})
    done = project.run("--trt", f"{FIRST},{SECOND}", *PASSES)
    assert [done.cell("passes", version)["verdict"] for version in (FIRST, SECOND)] == ["PASS"] * 2
    assert f"pulling {one}" in done.told
    assert f"pulling {two}" in done.told
    assert 2 * BALLAST < line.passed < 2.1 * BALLAST
    pulls = [done.told.index(f"pulling {image}") for image in (one, two)]
    assert max(pulls) < done.told.index("  [1/2] "), "the second's pull had begun before the first had run"


def test_a_locked_run_is_done_in_what_was_locked_whatever_moved(registry: Registry, project: Project) -> None:
    registry.push_with_ballast("locked", 64)
    image = registry.name("locked")
    write_matrix(project, {FIRST: image})
    refused = project.run("--trt", FIRST, *PASSES, "--locked")
    assert refused.code == 2
    words = project.command("--trt", FIRST, "--update")
    words = [word for word in words if word not in LIMITS]
    words[words.index("run")] = "lock"
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    registry.push_with_ballast("locked", 64)
    loose = str(registry.client.images.pull(image).id)
    done = project.run("--trt", FIRST, *PASSES, "--locked", "--keep", "none")
    cell = done.cell("passes", FIRST)
    assert cell["verdict"] == "PASS"
    used = project.record(cell)["digests"]["image"]
    assert used != loose
    assert used in (project.folder / "matrix.lock").read_text()
    assert f"pulling 127.0.0.1:{registry.port}/trtmatrix/pulled@sha256:" in done.told
    assert str(registry.client.images.get(image).id) == loose, "what its tag stands for now stays"
    assert [i for i in registry.client.images.list() if i.id == used] == []
    forget(registry.client, image)


@pytest.fixture
def made() -> Iterator[str]:
    forget(client(), MADE)
    yield MADE
    forget(client(), MADE)


def write_builder(project: Project, code: str) -> None:
    script = project.folder / "docker" / "wheels" / "build"
    script.parent.mkdir(parents=True)
    script.write_text(f"import subprocess, sys\nprint(sys.argv[1:])\n{code}\n")


def run_built(project: Project) -> Done:
    write_matrix(project, {FIRST: MADE}, build=True)
    return project.run("--trt", FIRST, *PASSES)


def test_an_image_of_ours_that_is_named_is_built_and_run(made: str, project: Project) -> None:
    write_builder(project, f"subprocess.run(['docker', 'tag', {TEST_IMAGE!r}, {made!r}], check=True)")
    write_matrix(project, {FIRST: made}, build=True)
    words = project.command("--trt", FIRST, *PASSES, "--plan")
    planned = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert planned.startswith(f"{FIRST} on CPU: build, then run 1 cell in ")
    done = run_built(project)
    assert done.cell("passes")["verdict"] == "PASS"
    assert f"building {made}" in done.told
    again = project.run("--trt", FIRST, *PASSES)
    assert not again.cell("passes")["executed"]
    assert "building" not in again.told


@pytest.mark.usefixtures("made")
def test_a_build_that_fails_is_trouble_with_its_own_words(project: Project) -> None:
    write_builder(project, "sys.exit('docker/wheels/build: the base cannot be had')")
    done = run_built(project)
    assert done.code == 3
    assert f"{MADE} cannot be built: the base cannot be had" in done.told
    assert f"  ['--matrix={project.folder}/matrix.yaml', '{FIRST}']" in done.told
    assert f"nox -s image -- {FIRST}" in done.told
    cell = done.cell("passes")
    assert cell["excluded"]["why"] == "could not be made ready"
    assert "the base cannot be had" in cell["excluded"]["detail"]


@pytest.mark.usefixtures("made")
def test_the_projects_own_script_is_called_as_it_wants(project: Project) -> None:
    (project.folder / "docker").mkdir()
    (project.folder / "docker" / "wheels").symlink_to(BUILDER.parent)
    done = run_built(project)
    assert done.code == 3
    assert "onnxruntime==1.31.1" in done.told
    assert "later builds accept nothing else" in done.told


@pytest.fixture(autouse=True)
def _no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.mark.parametrize(("memory", "refused"), [(PROBE_LEAST_MEMORY - 1, True), (96 << 20, False)])
def test_a_memory_limit_that_is_refused_is_too_low(memory: int, *, refused: bool, project: Project) -> None:
    write_matrix(project, {FIRST: TEST_IMAGE})
    files = files_of(project.folder, HERE / "repros")
    context = open_context(project_of("run", *files, "--trt", FIRST, *PASSES))
    survey = take_survey(context, Pull.NAMED)
    options = Options(memory=memory, output_size=64 << 20, quiet=True, confirm=False)
    excluded = look_ahead(context, survey, options)[0].plan.excluded
    assert {item.why for item in excluded} == ({Exclusion.NO_MEMORY} if refused else set())
    (record,) = execute(context, survey, options).records
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
