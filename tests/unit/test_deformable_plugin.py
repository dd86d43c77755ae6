"""deformable-plugin: the reference means what it says, graphs compute it, limits part right from wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtmatrix.authoring import deformable
from trtmatrix.authoring.arithmetic import FLOAT32, FP16
from trtmatrix.authoring.deformable import Size, compute, draw
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "deformable_plugin.py"
SMALL = Size(batch=2, heads=2, channels=3, queries=5, points=3, levels=((4, 3), (2, 5), (1, 1)))


@pytest.fixture(scope="module")
def repro() -> Iterator[ModuleType]:
    module = load_repro(REPRO)
    yield module
    module.drawn.cache_clear()


def relative(y: Array, reference: Array) -> float:
    return float(np.linalg.norm((y - reference).ravel()) / np.linalg.norm(reference.ravel()))


def slow(inputs: dict[str, Array], size: Size) -> Array:
    """The definition, one pixel at a time: a pixel's share is the tent max(0, 1 − distance) on both axes."""
    value, locations, weights = (array.tolist() for array in inputs.values())
    y = np.zeros(size.y)
    for batch, query, head, channel in np.ndindex(size.y):
        total = 0.0
        for level, (height, width) in enumerate(size.levels):
            before = sum(h * w for h, w in size.levels[:level])
            for point in range(size.points):
                across, down = locations[batch][query][head][level][point]
                for row, column in product(range(height), range(width)):
                    near = max(0.0, 1 - abs(down * height - 0.5 - row))
                    near *= max(0.0, 1 - abs(across * width - 0.5 - column))
                    pixel = value[batch][before + row * width + column][head][channel]
                    total += weights[batch][query][head][level][point] * near * pixel
        y[batch, query, head, channel] = total
    return y


def test_reference_is_the_definition() -> None:
    inputs = draw(SMALL, np.float64, beyond=0.6)
    y = compute(inputs, SMALL.shapes, SMALL.starts)
    np.testing.assert_allclose(y, slow(inputs, SMALL), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 1.0, -0.125, 1.125, -3.0, 40.0])
def test_reference_is_the_definition_at_corners_and_edges(place: float) -> None:
    inputs = draw(SMALL, np.float64)
    inputs["sampling_locations"][...] = place
    y = compute(inputs, SMALL.shapes, SMALL.starts)
    np.testing.assert_allclose(y, slow(inputs, SMALL), rtol=1e-12, atol=1e-13)


def test_weights_add_up_to_one() -> None:
    weights = draw(SMALL, np.float64)["attention_weights"]
    np.testing.assert_allclose(weights.sum(axis=(-2, -1)), 1)


def test_levels_start_one_behind_the_other() -> None:
    assert SMALL.starts.tolist() == [0, 12, 22]
    assert SMALL.inputs["value"] == (2, 23, 2, 3)


def on_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], inputs)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("constants", ["int64", "int32", "cast"])
def test_the_plugin_written_out_computes_the_reference(constants: str, dtype: type[Any]) -> None:
    inputs = draw(SMALL, dtype, beyond=0.3)
    shapes, starts = SMALL.shapes, SMALL.starts
    if constants == "int32":
        shapes, starts = shapes.astype(np.int32), starts.astype(np.int32)
    model = deformable.build(SMALL, dtype, shapes, starts, cast=constants == "cast", written_out=True)
    y = on_onnxruntime(model, inputs)
    assert y.dtype == dtype
    reference = compute(inputs, SMALL.shapes, SMALL.starts)
    assert relative(y, reference) < (2e-6 if dtype is np.float32 else 5e-4)


def test_the_plugin_written_out_goes_by_its_shapes_and_starts() -> None:
    inputs = draw(SMALL, np.float32)
    shapes, starts = SMALL.shapes[:, ::-1], SMALL.starts - [0, 3, 1]
    model = deformable.build(SMALL, np.float32, shapes, starts, written_out=True)
    assert relative(on_onnxruntime(model, inputs), compute(inputs, shapes, starts)) < 2e-6


def small(params: dict[str, Any]) -> dict[str, Any]:
    """The case with as many levels, all small: enough where only the graph is looked at."""
    levels = ["4x3", "2x5", "3x2", "1x2"][: len(params["levels"].split())]
    return {**params, "levels": " ".join(levels), "queries": 7}


def one_case(repro: ModuleType, name: str) -> tuple[dict[str, Any], Size, dict[str, Array], Array]:
    """A case with a third of its queries: the errors are the same, the time is less."""
    case = next(case for case in repro.cases() if case["id"] == name)
    params = {**case["params"], "queries": 100}
    half = params["precision"] == "fp16"
    size, inputs, y = repro.drawn(*(params[key] for key in (*repro.BASE, "levels", "beyond")), half=half)
    return case, size, inputs, y


