"""The forms of ONNX's tests: the lowest opset at which a node means the same, small inputs as constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, checker, helper

from trtmatrix.onnxmodel.graphs import opset_of
from trtmatrix.operators.cases import Case, Suite, forms_of, lowest_opset
from trtmatrix.operators.command import select


def model_of(
    operator: str, opset: int, *inputs: str, kind: int = TensorProto.FLOAT, **attributes: Any
) -> ModelProto:
    """Return a model of one node; inputs of a name that ends in 1 have rank 1."""
    infos = [helper.make_tensor_value_info(n, kind, [2] if n.endswith("1") else [2, 2]) for n in inputs]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"], **attributes)], operator, infos,
        [helper.make_tensor_value_info("y", kind, [2, 2])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def inputs_of(model: ModelProto) -> dict[str, NDArray[Any]]:
    return {i.name: np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim]) for i in model.graph.input}


@pytest.mark.parametrize(
    ("model", "opset"),
    [
        (model_of("Relu", 14, "x"), 9),
        (model_of("Relu", 14, "x", kind=TensorProto.INT32), 14),  # integers came with 14
        (model_of("Softmax", 13, "x", axis=0), 13),  # it cut the shape in two before
        (model_of("GridSample", 20, "x", "g", mode="linear"), 20),  # the mode was called bilinear
        (model_of("ReduceMax", 18, "x", "axes1"), 18),  # axes were an attribute
        (model_of("Clip", 13, "x", "min1", "max1"), 11),  # limits were attributes below 11
        (model_of("Dropout", 13, "x", "ratio1"), 12),
        (model_of("AveragePool", 22, "x", kernel_shape=[2]), 9),
        (model_of("AveragePool", 22, "x", kernel_shape=[2], dilations=[2]), 19),
        (model_of("Mish", 18, "x"), 18),
    ],
    ids=lambda value: value.graph.name if isinstance(value, ModelProto) else str(value),
)
def test_the_lowest_opset_is_the_last_at_which_the_node_means_the_same(model: ModelProto, opset: int) -> None:
    assert lowest_opset(model) == opset


def test_a_test_comes_as_it_is_lowered_and_with_its_small_inputs_as_constants() -> None:
    model = model_of("Clip", 13, "x", "min1", "max1")
    plain, lowered, frozen = forms_of(model, inputs_of(model))
    assert plain == (model, False)
    assert (opset_of(lowered[0]), lowered[1], opset_of(frozen[0]), frozen[1]) == (11, False, 11, True)
    assert lowered[0].ir_version == frozen[0].ir_version == 8
    assert [info.name for info in frozen[0].graph.input] == ["x"]
    assert [tensor.name for tensor in frozen[0].graph.initializer] == ["min1", "max1"]
    checker.check_model(lowered[0])


def test_what_means_something_else_further_down_stays_above_it() -> None:
    model = model_of("Relu", 14, "x")
    assert [opset_of(form) for form, _ in forms_of(model, inputs_of(model), least=11)] == [14, 11]


def test_a_test_of_small_inputs_alone_or_of_several_nodes_has_no_other_form() -> None:
    small = model_of("Mish", 18, "x1")
    assert len(list(forms_of(small, inputs_of(small)))) == 1
    several = model_of("Relu", 14, "x")
    several.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    assert len(list(forms_of(several, inputs_of(several)))) == 1


def make_case(name: str, operator: str) -> Case:
    return Case(
        name=name, base=name.partition("@")[0], operator=operator, opset=9, rtol=1e-3, atol=1e-7, model="",
        inputs={}, outputs={}, profile={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "limit", "names"),
    [
        ((), 0, ["test_abs", "test_abs@9", "test_clip", "test_clip_min"]),
        (("test_abs",), 0, ["test_abs", "test_abs@9"]),
        (("Clip",), 0, ["test_clip", "test_clip_min"]),
        (("test_clip_*", "test_abs@9"), 0, ["test_abs@9", "test_clip_min"]),
        ((), 2, ["test_abs", "test_clip"]),
    ],
)
def test_cases_are_chosen_by_test_by_operator_or_evenly(
    tmp_path: Any, patterns: tuple[str, ...], limit: int, names: list[str]
) -> None:
    known = (("test_abs", "Abs"), ("test_abs@9", "Abs"), ("test_clip", "Clip"), ("test_clip_min", "Clip"))
    cases = tuple(make_case(*one) for one in known)
    suite = Suite(file=tmp_path, onnx="1", digest="", cases=cases)
    assert [case.name for case in select(suite, patterns, limit)] == names
