"""The forms of ONNX's tests: the lowest opset at which a node means the same, small inputs as constants."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, checker, helper

from trtmatrix.onnxmodel.graphs import opset_of
from trtmatrix.operators.cases import Case, Suite, forms_of, lowest_opset
from trtmatrix.operators.command import select
from trtmatrix.operators.verdicts import ENDED, judge
from trtmatrix.records.operators import Verdict
from trtprobe import ends, operators


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


def test_what_means_something_else_as_constants_or_further_down_has_no_such_form() -> None:
    relu, small, several = model_of("Relu", 14, "x"), model_of("Mish", 18, "x1"), model_of("Relu", 14, "x")
    several.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    for model, least, opsets in ((relu, 11, [14, 11]), (small, 1, [18]), (several, 1, [14])):
        assert [opset_of(form) for form, _ in forms_of(model, inputs_of(model), least=least)] == opsets


def make_case(name: str, operator: str) -> Case:
    return Case(
        name=name, operator=operator, opset=9, rtol=1e-3, atol=1e-7, model="",
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
def test_cases_are_chosen(tmp_path: Any, patterns: tuple[str, ...], limit: int, names: list[str]) -> None:
    known = (("test_abs", "Abs"), ("test_abs@9", "Abs"), ("test_clip", "Clip"), ("test_clip_min", "Clip"))
    cases = tuple(make_case(*one) for one in known)
    suite = Suite(file=tmp_path, onnx="1", digest="", cases=cases)
    assert [case.name for case in select(suite, patterns, limit)] == names


# Verdicts of single cases, from what the probe says and the outputs.
ONES = {"y": np.ones((2, 3), np.float32)}
NAN, INF = float("nan"), float("inf")


def verdict_of(y: Any, expected: Any, ended: str = ends.RAN) -> tuple[Verdict, str]:
    done = {"ended": ended, "missing": ["y"] if y is None else []}
    found = judge(make_case("t", "T"), {"y": expected}, done, {} if y is None else {"y": y})
    return found.verdict, found.detail


@pytest.mark.parametrize(
    ("y", "wrong"),
    [
        (np.full((2, 3), 1.0009, np.float32), ""), (np.ones((2, 3), np.float64), ""),
        (None, "output y is not there"), (np.ones((2, 3), np.int32), "y is int32 instead of float32"),
        (np.ones((3, 2), np.float32), "y has the shape [3, 2] instead of [2, 3]"),
        (np.full((2, 3), NAN, np.float32),
         "y: 6 of 6 values are off, the furthest at [0, 0]: nan instead of 1"),
        (np.array([[1, 1, 1], [1, 1.5, 3]], np.float32),
         "y: 2 of 6 values are off, the furthest at [1, 2]: 3 instead of 1"),
    ],
)  # fmt: skip
def test_values_shape_and_type_are_held_against_onnx_s_own(y: Any, wrong: str) -> None:
    assert verdict_of(y, ONES["y"]) == (Verdict.WRONG if wrong else Verdict.RIGHT, wrong)


@pytest.mark.parametrize(
    ("y", "expected", "right"),
    [
        (np.array([NAN, INF], np.float32), np.array([NAN, INF], np.float32), True),
        (np.array([INF, INF], np.float32), np.array([NAN, INF], np.float32), False),
        (np.array([1, INF], np.float32), np.array([INF, INF], np.float32), False),
        (np.array([3], np.int32), np.array([3], np.int64), True),
        (np.array([2], np.int32), np.array([3], np.int64), False),
        (np.array([True, False]), np.array([True, False]), True),
        (np.array([1e-4, 500], np.float32), np.array([0, 500], np.float32), True),  # rounding, as in a DFT
        (np.array([1e-2, 500], np.float32), np.array([0, 500], np.float32), False),
        (np.array([0.3984], np.float16), np.array([0.3979], np.float16), True),  # one unit in the last place
        (np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), True),
        (np.float32(2), np.float32(2), True),
    ],
)
def test_nan_integers_of_another_width_and_rounding(y: Any, expected: Any, right: bool) -> None:
    assert (verdict_of(np.asarray(y), np.asarray(expected))[0] is Verdict.RIGHT) is right


LOG = "[ERROR] earlier\nAssertion failed: nbDims\n\nFatal Python error: Segmentation fault\n\nThread 1"


@pytest.mark.parametrize(
    ("done", "outputs", "verdict", "detail"),
    [
        *(({"ended": word}, ONES, verdict, "") for word, verdict in ENDED.items()),
        ({"ended": "a word of no probe"}, {}, Verdict.NOTHING, ""),
        ({"ended": ends.CRASHED, "detail": "killed by SIGSEGV", "log": LOG}, {}, Verdict.CRASHED,
         "killed by SIGSEGV; Assertion failed: nbDims"),
        ({"ended": operators.BUILDER, "detail": "bad \udc80 byte,\x1b[31m red\n" + "x" * 400}, {},
         Verdict.BUILDER, "bad byte, [31m red " + "x" * 280 + "…"),
        ({"ended": ends.RAN, "trouble": "illegal address"}, ONES, Verdict.CRASHED,
         "the GPU's context reports an error after it: illegal address"),
        ({"ended": ends.RAN, "missing": []}, {}, Verdict.NOTHING,
         "output y was lost on its way out of the container"),
    ],
    ids=lambda value: value.get("ended") if isinstance(value, dict) else None,
)  # fmt: skip
def test_how_a_case_ended_is_told(done: Any, outputs: Any, verdict: Verdict, detail: str) -> None:
    found = judge(make_case("t", "T"), ONES, done, outputs)
    assert (found.verdict, detail or found.detail) == (verdict, found.detail)
    assert {*ENDED.values(), Verdict.WRONG} == set(Verdict)
