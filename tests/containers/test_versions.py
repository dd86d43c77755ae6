"""Images that are there, not there, and not what they are pinned for; and the plan, typed by hand."""

from __future__ import annotations

import subprocess

import pytest

from tests.containers.conftest import GOOD, Done, Project

PASSES = ("--repro", "endings", "--case", "passes")
MISSING, MISPINNED, RTX = "onnxruntime-1.29.0", "onnxruntime-1.30.0", "tensorrt-rtx-1.7"


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Run one case on each version, none of them named."""
    return Project(tmp_path_factory.mktemp("versions")).run(*PASSES)


def test_tensorrt_rtx_parses_and_builds_without_a_gpu(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", RTX)
    assert cell["verdict"] == "BUILT", cell["reason"]
    assert "parsed and built" in cell["reason"]


@pytest.mark.engines
def test_another_library_than_pinned_is_no_verdict(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", MISPINNED)
    assert (cell["verdict"], cell["cause"]) == ("NO VERDICT", "version mismatch")
    assert cell["reason"] == "pinned for 1.30.0, the image or wheel ships 1.31.1"
    assert all_of_them.code == 3


def test_the_same_image_rightly_pinned_passes(all_of_them: Done) -> None:
    assert all_of_them.cell("passes")["verdict"] == "PASS"


def test_an_image_that_nobody_named_is_not_pulled(all_of_them: Done) -> None:
    cell = all_of_them.cell("passes", MISSING)
    assert cell["verdict"] is None
    assert cell["excluded"]["why"] == "image not pulled"
    assert "cannot be had" not in all_of_them.told


@pytest.mark.engines
def test_the_plan_starts_nothing_and_writes_nothing(project: Project) -> None:
    words = project.command("--trt", GOOD, *PASSES, "--plan")
    planned = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert planned.splitlines()[0].startswith(f"{GOOD} on CPU: run 1 cells in ")
    assert not project.results.exists()
    assert not project.cache.exists()
