"""``reproduce.sh`` and ``environment.json`` as texts; ``tests/containers`` runs the script."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from failures import BUILD, CONTROL, EACH, ONNXRUNTIME, OWN
from goldenfile import FOLDER, check_golden

from trtmatrix.core.bundle.environment import environment_json
from trtmatrix.core.bundle.facts import Image
from trtmatrix.core.bundle.run_script import render_reproduce
from trtmatrix.core.model import CellId

GOLDEN = FOLDER / "bundle"
BARE = replace(ONNXRUNTIME, image=None)
SAMPLES = ("control", "bare")
"""With an image that may have to be built, and without any; the others differ in a line or two."""


@pytest.mark.parametrize("name", [*EACH, "bare"])
def test_sample(name: str, tmp_path: Path) -> None:
    text = render_reproduce(EACH.get(name, BARE))
    (tmp_path / "reproduce.sh").write_text(text)
    done = subprocess.run(["/bin/sh", "-n", tmp_path / "reproduce.sh"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if name in SAMPLES:
        check_golden(f"reproduce-{name}.sh", text, GOLDEN)


def test_the_image_is_named_by_its_digest_first() -> None:
    assert re.search(r"^reference=nvcr.io/nvidia/tensorrt@sha256:e{64}$", render_reproduce(OWN), re.MULTILINE)
    assert re.search(r"^reference=''\nid=sha256:c{64}$", render_reproduce(CONTROL), re.MULTILINE)


def test_a_gpu_is_asked_for_where_there_was_one() -> None:
    assert '"${GPU_OPTIONS=--gpus device=0}"' in render_reproduce(OWN)
    assert '"${GPU_OPTIONS=}"' in render_reproduce(ONNXRUNTIME)


def test_an_image_that_cannot_be_built_is_said_to_be_so() -> None:
    assert "does not say how it" in render_reproduce(BUILD)
    assert "sh image/build.sh" in render_reproduce(CONTROL)


def test_names_are_no_shell(tmp_path: Path) -> None:
    odd = 'a\'; touch bad; $(touch bad) `touch bad` "; touch bad; " \\'
    failure = replace(
        CONTROL, title=f"x\n touch bad {odd}", cell=CellId(repro="r", case="c", version="8.6.0", gpu="g"),
        image=Image(name=odd, id=odd, reference=odd, tag=odd, build="false"),
    )  # fmt: skip
    script = tmp_path / "reproduce.sh"
    script.write_text(render_reproduce(failure))
    done = subprocess.run(
        ["/bin/sh", script], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "DOCKER": "true", "UNCHECKED": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 125}, done.stderr
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("name", ["control", "onnxruntime"])
def test_environment(name: str) -> None:
    text = environment_json(EACH[name])
    check_golden(f"environment-{name}.json", text, GOLDEN)
    assert json.loads(text)["image"]["id"] == getattr(EACH[name].image, "id", "")


def test_what_is_not_known_is_null() -> None:
    found = json.loads(environment_json(BARE))
    assert found["image"] is None
    assert found["driver"] is None
    assert found["clocks"] is None
