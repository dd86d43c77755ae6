"""Doctor's words: what to type next for an image that is not here; how the controls came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime
import pytest
from builders import H200, make_case, make_cell, make_control, make_entry, make_repro, read_version

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import MachineryError
from trtmatrix.images.doctor import image_finding
from trtmatrix.images.rules import Level
from trtmatrix.launchers import docker_engine, interpreters
from trtmatrix.run.controls import _finding
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Control
from trtmatrix.suite.plan import Engine

FACT = {"value": "9.2.0", "known": "read", "source": "notes"}
PULLED = {"image": "example.org/tensorrt:9.2.0"}
MADE = {
    "image": "ours/tensorrt:9.2.0",
    "build": {"base": "example.org/base:1", "wheels": ["tensorrt-libs==9.2.0"]},
}


@pytest.mark.parametrize(
    ("origin", "here", "found", "remedy"),
    [
        (
            MADE,
            (),
            "ours/tensorrt:9.2.0: image not built",
            "name the version by --trt (a run pulls or builds it)",
        ),
        (MADE, ("ours/tensorrt:9.2.0",), "ours/tensorrt:9.2.0: sha256:000000000000", ""),
        (
            PULLED,
            (),
            "example.org/tensorrt:9.2.0: image not pulled (not locked)",
            "name the version by --trt (a run pulls or builds it)",
        ),
    ],
)
def test_an_image_that_is_not_here_comes_with_the_command_that_gets_it(
    origin: dict[str, object], here: tuple[str, ...], found: str, remedy: str
) -> None:
    version = read_version({"version": "9.2.0", "origin": origin, "library": FACT})
    assert isinstance(version.origin, ImageOrigin)
    engine = Engine(available=True, images=dict.fromkeys(here, f"sha256:{'0' * 64}"))
    finding = image_finding(version, version.origin, engine)
    assert (finding.found, finding.remedy[: len(remedy)] if remedy else finding.remedy) == (found, remedy)


POSITIVE = make_case("matmul", control=Control.POSITIVE)
NEGATIVE = make_control("wrong-scale")
REPRO = make_repro(POSITIVE, NEGATIVE, id="controls")
RIGHT, WRONG = 1.0, 1e6
ROWS: dict[str, tuple[dict[str, object], dict[str, object], Level, str]] = {
    "right": ({"value": RIGHT}, {"value": WRONG}, Level.GOOD, "2 of 2 as they must"),
    "negative passes": (
        {"value": RIGHT}, {"value": RIGHT}, Level.TROUBLE,
        "1 of 2 as they must: wrong-scale came out PASS (1 build) instead of FAIL",
    ),
    "positive fails": (
        {"value": WRONG}, {"value": WRONG}, Level.TROUBLE,
        "1 of 2 as they must: matmul came out FAIL (1 build) instead of PASS (sum_abs 1e+06 > 690)",
    ),
    "one crashed": (
        {"ended": "crashed"}, {"value": WRONG}, Level.GOOD,
        "1 of 1 as they must; 1 NO VERDICT (crashed)",
    ),
    "none ran": (
        {"ended": "time-out"}, {"ended": "time-out"}, Level.LACKING,
        "none could be judged; 2 NO VERDICT (time-out)",
    ),
    "built": ({"ended": "built"}, {"ended": "built"}, Level.GOOD, "none could be judged; 2 BUILT"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_controls_are_told_by_what_came_out(name: str) -> None:
    positive, negative, level, words = ROWS[name]
    pairs = ((POSITIVE, positive), (NEGATIVE, negative))
    entries = [make_entry(make_cell(REPRO, case, gpu=H200), **fields) for case, fields in pairs]  # type: ignore[arg-type] # a table of keywords
    finding = _finding("controls of 10.7.0 on NVIDIA H200", entries)
    assert (finding.level, finding.found) == (level, words)
    assert bool(finding.remedy) is (level is Level.TROUBLE)


MATRIX = """\
schema: 1
sources:
  here: {{title: "This test"}}
versions:
  - version: "onnxruntime-1.0"
    product: onnxruntime
    origin: {{interpreter: "{python}"}}
    library: {{value: "{library}", known: measured, source: here}}
"""
CONTROLS = """\
import numpy as np

FACTS = {
    "title": "controls", "upstream": "x/y#1", "url": "https://example.com/1", "summary": "One of each kind.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}


def cases():
    for name, control, shift in (("plain", "positive", 0), ("shifted", "negative", SHIFT)):
        yield {"id": name, "params": {"shift": shift}, "limits": {"max_abs": 0.0}, "control": control}


def prepare(params):
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params, files, trt):
    return {"y": trt.build(files.model).run(files.inputs)["y"] + np.float32(params["shift"])}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one version, ONNX Runtime in this Python, and no container engine."""
    (tmp_path / "matrix.yaml").write_text(
        MATRIX.format(python=sys.executable, library=onnxruntime.__version__)
    )
    (tmp_path / "repros").mkdir()
    (tmp_path / "repros" / "controls.py").write_text(CONTROLS.replace("SHIFT", "1"))
    monkeypatch.setattr(docker_engine, "find_engine", lambda **_: Engine(available=False, reason="none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_doctor_runs_the_controls_once_and_then_has_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert cli.run(["doctor"]) == 0
        assert "[ok] controls of onnxruntime-1.0 on CPU: 2 of 2 as they must" in capsys.readouterr().out
    assert len(list((project / "results" / "local").rglob("*.json"))) == 2


def test_a_control_that_comes_out_wrong_is_trouble(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "repros" / "controls.py").write_text(CONTROLS.replace("SHIFT", "0"))
    assert cli.run(["doctor", "--json"]) == 3
    (finding,) = json.loads(capsys.readouterr().out)["controls"]
    assert finding["level"] == "!!"
    assert finding["found"] == "1 of 2 as they must: shifted came out PASS instead of FAIL"


def test_doctor_only_looks_where_that_is_wanted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--no-controls"]) == 0
    assert "controls of" not in capsys.readouterr().out
    assert not (project / "results").exists()
    assert not (project / "cache").exists()


def test_a_version_that_cannot_be_made_ready_is_no_trouble_of_the_controls(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise MachineryError("onnxruntime==1.0 could not be installed: no network")

    monkeypatch.setattr(interpreters, "make_environment", no_network)
    matrix = project / "matrix.yaml"
    matrix.write_text(
        matrix.read_text().replace(f'interpreter: "{sys.executable}"', 'wheels: ["onnxruntime==1.0"]')
    )
    assert cli.run(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "[--] controls of onnxruntime-1.0: could not be made ready: onnxruntime==1.0 could not" in told
    assert "     -> check network, proxy and PIP_INDEX_URL" in told
