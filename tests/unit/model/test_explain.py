"""The search over real graphs for the layer that makes ONNX Runtime wrong, and integers that are ties."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_case, make_cell, make_entry, make_record, make_repro
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper
from onnxmodels import FLOAT, INT64, make_model, node, saved, saved_outside

from trtmatrix.judge.noise import Calibration
from trtmatrix.model.explain import LEAST_FLOAT32, errors_of, read_graph, write_marked
from trtmatrix.model.explain_search import Errors, Search, search_for_layer
from trtmatrix.model.integers import compare_integers
from trtmatrix.model.outcomes import Integers, WrongLayer
from trtmatrix.onnxmodel.computing import compute
from trtmatrix.onnxmodel.sessions import Session
from trtprobe.measure import measure_output

Spoil = Callable[[ModelProto], ModelProto]

WIDTH = 8


def blocks(count: int) -> ModelProto:
    """Residual blocks in a chain (MatMul, Add, Tanh, MatMul, Add to what came in), and a Softmax."""
    random = np.random.RandomState(0)
    nodes, weights, before = [], {}, "x"
    for n in range(count):
        for name, shape in (("v", (WIDTH, WIDTH)), ("w", (WIDTH, WIDTH)), ("b", (WIDTH,))):
            weights[f"{name}{n}"] = random.standard_normal(shape).astype(np.float32)
        nodes += [
            node("MatMul", f"{before} v{n}", f"/{n}/up", name=f"/{n}/MatMul"),
            node("Add", f"/{n}/up b{n}", f"/{n}/biased", name=f"/{n}/Add"),
            node("Tanh", f"/{n}/biased", f"/{n}/act", name=f"/{n}/Tanh"),
            node("MatMul", f"/{n}/act w{n}", f"/{n}/down", name=f"/{n}/MatMul_1"),
            node("Add", f"{before} /{n}/down", f"/{n}/sum", name=f"/{n}/Add_1"),
        ]
        before = f"/{n}/sum"
    nodes.append(node("Softmax", before, "y", name="/Softmax", axis=-1))
    return make_model(nodes, {"x": (FLOAT, ["n", WIDTH])}, {"y": (FLOAT, ["n", WIDTH])}, weights)


def spoil(model: ModelProto, tensor: str, inside: Collection[str] = ()) -> ModelProto:
    """Return a copy in which a tensor is 1.02 times too large.

    As a wrong fusion does, it is right where one of the tensors inside of the fusion is an output.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    if {info.name for info in copy.graph.output} & set(inside):
        return copy
    place, maker = next((n, node) for n, node in enumerate(copy.graph.node) if tensor in node.output)
    maker.output[list(maker.output).index(tensor)] = "right"
    copy.graph.initializer.append(numpy_helper.from_array(np.array(1.02, np.float32), "factor"))
    copy.graph.node.insert(place + 1, node("Mul", "right factor", tensor))
    return copy


class Version:
    """ONNX Runtime as a version that runs another graph than it is given; it counts its runs."""

    def __init__(self, file: Path, folder: Path, spoiled: Spoil) -> None:
        self.file, self.folder, self.spoiled, self.runs = file, folder, spoiled, 0
        self.sample = {"x": np.random.RandomState(1).standard_normal((3, WIDTH)).astype(np.float32)}

    def measure(self, tensor: str) -> Errors:
        self.runs += 1
        marked = Path(tempfile.mkdtemp(dir=self.folder)) / "marked.onnx"
        write_marked(self.file, tensor, marked)
        computed = compute(marked, [self.sample], "fp32")
        wrong = marked.with_name("wrong.onnx")
        model = onnx.load(str(marked), load_external_data=False)
        wrong.write_bytes(self.spoiled(model).SerializeToString())
        outputs = Session(wrong).run(self.sample)
        floors: dict[str, float | str] = {}
        for name, array in outputs.items():
            error = float(measure_output(array, computed.references[0][name])["rel_l2"])
            members = computed.errors[0][name]
            floors[name] = error / max(LEAST_FLOAT32, *(members[m] for m in members if m.startswith("fp32")))
        return floors


def explain(model: ModelProto, folder: Path, spoiled: Spoil, save: Any = saved) -> tuple[WrongLayer, Version]:
    file = save(model, folder / "my.onnx")
    version, graph = Version(file, folder, spoiled), read_graph(file)
    floors = version.measure("")
    version.runs = 0
    told: list[str] = []
    found = search_for_layer(graph, floors, "1.31.1", version.measure, told.append)
    assert len(told) == len(found.steps) == version.runs <= Search(graph, floors).budget
    return found, version


@pytest.mark.parametrize(("tensor", "save"), [("/0/up", saved), ("/3/act", saved_outside), ("/5/sum", saved)])
def test_the_node_that_was_spoiled_is_named(tensor: str, save: Any, tmp_path: Path) -> None:
    model = blocks(6)
    found, version = explain(model, tmp_path, lambda m: spoil(m, tensor), save)
    node = next(node for node in model.graph.node if tensor in node.output)
    assert (found.tensor, found.node, found.operator) == (tensor, node.name, node.op_type)
    assert "noise floors" in found.error
    assert found.why_not == ""
    assert version.runs <= 9


