"""ONNX files that are damaged, large or refused by a version, over stand-ins and real ONNX Runtimes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.probe.jobs import GRAPH, MAIN, PROBE, Job, Step, X, add_weights, relu_then
from tests.probe.pythons import environment, find_pythons
from trtprobe import ends
from trtprobe.onnxfile import Model, OnnxFile, read_onnx

MINE = relu_then("Mine", opset=23, domain="com.example").SerializeToString()


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 400), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_damage_never_raises(cut: int, at: int, byte: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray(MINE)
    content[at % len(content)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(bytes(content[: len(content) - cut % len(content)]))
    read_onnx(path)
    path.write_bytes(b"")
    assert read_onnx(path) == OnnxFile({}, ())


def test_the_key_follows_the_weights_without_reading_them(tmp_path: Path) -> None:
    path, weights = add_weights(tmp_path), tmp_path / "weights.bin"
    first = Model(path).key()
    assert Model(path).key() == first
    weights.write_bytes(weights.read_bytes()[::-1])
    os.utime(weights, ns=(1, 1))
    assert Model(path).key() != first, "nothing tells its content: the time does"
    keys = set()
    for told in ({"weights.bin": "a"}, {"weights.bin": "b"}, {}):
        (tmp_path / "case.json").write_text(json.dumps({"content": "c", "external": told}))
        for time in (2, 3):
            os.utime(weights, ns=(time, time))
            keys.add(Model(path).key())
    assert len(keys) == 3, "what case.json tells counts, the time no longer"
    os.truncate(weights, 100)
    assert Model(path).key() not in keys
    with pytest.raises(ends.BuildFailed, match=r"there is no model other.onnx"):
        Model(tmp_path / "other.onnx")


READ = """
import resource, sys
from pathlib import Path
from trtprobe.onnxfile import Model
model = Model(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert model.must_stay_a_file and model.onnx.opsets == {"": 17}
print(len(model.key()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_three_gigabytes_are_not_read_into_python(version: str, python: Path, tmp_path: Path) -> None:
    """The file is sparse: it takes no room, and reading it would show in the process's size."""
    path = add_weights(tmp_path)
    (tmp_path / "case.json").write_text(json.dumps({"params": {}, "content": "c"}))
    os.truncate(tmp_path / "weights.bin", 3 << 30)
    done = subprocess.run(
        [python, "-c", READ, str(path)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(PROBE.parent)}, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    length, kilobytes = map(int, done.stdout.split())
    assert length == 64
    assert kilobytes < 64 << 10, version


LAYER, REFUSED = "LayerNormalization", "; the parser refused the graph: "
GONE = (
    "In node 1 (importFallbackPluginImporter): UNSUPPORTED_NODE: Assertion failed: creator && "
    '"Plugin not found, are the plugin name, version, and namespace correct?"'
)
RESIZE = "In node 1 (importResize): UNSUPPORTED_NODE: Assertion failed: mode"
ONE_OUTPUT = f"In node 1: UNSUPPORTED_NODE: TensorRT does not support more than 1 outputs for {LAYER}"
WRONG = "In node 1: INVALID_GRAPH: no such input"
REFUSALS = {  # release → the second node's operator, the opset, what the parser says, what is said of it
    "8.5.3.1": [(LAYER, 17, GONE, f"no importer for {LAYER} (node /net/second)")],
    "10.7.0": [
        (LAYER, 17, GONE, f"no importer for {LAYER} (node /told/{LAYER})"),
        ("Resize", 19, RESIZE, "it does not support Resize (node /told/Resize)"),
        (LAYER, 17, ONE_OUTPUT, f"it does not support more than one output of {LAYER} (node /told/{LAYER})"),
        ("Relu", 17, WRONG, ""),
    ],
}


@pytest.mark.parametrize("release", REFUSALS)
def test_what_the_parser_refuses_is_named_with_its_node(driver: Path, release: str, tmp_path: Path) -> None:
    steps: list[Step] = []
    ends = {}
    for operator, opset, error, why in REFUSALS[release]:
        code = "UNSUPPORTED_NODE" if why else "INVALID_GRAPH"
        standin = {**GRAPH, "refuses": [[error, code, 1, operator]]}
        graph = relu_then(operator, opset=opset, standin=standin).SerializeToString()
        said = f"{release} cannot parse opset {opset}: {why}{REFUSED}{error}"
        ends[len(steps)] = (
            ("unsupported by this version", said) if why else ("build failed", REFUSED[2:] + error)
        )
        steps.append(Step(does="own-model", graph=graph, inputs={"x": X}))
    job = Job(tmp_path, steps)
    assert job.run(MAIN, driver, STANDIN_TENSORRT=release) == 0, job.log()
    assert job.ends() == ends


RUN = """
import json, sys
from pathlib import Path
import numpy as np
from trtprobe import ends
from trtprobe.backends import open_backend
from trtprobe.plans import Plans
backend, told = open_backend("onnxruntime"), {}
for path in map(Path, sys.argv[1:]):
    backend.begin(Plans(path.parent, path.parent.name))
    try:
        y = backend.build(path).run({"x": np.ones((2, 3), np.float32)})["y"]
        told[path.parent.name] = ["ran", y.tolist(), backend.facts]
    except ends.CellEnd as end:
        told[path.parent.name] = [end.ended, str(end), backend.facts]
print(json.dumps([backend.observed()["library"], told]))
"""
OLDEST = ("3.8", "1.16.3")
SEEDS = {"weights": 0, "same": 0, "others": 1}


@pytest.fixture(scope="module", params=["here", *(["oldest"] if OLDEST[0] in find_pythons() else [])])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    python = MAIN
    if request.param == "oldest":
        python = environment(OLDEST[0], ("numpy", f"onnxruntime=={OLDEST[1]}"))
    folder = tmp_path_factory.mktemp("models")
    models = {
        "opset": relu_then(opset=99), "custom": relu_then("Mine", domain="com.example"),
        "unknown": relu_then("LayerNorm"), "ir": relu_then(), "broken": relu_then(), "plain": relu_then(),
    }  # fmt: skip
    models["ir"].ir_version = 99
    models["broken"].graph.node[1].input[0] = "nowhere"
    for name, model in models.items():
        (folder / name).mkdir()
        (folder / name / "model.onnx").write_bytes(model.SerializeToString())
    for name, seed in SEEDS.items():
        add_weights(folder / name, seed=seed)
        told = {"external": {"weights.bin": str(seed)}}
        (folder / name / "case.json").write_text(json.dumps(told))
    files = [str(folder / name / "model.onnx") for name in [*models, *SEEDS]]
    done = subprocess.run(
        [python, "-c", RUN, *files], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": str(PROBE.parent), "ORT_DISABLE_TELEMETRY": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, outcome = json.loads(done.stdout)
    return version, outcome


HEADS = {
    "opset": "cannot read opset 99, only up to opset ",
    "custom": "cannot run opset 17 with com.example 1: it has no operator Mine (node /net/second); ",
    "unknown": "cannot run opset 17: it has no operator LayerNorm (node /net/second); ",
    "ir": "cannot read opset 17, only up to IR version ",
}


@pytest.mark.parametrize("model", HEADS)
def test_onnx_runtime_s_refusals_are_answers(told: tuple[str, Any], model: str) -> None:
    version, outcome = told
    how, detail, _ = outcome[model]
    assert how == "unsupported by this version"
    assert detail.startswith(f"ONNX Runtime {version} {HEADS[model]}"), detail
    assert "/model.onnx" not in detail, "the file's place differs from run to run"
    assert "onnxruntime/core" not in detail


def test_weights_are_found_beside_the_model_and_told_apart_in_the_memo(told: tuple[str, Any]) -> None:
    outcome = told[1]
    for name, seed in SEEDS.items():
        w = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
        assert outcome[name][0] == "ran", outcome[name]
        assert outcome[name][1] == (w + np.float32(1)).tolist()
    served = {name for name, (_, _, facts) in outcome.items() if "same_bytes_as_an_earlier_cell" in facts}
    assert served == {"same"}
