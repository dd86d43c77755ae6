"""deformable-plugin: the reference means what it says, graphs compute it, defects are told from noise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from tests.numerics.graphs import Array, on_onnxruntime, relative
from trtmatrix.authoring import deformable
from trtmatrix.authoring.arithmetic import FLOAT64
from trtmatrix.authoring.deformable import Size, compute, draw
from trtprobe.cell import load_repro

REPRO = Path(__file__).parents[2] / "repros" / "deformable_plugin.py"
SMALL = Size(batch=2, heads=2, channels=3, queries=5, points=3, levels=((4, 3), (2, 5), (1, 1)))


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


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("constants", ["int64", "int32", "cast"])
def test_the_plugin_written_out_computes_the_reference(constants: str, dtype: type[Any]) -> None:
    inputs = draw(SMALL, dtype, beyond=0.3)
    shapes, starts = SMALL.shapes, SMALL.starts
    if constants == "int32":
        shapes, starts = shapes.astype(np.int32), starts.astype(np.int32)
    model = deformable.build(SMALL, dtype, shapes, starts, cast=constants == "cast", written_out=True)
    y = on_onnxruntime(model, inputs)["y"]
    assert y.dtype == dtype
    reference = compute(inputs, SMALL.shapes, SMALL.starts)
    assert relative(y, reference) < (2e-6 if dtype is np.float32 else 5e-4)


CASES = {case["id"]: case for case in load_repro(REPRO).cases()}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["control"]])
def test_the_graph_of_a_control_has_the_defect_that_it_names(repro: ModuleType, name: str) -> None:
    params = {**CASES[name]["params"], "queries": 20}
    made = repro.prepare(params)
    shapes, starts = (onnx.numpy_helper.to_array(w) for w in made["model"].graph.initializer)
    wrong = repro.emulate(params, FLOAT64, CASES[name]["defect"])["y"]
    assert np.array_equal(compute(made["inputs"], shapes, starts), wrong)
    assert relative(wrong, made["reference"]["y"]) > 0.5


PLACES: dict[str, Callable[[Array, Array], Array]] = {  # a location and (width, height) to another location
    "shifted": lambda place, extent: place + 0.5 / extent,
    "align-corners": lambda place, extent: (place * (extent - 1) + 0.5) / extent,
    "border": lambda place, extent: np.clip(place, 0.5 / extent, 1 - 0.5 / extent),
}


@pytest.mark.parametrize("defect", PLACES)
def test_defects_of_places_are_as_if_locations_were_others(defect: str) -> None:
    inputs = draw(SMALL, np.float64, beyond=0.3)
    place = PLACES[defect](inputs["sampling_locations"], SMALL.shapes[:, None, ::-1].astype(np.float64))
    moved = {**inputs, "sampling_locations": place}
    wrong = compute(inputs, *SMALL.told(), defect=defect)
    np.testing.assert_allclose(wrong, slow(moved, SMALL), rtol=1e-9, atol=1e-12)
