"""What can be changed of a graph, and the files of a changed repro: one more output, one more row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_cell
from onnx import helper
from onnxmodels import FLOAT, make_model
from spoiling import WIDTH, blocks, save

from trtmatrix.changed_files import look_into, write_changed_repro
from trtmatrix.core.bundle.changes import Change, list_changes
from trtmatrix.effects.repro_files import LoadedRepro, read_repro
from trtmatrix.onnxmodel.batching import NoBatchError, add_row
from trtmatrix.onnxmodel.marking import choose_tensor, mark_made, read_markable
from trtmatrix.onnxmodel.sessions import Session


def softmax_inside() -> onnx.ModelProto:
    model = blocks(2)
    model.graph.node[-1].output[0] = "p"
    model.graph.node.append(helper.make_node("Relu", ["p"], ["y"]))
    return model


TENSORS = [(softmax_inside(), "p"), (blocks(1), "/0/down"), (blocks(2), "/1/up")]


@pytest.mark.parametrize(("model", "tensor"), TENSORS)
def test_the_tensor_is_softmax_s_or_in_the_middle(
    model: onnx.ModelProto, tensor: str, tmp_path: Path
) -> None:
    assert choose_tensor(read_markable(save(model, tmp_path))) == tensor


def test_a_graph_without_inner_tensors_has_none(tmp_path: Path) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, (2,))}, {"y": (FLOAT, (2,))})
    assert choose_tensor(read_markable(save(model, tmp_path))) == ""


@pytest.mark.parametrize("external", [False, True])
def test_a_marked_model_gives_one_output_more_and_else_the_same(external: bool, tmp_path: Path) -> None:
    file = save(blocks(1), tmp_path / "a", external=external)
    before = file.read_bytes()
    marked = mark_made(file, "/0/down", tmp_path / "b")
    assert isinstance(marked, Path)
    x = {"x": np.ones((3, WIDTH), np.float32)}
    outputs = Session(marked).run(x)
    assert list(outputs) == ["y", "/0/down"]
    np.testing.assert_array_equal(outputs["y"], Session(file).run(x)["y"])
    assert file.read_bytes() == before
    model = blocks(1)
    assert isinstance(copy := mark_made(model, "/0/down", tmp_path), onnx.ModelProto)
    assert (len(copy.graph.output), len(model.graph.output)) == (2, 1)


def samples(folder: Path, **arrays: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('_s', '.s')}.npy", array)
    return folder


def two_inputs(first: Any, second: Any, tmp_path: Path) -> Path:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    ends = {"a": (FLOAT, (first, 2)), "b": (FLOAT, (second, 2))}
    return save(make_model(nodes, ends, {"y": (FLOAT, (None, 2))}), tmp_path)


def test_a_row_more_is_the_last_one_again_in_every_sample(tmp_path: Path) -> None:
    model = two_inputs("n", 1, tmp_path)
    a = np.arange(4.0, dtype=np.float32).reshape(2, 2)
    folder = samples(tmp_path / "in", fa_s0=a, fb_s0=a[:1], fa_s1=a[:1], fb_s1=a[:1])
    profile = {"a": ((1, 2), (1, 2), (2, 2))}
    found = add_row(model, folder, {"fa": "a", "fb": "b"}, [".s0", ".s1"], profile)
    assert found.arrays["fa.s0"].tolist() == [[0, 1], [2, 3], [2, 3]]
    assert found.arrays["fa.s1"].tolist() == [[0, 1], [0, 1]]
    assert found.arrays["fb.s0"].shape == (1, 2)
    assert (found.profile, found.size) == ({"a": ((1, 2), (1, 2), (3, 2))}, 3)


@pytest.mark.parametrize(
    ("dims", "rows", "words"), [((2, 2), (2, 2), "fixed"), (("n", "n"), (2, 1), "differ in size")]
)
def test_why_there_is_no_batch_is_said(
    dims: tuple[Any, Any], rows: tuple[int, int], words: str, tmp_path: Path
) -> None:
    arrays = {name: np.ones((count, 2), np.float32) for name, count in zip("ab", rows, strict=True)}
    folder = samples(tmp_path / "in", **arrays)
    with pytest.raises(NoBatchError, match=words):
        add_row(two_inputs(*dims, tmp_path), folder, {"a": "a", "b": "b"}, [""], {})


OWN = """
FACTS = {"title": "t", "upstream": "your model", "url": "u", "summary": "s",
         "figure": {"measure": "floors", "label": "l"}}
SAMPLES, INPUTS, OUTPUTS = 1, {"x": "x"}, {"y": "y"}
PROFILE = {"x": ((1, 8), (2, 8), (2, 8))}


def cases():
    yield {"id": "tf32", "params": {"precision": "tf32"}}


def prepare(params):
    from pathlib import Path

    from trtmatrix.onnxmodel import preparing

    return preparing.prepare(Path(__file__), INPUTS, OUTPUTS, SAMPLES, "fp32")


def run(params, files, trt):
    return trt.build(files.model, profile=PROFILE).run(files.inputs)
"""


@pytest.fixture
def own(tmp_path: Path) -> LoadedRepro:
    """A user's own model as the cache has it, of two rows."""
    save(softmax_inside(), tmp_path / "own" / "model").rename(tmp_path / "own" / "model" / "model.onnx")
    samples(tmp_path / "own" / "inputs", x=np.ones((2, WIDTH), np.float32))
    file = tmp_path / "own" / "repros" / "mine.py"
    file.parent.mkdir()
    file.write_text(OWN)
    return read_repro(file)


def test_a_user_s_model_changed_lies_beside_its_model_and_samples(own: LoadedRepro, tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "model.onnx").write_bytes(softmax_inside().SerializeToString())
    case, cell = own.repro.cases[0], make_cell(own.repro)
    seen, batched = look_into(own, cell, tmp_path / "prepared")
    assert (seen.tensor, seen.operator, seen.own_batch) == ("p", "Softmax", 3)
    chosen = [change for change in list_changes(cell, seen) if change.id in {"marked", "batch", "level-5"}]
    folder = write_changed_repro(tmp_path, own, case, chosen, 3, batched)
    assert write_changed_repro(tmp_path, own, case, chosen, 3, batched) == folder
    changed = read_repro(folder / "mine.py")
    made = {c.params["change"]: changed.module.prepare(dict(c.params)) for c in changed.repro.cases[1:]}
    rows = {name: (len(m["inputs"]["x"]), len(m["reference"]["y"])) for name, m in made.items()}
    assert rows == {"marked": (2, 2), "batch": (3, 3), "level-5": (2, 2)}
    outputs = {name: [info.name for info in onnx.load(m["model"]).graph.output] for name, m in made.items()}
    assert outputs == {"marked": ["y", "p"], "batch": ["y"], "level-5": ["y"]}
    assert not list((tmp_path / "changes").glob(".partial-*"))


def test_what_is_no_model_says_so(own: LoadedRepro, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    seen, _ = look_into(own, make_cell(own.repro), tmp_path)
    assert "cannot be read" in seen.no_tensor
    (tmp_path / "check.onnx").touch()
    seen, _ = look_into(own, make_cell(own.repro, version="onnxruntime-1.31.1"), tmp_path)
    assert "another graph" in seen.no_tensor


def test_a_change_that_needs_no_samples_is_written_without_them(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text(OWN.replace("your model", "someone/else"))
    loaded = read_repro(file)
    level = Change(id="level-5", words="level 5", level=5)
    folder = write_changed_repro(tmp_path / "cache", loaded, loaded.repro.cases[0], [level], 3, None)
    assert [path.name for path in folder.parent.iterdir()] == ["repros"]
