"""deformable-plugin: the reference means what it says, graphs compute it, defects are told from noise."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.numerics.graphs import Array, relative
from trtmatrix.authoring.arithmetic import FLOAT64
from trtmatrix.authoring.deformable import Size, compute, draw
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "deformable_plugin.py")
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


CASES = {case["id"]: case for case in REPRO.cases()}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["control"]])
def test_the_graph_of_a_control_has_the_defect_that_it_names(name: str) -> None:
    params = {**CASES[name]["params"], "queries": 20}
    made = REPRO.prepare(params)
    shapes, starts = (onnx.numpy_helper.to_array(w) for w in made["model"].graph.initializer)
    wrong = REPRO.emulate(params, FLOAT64, CASES[name]["defect"])["y"]
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