def test_a_fusion_that_marking_breaks_is_named_with_its_region(tmp_path: Path) -> None:
    inside = ["/5/up", "/5/biased"]
    found, version = explain(blocks(8), tmp_path, lambda m: spoil(m, "/5/act", inside))
    assert found.tensor in inside
    assert "cures the failure" in found.error
    assert "up to /5/act, whose output is wrong" in found.error
    assert any("it does not fail any more" in step for step in found.steps)
    assert version.runs <= 14


def test_what_does_not_fail_again_is_told(tmp_path: Path) -> None:
    file = saved(blocks(4), tmp_path / "my.onnx")
    version = Version(file, tmp_path, lambda model: model)
    found = search_for_layer(read_graph(file), {"y": 100.0}, "1.31.1", version.measure, print)
    assert found.tensor == ""
    assert "the failure is not steady" in found.why_not
    assert version.runs == 2


def test_an_interrupt_keeps_what_is_known(tmp_path: Path) -> None:
    file = saved(blocks(8), tmp_path / "my.onnx")
    version = Version(file, tmp_path, lambda m: spoil(m, "/3/act"))

    def measure(tensor: str) -> Errors:
        if version.runs == 2:
            raise KeyboardInterrupt
        return version.measure(tensor)

    found = search_for_layer(read_graph(file), {"y": 100.0}, "10.8.0", measure, print)
    assert len(found.steps) == 2
    assert found.why_not.startswith("it was interrupted after 2 markings: it lies in the ")


NOISE = {
    "key": "k", "precision": "fp16", "defects": {}, "c": {},
    "outputs": {"y": {"fp16": 1e-3}, "act": {"fp16": 1e-3}, "flat": {"fp16": 0.0}},
}  # fmt: skip


def measured(**errors: float) -> dict[str, Any]:
    outputs = {name: {"count": 1, "nan_unexpected": 0, "rel_l2": error} for name, error in errors.items()}
    return {"measurements": {"outputs": outputs, "signatures": {}, "scalars": {}}, "engine": {}}


def test_of_several_builds_the_one_counts_whose_outputs_are_furthest_off() -> None:
    cell = make_cell(make_repro(make_case("fp16", limits={}, params={"precision": "fp16"})))
    builds = [measured(y=1e-3, act=1.0), measured(y=1e-1, act=1e-3, flat=2.0**-11)]
    record = make_record(cell, noise=NOISE, builds=builds)
    names = {"y": "y/0", "act": "/0/act", "flat": "flat"}
    found = errors_of(record, make_entry(cell), names, Calibration(), frozenset({"y/0"}), "")
    right = {"y/0": 100.0, "/0/act": 1.0, "flat": 1.0}
    assert found == pytest.approx(right), "one rounding is no error"


# An ArgMax whose winner the noise may change is no mistake; one that is far from it is.
RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 64)).astype(np.float32)
W = RNG.standard_normal((64, 10)).astype(np.float32)
W[:, 9] = W[:, 0] * np.float32(1 + 1e-7)
"""Class 9 has class 0's numbers, but for a rounding: a tie."""

Ints = NDArray[np.int64]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [
        node("MatMul", "x w", "scores"), node("ArgMax", "scores", "kept", axis=-1, keepdims=1),
        node("Squeeze", "kept last", "class"),
    ]  # fmt: skip
    inputs, outputs = {"x": (FLOAT, [32, 64])}, {"class": (INT64, [32])}
    made = make_model(nodes, inputs, outputs, {"w": W, "last": np.array([-1])}, opset=16)
    return saved(made, tmp_path / "m.onnx")


def compare(model: Path, *engines: Ints) -> Integers:
    """Hold engines' classes against the right ones."""
    feeds, right = [{"x": X}], [{"class": np.argmax(X.astype(np.float64) @ W, -1)}]
    given = {"10.8.0": [[{"class": classes}] for classes in engines]}
    (found,) = compare_integers(model, feeds, "fp32", right, given)
    return found


def test_the_reference_itself_needs_no_noise(model: Path) -> None:
    right = np.argmax(X.astype(np.float64) @ W, -1)
    found = compare(model, right)
    assert (found.count, found.differ, found.beyond) == (32, 0, 0)
    assert found.text == "class is the reference in all 32 elements"


def test_a_tie_may_come_out_otherwise_and_the_worst_engine_counts(model: Path) -> None:
    scores = X.astype(np.float64) @ W
    right = np.argmax(scores, -1)
    tied = np.flatnonzero(np.isin(right, (0, 9)))
    assert tied.size, "the test needs a row that 0 or 9 wins"
    other = right.copy()
    other[tied] = 9 - other[tied]
    found = compare(model, right, other)
    assert (found.differ, found.beyond) == (tied.size, 0)
    assert "all of them ties within the noise" in found.text
    wrong = other.copy()
    wrong[tied[0]] = int(np.argmin(scores[tied[0]]))
    found = compare(model, other, wrong, right)
    assert (found.differ, found.beyond) == (tied.size, 1)
    assert "in 1 of them by more than the noise" in found.text
    outside = right.copy()
    outside[0] = -1
    assert compare(model, outside).beyond == 1, "no class at all"
