"""References in float64, by whoever computes a node in float64; what nobody does is computed in float32."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxmodels import FLOAT, INT64, Array, make_model, mlp, node, normal, saved

from trtmatrix.authoring.arithmetic import round_fp16, round_tf32
from trtmatrix.onnxmodel.computing import Graph, Way, compute
from trtmatrix.onnxmodel.sessions import Session

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((1, 4, 9, 8), (6, 4, 3, 2), {"pads": [1, 0, 2, 1]}),
    "strided": ((1, 4, 10, 11), (6, 4, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 4, 12, 12), (6, 4, 3, 3), {"dilations": [2, 3]}),
    "depthwise": ((1, 4, 7, 7), (8, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "three-dimensional": ((1, 2, 5, 6, 7), (3, 2, 2, 2, 2), {"strides": [1, 2, 2]}),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_written_out(name: str, bias: bool, tmp_path: Path) -> None:
    shape, kernel, attributes = CONVOLUTIONS[name]
    weights = {"w": normal(*kernel, seed=1), **({"b": normal(kernel[0], seed=2)} if bias else {})}
    made = node("Conv", "x w" + " b" * bias, "y", **attributes)
    model = make_model([made], {"x": (FLOAT, ["n", *shape[1:]])}, {"y": (FLOAT, None)}, weights)
    x = normal(*shape)
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": x}], "fp32")
    single = Session(tmp_path / "m.onnx").run({"x": x})["y"]
    assert computed.precision == "float64"
    assert computed.references[0]["y"].shape == single.shape
    assert np.allclose(computed.references[0]["y"], single, rtol=1e-5, atol=1e-5)
    assert 0 < computed.own_error["y"] < 1e-6


def test_what_onnx_runtime_has_no_float64_kernel_for_the_evaluator_computes(tmp_path: Path) -> None:
    nodes = [node("Erf", "x", "e"), node("MatMul", "e w", "y")]
    w, x = normal(64, 64, seed=1), normal(8, 64)
    model = make_model(nodes, {"x": (FLOAT, [8, 64])}, {"y": (FLOAT, [8, 64])}, {"w": w})
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": x}], "fp32")
    assert computed.precision == "float64"
    right = np.vectorize(math.erf)(x.astype(np.float64)) @ w.astype(np.float64)
    assert np.allclose(computed.references[0]["y"], right, atol=1e-6)  # its erf is good to 2e-8


def test_quantizing_stays_in_float32_and_rounds(tmp_path: Path) -> None:
    weights = {"s": np.float32(0.1), "z": np.int8(0), "w": normal(16, 16, seed=1)}
    nodes = [
        node("MatMul", "x w", "m"), node("QuantizeLinear", "m s z", "q"),
        node("DequantizeLinear", "q s z", "y"),
    ]  # fmt: skip
    model = make_model(nodes, {"x": (FLOAT, [4, 16])}, {"y": (FLOAT, [4, 16])}, weights)
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": normal(4, 16)}], "fp32")
    assert computed.precision == "float64 (DequantizeLinear, QuantizeLinear in float32)"
    steps = computed.references[0]["y"] / np.float32(0.1)
    assert np.allclose(steps, np.round(steps), atol=1e-6)


def branching() -> ModelProto:
    inner = [
        helper.make_graph(
            [node("MatMul", "x w", "m"), node(op, "m", "o")], op, [],
            [helper.make_tensor_value_info("o", FLOAT, None)],
        )
        for op in ("Tanh", "Erf")
    ]  # fmt: skip
    made = helper.make_node("If", ["flag"], ["y"], then_branch=inner[0], else_branch=inner[1])
    inputs = {"flag": (TensorProto.BOOL, []), "x": (FLOAT, [4, 64])}
    return make_model([made], inputs, {"y": (FLOAT, [4, 64])}, {"w": normal(64, 64, seed=1)})


@pytest.mark.parametrize(
    ("flag", "near"), [(True, {"rtol": 1e-12, "atol": 0}), (False, {"rtol": 1e-6, "atol": 1e-7})]
)
def test_a_branch_is_computed_in_float64_too(flag: bool, near: dict[str, Any], tmp_path: Path) -> None:
    x, w = normal(4, 64), normal(64, 64, seed=1)
    feeds = [{"x": x, "flag": np.array(flag)}]
    computed = compute(saved(branching(), tmp_path / "m.onnx"), feeds, "fp16-flag")
    assert computed.precision == "float64"
    function = np.tanh if flag else np.vectorize(math.erf)
    wide = function(x.astype(np.float64) @ w.astype(np.float64))
    assert np.allclose(computed.references[0]["y"], wide, **near)
    errors = computed.errors[0]["y"]
    assert (1e-5 < errors["fp16"] < 1e-2, errors["fp32"] < 1e-6) == (True, True)


def test_a_half_graph_is_rounded_to_half_and_its_reference_is_of_its_weights(tmp_path: Path) -> None:
    model, x = mlp(dtype=np.float16), normal(4, 64).astype(np.float16)
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": x}], "fp16")
    wide = x.astype(np.float64)
    for tensor in model.graph.initializer:
        wide = np.tanh(wide @ numpy_helper.to_array(tensor).astype(np.float64))
    assert computed.precision == "float64"
    assert np.allclose(computed.references[0]["y"], wide, rtol=1e-12)
    assert {member.partition("-")[0] for member in computed.errors[0]["y"]} == {"fp16"}
    own = Session(tmp_path / "m.onnx").run({"x": x})["y"].astype(np.float64)
    assert np.linalg.norm(own - wide) < 4 * max(computed.errors[0]["y"].values()) * np.linalg.norm(wide)


def test_steps_that_no_member_left_have_no_floor(tmp_path: Path) -> None:
    """An index is another only where two scores are as good as equal: 0 is luck, not a floor."""
    nodes = [node("MatMul", "x w", "m"), node("ArgMax", "m", "k", axis=1, keepdims=0)]
    weights = {"w": np.eye(8, dtype=np.float32)}
    model = make_model(nodes, {"x": (FLOAT, [2, 8])}, {"k": (INT64, [2]), "m": (FLOAT, [2, 8])}, weights)
    x = np.tile(np.arange(8, dtype=np.float32), (2, 1)) + np.float32(1 / 3)
    computed = compute(saved(model, tmp_path / "m.onnx"), [{"x": x}], "tf32")
    assert computed.errors[0]["k"] == {}
    assert computed.errors[0]["m"]


def test_an_old_opset_is_computed_as_it_is(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "m"), node("ReduceMean", "m", "y", axes=[1])]
    inputs, outputs = {"x": (FLOAT, [4, 64])}, {"y": (FLOAT, [4, 1])}
    old = make_model(nodes, inputs, outputs, {"w": normal(64, 64, seed=1)}, opset=9)
    computed = compute(saved(old, tmp_path / "m.onnx"), [{"x": normal(4, 64)}], "tf32")
    assert computed.precision == "float64"
    assert 1e-5 < computed.errors[0]["y"]["tf32"] < 1e-2


# Graphs rounded between their nodes, as the project's own arithmetic does.
def rounded(model: ModelProto, path: Path, x: Array, kind: str, **more: Any) -> Array:
    return Graph(saved(model, path), {"x": x.shape}).run({"x": x}, Way(kind=kind, **more))["y"]


def test_only_the_operands_of_products_are_rounded_to_tf32(tmp_path: Path) -> None:
    w, b, x = normal(32, 32, seed=1), normal(32, seed=2), normal(4, 32)
    nodes = [node("Gemm", "x w b", "g"), node("Add", "g b", "y")]
    model = make_model(nodes, {"x": (FLOAT, [4, 32])}, {"y": (FLOAT, [4, 32])}, {"w": w, "b": b})
    found = rounded(model, tmp_path / "m.onnx", x, "tf32")
    assert np.allclose(found, round_tf32(x) @ round_tf32(w) + b + b, rtol=1e-6, atol=1e-6)
    assert not np.allclose(found, x @ w + b + b, rtol=1e-6, atol=1e-6)


def test_every_tensor_is_rounded_to_fp16_and_overflows_as_there(tmp_path: Path) -> None:
    w, x = normal(32, 32, seed=1), normal(4, 32)
    nodes = [node("MatMul", "x w", "m"), node("Exp", "m", "e"), node("Add", "e big", "y")]
    weights = {"w": w, "big": np.float32(65504)}
    model = make_model(nodes, {"x": (FLOAT, [4, 32])}, {"y": (FLOAT, [4, 32])}, weights)
    found = rounded(model, tmp_path / "m.onnx", x, "fp16")
    middle = round_fp16(np.exp(round_fp16(round_fp16(x) @ round_fp16(w))))
    expected = round_fp16(middle + np.float32(65504))
    assert np.isinf(expected).any()
    assert np.mean(found == expected) > 0.99  # a sum in another order may round to the neighbour
