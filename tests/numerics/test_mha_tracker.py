"""The tracker's module: graphs, noise, defects and controls, and the rows that move buffers about."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.numerics.graphs import Array, contained, members, on_onnxruntime, relative
from tests.probe.test_streams import LateCuda, LateMemory, LateStream
from trtmatrix.authoring.arithmetic import FLOAT64
from trtmatrix.judge.factors import PASS_FACTOR
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "mha_tracker.py")
CASES = {case["id"]: case for case in REPRO.cases()}
SMALL = {"length": 27, "batch": 2, "embed": 64, "heads": 8, "hidden": 96}


def small(name: str) -> dict[str, Any]:
    return {**CASES[name]["params"], **SMALL}


Outputs = dict[str, Array]


def apart(y: Outputs, r: Outputs) -> dict[str, float]:
    return {name: relative(y[name], x) for name, x in r.items()}


def floors(params: dict[str, Any]) -> dict[str, float]:
    reference = REPRO.emulate(params, FLOAT64)
    errors = [apart(REPRO.emulate(params, arithmetic), reference) for arithmetic in members(params)]
    return {name: max(error[name] for error in errors) for name in reference}


@pytest.mark.parametrize("name", CASES)
def test_graphs_compute_the_reference_unless_a_defect_is_put_in(name: str) -> None:
    params, defect = small(name), CASES[name].get("defect", "")
    made = REPRO.prepare(params)
    outputs = on_onnxruntime(made["model"], made["inputs"])
    if defect:
        wrong, right = REPRO.emulate(params, FLOAT64, defect), made["reference"]
        name = max(right, key=apart(wrong, right).__getitem__)  # the output that shows it best
        assert contained(outputs[name], right[name], wrong[name]) == pytest.approx(1, abs=0.05)
        return
    errors, floor = apart(outputs, {name: made["reference"][name] for name in outputs}), floors(params)
    assert all(error < PASS_FACTOR * floor[output] for output, error in errors.items())


class LateSum:
    """An engine that adds up its inputs when the stream comes to it."""

    outputs = ("y",)

    def __init__(self) -> None:
        self.memory = {name: LateMemory(16) for name in ("a", "b", "y")}

    def bind(self, inputs: dict[str, Array]) -> dict[str, LateMemory]:
        for name, array in inputs.items():
            self.memory[name].put(array)
        return self.memory

    def enqueue(self, stream: LateStream) -> None:
        stream.put(lambda: self.memory["y"].put(self.read("a") + self.read("b")))

    def read(self, name: str, _: object = None) -> Array:
        return self.memory[name].get(np.empty(4, np.float32))


DEVICE = [name for name, case in CASES.items() if case["params"]["buffers"] != "host"]


@pytest.mark.parametrize("name", DEVICE)
def test_buffers_are_handed_over_in_order_and_only_the_control_takes_them_back_early(name: str) -> None:
    inputs = {"a": np.arange(4, dtype=np.float32), "b": np.full(4, 0.5, np.float32)}
    asked: dict[str, Any] = {}

    def build(_: Path, **kwargs: Any) -> LateSum:
        asked.update(kwargs)
        return LateSum()

    trt = SimpleNamespace(has_streams=True, cuda=LateCuda(), build=build)
    files = SimpleNamespace(model=Path("-"), inputs=inputs)
    y = REPRO.run(CASES[name]["params"], files, trt)["y"]
    assert asked["precision"] == "fp32"
    assert np.array_equal(y, inputs["a"] + inputs["b"]) == (CASES[name]["control"] is None)
    assert len(DEVICE) == 4
