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


def test_every_way_of_ending_has_its_verdict() -> None:
    words = (
        operators.PARSER, operators.BUILDER, operators.FEED, operators.RUN, operators.MEMORY, operators.HUNG,
        ends.CRASHED, ends.BUILT, ends.PROBE_FAILED,
    )  # fmt: skip
    assert [verdict_of(None, ONES["y"], word)[0] for word in words] == [ENDED[word] for word in words]
    assert {*ENDED.values(), Verdict.WRONG} == set(Verdict)
    assert verdict_of(None, ONES["y"], "a word of no probe")[0] is Verdict.NOTHING


def test_a_crash_is_told_with_the_product_s_last_words() -> None:
    log = "[ERROR] earlier\nAssertion failed: nbDims\n\nFatal Python error: Segmentation fault\n\nThread 1"
    done = {"ended": ends.CRASHED, "detail": "killed by SIGSEGV", "log": log, "seconds": 0.5}
    found = judge(make_case("t", "T"), ONES, done, {})
    assert (found.verdict, found.detail) == (Verdict.CRASHED, "killed by SIGSEGV; Assertion failed: nbDims")


def test_what_a_terminal_or_a_file_would_not_take_is_left_out_of_a_message() -> None:
    done = {"ended": operators.BUILDER, "detail": "bad \udc80 byte,\x1b[31m red\n" + "x" * 400}
    found = judge(make_case("t", "T"), ONES, done, {})
    assert found.detail.startswith("bad byte, [31m red xxx")
    assert len(found.detail) == 300


def test_an_error_that_stays_with_the_context_is_a_crash_although_outputs_came() -> None:
    found = judge(make_case("t", "T"), ONES, {"ended": ends.RAN, "trouble": "illegal address"}, ONES)
    assert found.verdict is Verdict.CRASHED
    assert found.detail == "the GPU's context reports an error after it: illegal address"


def test_an_output_that_was_lost_on_its_way_is_not_wrong() -> None:
    found = judge(make_case("t", "T"), ONES, {"ended": ends.RAN, "missing": []}, {})
    assert (found.verdict, found.detail) == (
        Verdict.NOTHING, "output y was lost on its way out of the container",
    )  # fmt: skip


def test_bad_good_refused_and_missing_are_apart() -> None:
    for verdict in Verdict:
        kinds = (verdict.is_bad, verdict.is_good, verdict.is_refused, verdict is Verdict.NOTHING)
        assert sum(kinds) == 1, verdict
    assert all(verdict.is_doubtful for verdict in Verdict if verdict.is_bad)
