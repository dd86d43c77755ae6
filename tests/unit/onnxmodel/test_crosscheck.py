"""ONNX's evaluator where it is wrong: its operators are corrected, and what is left in doubt is no reference.

The right numbers are those of ONNX Runtime, or are written out here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnxmodels import FLOAT, Array, make_model, node, normal, saved

from trtmatrix.onnxmodel.computing import Computed
from trtmatrix.onnxmodel.crosscheck import compute
from trtmatrix.onnxmodel.preparing import OwnModel
from trtmatrix.onnxmodel.sessions import Session, SingleNode

POSITIVE = np.abs(normal(6, seed=4)) + np.float32(0.1)
BATCH = {"s": normal(6, seed=1), "b": normal(6, seed=2), "m": normal(6, seed=3), "v": POSITIVE}
BOXES = {"r": np.array([[0, 0, 5, 5], [1.3, 2.1, 6.7, 7]], np.float32), "i": np.array([0, 0])}
IMAGE = (2, 6, 8, 9)
CEILED = {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1}

Made = tuple[str, str, tuple[int, ...], Mapping[str, Array], int, Mapping[str, Any]]
MODELS: Mapping[str, Made] = {
    "BatchNormalization-7": ("BatchNormalization", "x s b m v", IMAGE, BATCH, 7, {}),
    "BatchNormalization-11": ("BatchNormalization", "x s b m v", IMAGE, BATCH, 11, {"momentum": 0.7}),
    "BatchNormalization-13": ("BatchNormalization", "x s b m v", IMAGE, BATCH, 13, {}),
    "Softmax-11": ("Softmax", "x", (2, 3, 4), {}, 11, {}),
    "Softmax-12-negative": ("Softmax", "x", (2, 3, 4), {}, 12, {"axis": -2}),
    "LogSoftmax-11": ("LogSoftmax", "x", (2, 3, 4), {}, 11, {"axis": 0}),
    "Hardmax-11": ("Hardmax", "x", (2, 3, 4), {}, 11, {}),
    "LRN": ("LRN", "x", IMAGE, {}, 13, {"size": 5, "alpha": 0.3}),
    "LpNormalization": ("LpNormalization", "x", IMAGE, {}, 17, {"p": 1, "axis": 1}),
    "GlobalMaxPool-1d": ("GlobalMaxPool", "x", (2, 6, 8), {}, 17, {}),
    "MaxPool-pads": ("MaxPool", "x", IMAGE, {}, 11, {"kernel_shape": [3, 2], "pads": [0, 0, 1, 1]}),
    "MaxPool-lower": (
        "MaxPool", "x", IMAGE, {}, 11,
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "AveragePool-ceil": ("AveragePool", "x", (2, 6, 7, 8), {}, 11, CEILED),
    "AveragePool-ceil-pads": (
        "AveragePool", "x", (2, 6, 7, 8), {}, 19, {**CEILED, "pads": [1] * 4, "count_include_pad": 1},
    ),
    "ConvTranspose-groups": (
        "ConvTranspose", "x w s", IMAGE, {"w": normal(6, 2, 3, 3, seed=1), "s": BATCH["s"]}, 11,
        {"group": 3, "strides": [2, 2]},
    ),
    "RoiAlign-10": (
        "RoiAlign", "x r i", (1, 2, 8, 8), BOXES, 10,
        {"output_height": 3, "output_width": 2, "sampling_ratio": 2},
    ),
}  # fmt: skip


def one_node(made: Made) -> ModelProto:
    op, inputs, shape, weights, opset, attributes = made
    nodes = [node(op, inputs, "y", **attributes)]
    return make_model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, None)}, weights, opset=opset)


def computed_of(model: ModelProto, path: Path, x: Array, *, independent: bool = True) -> Computed:
    return compute(saved(model, path), [{"x": x}], "fp32", independent=independent)


def test_a_pool_of_before_count_include_pad_has_a_reference(tmp_path: Path) -> None:
    """ONNX Runtime itself does not have it any more."""
    model, x = (
        one_node(("AveragePool", "x", (1, 1, 2, 2), {}, 6, {"kernel_shape": [2, 2]})),
        normal(1, 1, 2, 2),
    )
    assert computed_of(model, tmp_path / "m.onnx", x).references[0]["y"] == pytest.approx(x.mean(), abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_corrected_operator_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    x = normal(*MODELS[name][2])
    computed = computed_of(one_node(MODELS[name]), tmp_path / "m.onnx", x)
    single = Session(tmp_path / "m.onnx").run({"x": x})["y"]
    assert computed.by.startswith("onnx.reference")
    assert computed.instead == computed.why_not == ""
    assert computed.references[0]["y"].shape == single.shape
    assert np.allclose(computed.references[0]["y"], single, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("independent", [True, False])
def test_small_sums_of_squares_are_not_lost(independent: bool, tmp_path: Path) -> None:
    """With the usual alpha the evaluator is wrong by less than it is believed with: ALIKE."""
    model = make_model([node("LRN", "x", "y", size=5)], {"x": (FLOAT, [1, 8, 4, 4])}, {"y": (FLOAT, None)})
    x = 3 * normal(1, 8, 4, 4)
    computed = computed_of(model, tmp_path / "m.onnx", x, independent=independent)
    wide = x.astype(np.float64)
    sums = np.stack([(wide[:, max(0, c - 2) : c + 3] ** 2).sum(axis=1) for c in range(8)], axis=1)
    assert np.allclose(computed.references[0]["y"], wide / (1 + 1e-4 / 5 * sums) ** 0.75, rtol=1e-6)


def test_a_log_of_a_softmax_that_is_zero_is_finite(tmp_path: Path) -> None:
    model = make_model([node("LogSoftmax", "x", "y")], {"x": (FLOAT, [1, 2])}, {"y": (FLOAT, None)})
    computed = computed_of(model, tmp_path / "m.onnx", np.array([[0, 2000]], np.float32))
    assert computed.references[0]["y"].tolist() == [[-2000, 0]]


@pytest.mark.parametrize("order", [0, 1])
def test_a_pool_says_where_its_maxima_are(order: int) -> None:
    from trtmatrix.onnxmodel.evaluator import SingleNode as Corrected

    made = node(
        "MaxPool", "x", "y i", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 0, 0], storage_order=order
    )
    single = Corrected(made, one_node(MODELS["LRN"]).opset_import)
    feeds = {"x": normal(2, 3, 7, 8)}
    mine, theirs = single.by_evaluator(feeds), single.by_runtime(feeds)
    assert all(np.array_equal(mine[name], theirs[name]) for name in ("y", "i"))


# What stays in doubt.
def squared() -> ModelProto:
    nodes = [node("Mul", "x x", "s"), node("Sqrt", "s", "y")]
    return make_model(nodes, {"x": (FLOAT, [4, 8])}, {"y": (FLOAT, [4, 8])})


def off_by(monkeypatch: pytest.MonkeyPatch, factor: float, op: str, *types: str) -> None:
    """Let ONNX Runtime be off at one operator in these types, as no release is on demand."""
    run = SingleNode.by_runtime

    def wrong(self: SingleNode, feeds: Mapping[str, Any]) -> dict[str, Any]:
        found = run(self, feeds)
        is_wrong = self.node.op_type == op and str(next(iter(found.values())).dtype) in types
        return {name: y * y.dtype.type(factor if is_wrong else 1) for name, y in found.items()}

    monkeypatch.setattr(SingleNode, "by_runtime", wrong)


@pytest.mark.parametrize("scale", [1, 1e-4])
def test_two_references_that_disagree_are_none(
    scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off_by(monkeypatch, 1.5, "Sqrt", "float32", "float64")
    computed = computed_of(squared(), tmp_path / "m.onnx", np.float32(scale) * normal(4, 8))
    assert computed.why_not.startswith("the two references disagree: of Sqrt (y)")
    assert (computed.by, computed.references, computed.errors) == ("", (), ())


@pytest.mark.parametrize(
    ("factor", "types"), [(1.5, ("float32",)), (1.001, ("float32", "float64")), (1.0, ())]
)
def test_an_error_of_float32_alone_or_a_small_one_is_judged(
    factor: float, types: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off_by(monkeypatch, factor, "Sqrt", *types)
    computed = computed_of(squared(), tmp_path / "m.onnx", normal(4, 8))
    assert computed.by.startswith("onnx.reference")
    assert np.allclose(computed.references[0]["y"], np.abs(normal(4, 8)))
    assert computed.why_not == ""


def recurrent(lengths: list[int] | None = None, **attributes: Any) -> ModelProto:
    weights = {"w": normal(1, 20, 3, seed=1), "r": normal(1, 20, 5, seed=2), "b": normal(1, 40, seed=3)}
    more = {} if lengths is None else {"l": np.array(lengths, np.int32)}
    made = node("LSTM", "x w r b" + " l" * bool(more), "y", hidden_size=5, **attributes)
    return make_model([made], {"x": (FLOAT, [4, 2, 3])}, {"y": (FLOAT, [4, 1, 2, 5])}, {**weights, **more})


@pytest.mark.parametrize(
    ("model", "is_doubted"),
    [
        (recurrent(), False), (recurrent(clip=100.0), False), (recurrent([4, 4]), False),
        (recurrent(clip=0.3), True), (recurrent([4, 2]), True), (recurrent(input_forget=1), True),
        (make_model([node("RandomNormalLike", "x", "y")], {"x": (FLOAT, [4, 2, 3])}, {"y": (FLOAT, None)}),
         True),
    ],
    ids=["plain", "clip of no effect", "whole", "clip", "lengths", "coupled", "drawn"],
)  # fmt: skip
def test_what_the_evaluator_ignores_is_no_failure_of_onnx_runtime(
    model: ModelProto, is_doubted: bool, tmp_path: Path
) -> None:
    computed = computed_of(model, tmp_path / "m.onnx", normal(4, 2, 3))
    assert ("the two references disagree" in computed.why_not) is is_doubted
    assert bool(computed.references) is not is_doubted


def test_a_case_without_a_trusted_reference_has_none_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off_by(monkeypatch, 1.5, "Sqrt", "float32", "float64")
    saved(squared(), tmp_path / "model" / "model.onnx")
    (tmp_path / "inputs").mkdir()
    np.save(tmp_path / "inputs" / "x.npy", normal(4, 8))
    own = OwnModel(str(tmp_path / "repros" / "r.py"), {"x": "x"}, {"y": "y"}, 1, "fp32", "onnx.reference")
    assert own.prepare()["reference"] == {}
    assert own.noise()["outputs"] == {}
    assert "the two references disagree" in own.noise()["reference"]["why_not"]
