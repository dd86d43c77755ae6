"""Images that a run gets first: pulled from a real registry behind a slow line, or built by a script."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.registry import TEST_IMAGE, Registry, forget, open_registry
from bench.throttle import Throttle
from projects import matrix_text

from tests.containers.conftest import LIMITS, Done, Project
from tests.containers.engines import client

PASSES = ("--repro", "endings", "--case", "passes")
FIRST, SECOND = "onnxruntime-1.31.1", "onnxruntime-1.31.1.1"
BALLAST, RATE = 6 << 20, 3 << 20
BUILDER = Path(__file__).resolve().parents[2] / "docker" / "wheels" / "build"
MADE = "trtmatrix/test-made:1"


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """Serve two images of different content; fails where there is no docker-registry."""
    with open_registry() as opened:
        for tag in ("one", "two"):
            opened.push_with_ballast(tag, BALLAST)
        yield opened


@pytest.fixture
def line(registry: Registry) -> Iterator[Throttle]:
    """Open a slow line to the registry; images that came over it go again."""
    with Throttle(registry.port, RATE) as throttle:
        yield throttle
        forget(registry.client, *(registry.name(tag, throttle.port) for tag in ("one", "two")))


def write_matrix(project: Project, images: dict[str, str], *, build: bool = False) -> None:
    """Write a matrix.yaml of versions whose image ships ONNX Runtime 1.31.1."""
    made: dict[str, Any] = {"build": {"base": TEST_IMAGE, "wheels": ["onnxruntime==1.31.1"]}}
    more = made if build else {}
    columns = [(version, {"image": image, **more}, "1.31.1") for version, image in images.items()]
    (project.folder / "matrix.yaml").write_text(matrix_text(*columns))


def test_two_versions_are_pulled_and_run_and_the_second_is_pulled_meanwhile(
    registry: Registry, line: Throttle, project: Project
) -> None:
    one, two = (registry.name(tag, line.port) for tag in ("one", "two"))
    write_matrix(project, {FIRST: one, SECOND: two})
    done = project.run("--trt", f"{FIRST},{SECOND}", *PASSES)
    assert [done.cell("passes", version)["verdict"] for version in (FIRST, SECOND)] == ["PASS"] * 2
    assert f"pulling {one}" in done.told
    assert f"pulling {two}" in done.told
    assert 2 * BALLAST < line.passed < 2.1 * BALLAST
    pulls = [done.told.index(f"pulling {image}") for image in (one, two)]
    assert max(pulls) < done.told.index("  [1/2] "), "the second's pull had begun before the first had run"


def test_a_locked_run_is_done_in_what_was_locked_though_the_tag_moved(
    registry: Registry, project: Project
) -> None:
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
    """Name an image that is not there, and remove it afterwards."""
    forget(client(), MADE)
    yield MADE
    forget(client(), MADE)


def write_builder(project: Project, code: str) -> None:
    """Put a stand-in for docker/wheels/build beside matrix.yaml."""
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
