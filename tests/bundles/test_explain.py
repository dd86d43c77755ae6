"""``upgrade --explain`` by the real command line, in real containers, whose starts are counted."""

from pathlib import Path
from typing import Any

import numpy as np
from onnxmodels import FLOAT, make_model, node, saved

from tests.bundles.conftest import RIGHT, WRONG, columns, count_starts
from tests.bundles.deep import write_deep
from tests.calling import Done, Project
from tests.models import images

OTHER_AXIS = """

class _TakesAnotherAxis(InferenceSession):
    \"\"\"Takes the axes [2] of opset 18's Reduce operators for [1]: a reduced tensor has another shape.\"\"\"

    def __init__(self, path_or_bytes, *args, **kwargs):
        with open(path_or_bytes, "rb") as stream:
            content = stream.read()
        right, wrong = (b"\\x4a\\x08" + bytes([axis, 0, 0, 0, 0, 0, 0, 0]) for axis in (2, 1))
        super().__init__(content.replace(right, wrong), *args, **kwargs)


InferenceSession = _TakesAnotherAxis
"""
ABORTS = f"""{images.DEFECT}

def InferenceSession(*args, **kwargs):
    session = _LosesScale(*args, **kwargs)
    if "q" in [output.name for output in session.get_outputs()]:
        __import__("os").abort()
    return session
"""


def write_mean(folder: Path) -> Path:
    """Write mean(x²) of opset 18, whose axes are an input."""
    nodes = [node("Mul", "x x", "sq"), node("ReduceMean", "sq axes", "ms", keepdims=0)]
    ends = {"x": (FLOAT, [2, 24, 64])}, {"ms": (FLOAT, [2, 24])}
    (folder / "inputs").mkdir(parents=True)
    random = np.random.RandomState(0)
    x = random.standard_normal((2, 24, 64)) * np.exp(random.uniform(-1.5, 1.5, (2, 24, 1)))
    np.savez(folder / "inputs" / "0.npz", x=x.astype(np.float32))
    return saved(make_model(nodes, *ends, {"axes": np.array([2])}, opset=18), folder / "model.onnx")


CHECK = """\
def check(before, after, reference):
    far = [[float(abs(o['y'] - r['y']).max()) for o, r in zip(these, reference)] for these in (before, after)]
    print('hello')
    return max(far[1]) < 10 * max(far[0]), max(far[1]), f'worst error of {len(reference)}'
"""


def explain(project: Project, model: Path, *words: str) -> tuple[dict[str, Any], Done]:
    """Ask whether to move from the right version to the wrong one, and return the first wrong layer."""
    asked = (f"--model={model}", f"--inputs={model.parent / 'inputs'}", "--precision=fp32", "--explain")
    done = project.call("upgrade", f"--from={RIGHT}", f"--to={WRONG}", *asked, *words, "--json")
    assert done.code == 11, done.told + done.printed
    (layer,) = done.data["models"][0]["wrong_layers"]
    return layer, done


def test_the_wrong_layer_is_named_with_one_container_for_all_and_then_from_records(tmp_path: Path) -> None:
    images.make_defective()
    project, script = Project(tmp_path, columns=columns()), tmp_path / "accept.py"
    script.write_text(CHECK)
    model = write_deep(tmp_path / "deep")
    with count_starts() as started:
        layer, done = explain(project, model, f"--check={script}")
    assert (layer["tensor"], layer["operator"], layer["why_not"]) == ("scores", "Mul", ""), done.told
    assert "what it is computed from is right: raw" in layer["error"]
    assert len([step for step in layer["steps"] if "marked" in step]) >= 3
    assert sorted(started) == [RIGHT, WRONG, WRONG]  # the model at both, and one for all that was marked
    (told,) = done.data["models"]
    (difference,), check = told["differences"], told["check"]
    assert (difference["output"], difference["samples"], difference["nan"]) == ("y", 2, 0)
    assert difference["rel_l2"] > 1e-4
    assert (check["passed"], check["label"], check["error"]) == (False, "worst error of 2", "")
    assert check["figure"] > 1e-3
    assert "hello" in done.told
    assert not list((tmp_path / "cache" / "explain").glob(".marking-*"))
    with count_starts() as started:
        assert explain(project, model)[0] == layer
    assert started == []


def test_an_output_of_another_shape_is_a_failure_that_is_explained_and_minimised(tmp_path: Path) -> None:
    image = images.make_spoilt("trtmatrix/test-reduces:latest", OTHER_AXIS)
    project = Project(tmp_path, columns=columns(image))
    model = write_mean(tmp_path / "flat")
    ran = project.run(model, "--precision=fp32")
    assert ran.verdicts() == {RIGHT: "PASS", WRONG: "FAIL"}, ran.told
    said = "wrong shape: (2, 64) instead of (2, 24)"
    assert said in ran.printed
    assert "probe failed" not in ran.printed
    layer, _ = explain(project, model)
    assert (layer["tensor"], layer["operator"]) == ("ms", "ReduceMean"), layer
    assert said in layer["error"]
    (cell,) = (cell["id"] for cell in ran.data["cells"] if cell["version"] == WRONG)
    small = project.call_bare("minimise", cell, *project.files, f"--to={tmp_path / 'small'}", "--json")
    assert small.code == 0, small.told
    assert (small.data["after"]["nodes"], said in small.data["manner"]) == (1, True)


def test_a_marking_that_crashes_costs_its_process_and_not_the_search(tmp_path: Path) -> None:
    image = images.make_spoilt("trtmatrix/test-aborts-at-q:latest", ABORTS)
    project = Project(tmp_path, columns=columns(image))
    with count_starts() as started:
        layer, done = explain(project, write_deep(tmp_path / "deep"))
    assert layer["tensor"] == "scores", done.told
    assert any("could not be run: crashed" in step for step in layer["steps"]), layer["steps"]
    assert started.count(WRONG) == 2