RIGHT = [
    f"int64-{row}" for row in ("fp32", "fp16", "fp16-flag", "fp32-outside", "fp16-outside", "fp32-one-level")
] + ["workaround-int32-fp16-one-level"]


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_stay_below_the_limit(repro: ModuleType, name: str) -> None:
    case, size, inputs, reference = one_case(repro, name)
    precision = case["params"]["precision"]
    if precision == "fp16-flag":  # the plugin in FP16 gets its inputs rounded
        inputs = {key: array.astype(np.float16) for key, array in inputs.items()}
    y = compute(inputs, size.shapes, size.starts, FLOAT32 if precision == "fp32" else FP16)
    assert relative(y, reference) < 0.4 * case["limits"]["rel_l2"]


def test_controls_are_far_above_the_limit(repro: ModuleType) -> None:
    for case in repro.cases():
        if case["control"] != "negative":
            continue
        params = {**case["params"], "queries": 100}
        made = repro.prepare(params)
        shapes, starts = (onnx.numpy_helper.to_array(w) for w in made["model"].graph.initializer)
        wrong = compute(made["inputs"], shapes, starts)
        assert relative(wrong, made["reference"]["y"]) > 15 * case["limits"]["rel_l2"]


DEFECTS: dict[str, Callable[[Array, Array], Array]] = {  # a location and (width, height) to another location
    "half a pixel lost": lambda place, extent: place + 0.5 / extent,
    "align_corners": lambda place, extent: (place * (extent - 1) + 0.5) / extent,
    "border repeated": lambda place, extent: np.clip(place, 0.5 / extent, 1 - 0.5 / extent),
    "nearest": lambda place, extent: (np.round(place * extent - 0.5) + 0.5) / extent,
    "x and y exchanged": lambda place, extent: place[..., ::-1] + 0 * extent,
}


@pytest.mark.parametrize("name", DEFECTS)
def test_other_defects_are_above_the_limit(repro: ModuleType, name: str) -> None:
    for row in ("int64-fp32", "int64-fp16", "int64-fp16-outside"):
        case, size, inputs, reference = one_case(repro, row)
        extent = size.shapes[:, None, ::-1].astype(np.float64)
        place = DEFECTS[name](inputs["sampling_locations"].astype(np.float64), extent)
        wrong = compute({**inputs, "sampling_locations": place}, size.shapes, size.starts)
        assert relative(wrong, reference) > 2 * case["limits"]["rel_l2"]


def test_cases_are_a_readable_table(repro: ModuleType) -> None:
    cases = {case["id"]: case for case in repro.cases()}
    assert len(cases) == 19
    assert {name for name, case in cases.items() if case["bug_is"]} == {
        name for name in cases if name.startswith("int64-")
    }
    assert {name for name, case in cases.items() if case["control"]} == {
        name for name in cases if name.startswith("control-")
    }
    for name, case in cases.items():  # each row of the bug has its twin that works around it
        if case["bug_is"]:
            assert name.replace("int64", "workaround-int32") in cases


def test_the_graph_and_its_check_differ_by_the_function_alone(repro: ModuleType) -> None:
    for case in repro.cases():
        made = repro.prepare(small(case["params"]))
        model, check = made["model"], made["check"]
        assert not model.functions
        assert [function.name for function in check.functions] == [deformable.PLUGIN]
        assert model.graph == check.graph
        assert list(made["inputs"]) == [tensor.name for tensor in model.graph.input]


def test_constants_are_of_the_type_that_the_case_says(repro: ModuleType) -> None:
    for case in repro.cases():
        model = repro.prepare(small(case["params"]))["model"]
        wide = case["params"]["constants"] in {"int64", "cast"}
        expected = onnx.TensorProto.INT64 if wide else onnx.TensorProto.INT32
        assert [w.data_type for w in model.graph.initializer] == [expected] * 2
        operators = [node.op_type for node in model.graph.node]
        assert operators == ["Cast", "Cast"] * (case["params"]["constants"] == "cast") + [deformable.PLUGIN]


def test_controls_read_no_row_that_is_not_there(repro: ModuleType) -> None:
    for case in repro.cases():
        model = repro.prepare(small(case["params"]))["model"]
        shapes, starts = (onnx.numpy_helper.to_array(w) for w in model.graph.initializer)
        rows = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
        assert starts.min() >= 0
        assert max(start + math.prod(shape) for shape, start in zip(shapes, starts, strict=True)) <= rows
