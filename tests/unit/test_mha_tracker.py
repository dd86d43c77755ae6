"""The tracker's module: graphs, reference, limits and controls, and the rows that move buffers about."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from tests.probe.test_streams import LateCuda, LateMemory, LateStream

from trtmatrix.authoring.arithmetic import FLOAT32, FP16, FP16_BLOCKS, TF32, Arithmetic
from trtmatrix.authoring.tracker import Size, Transformer, draw, padding
from trtprobe.cell import load_repro
from trtprobe.measure import measure_output

Array = NDArray[Any]
REPRO = load_repro(Path(__file__).parents[2] / "repros" / "mha_tracker.py")
CASES = {case["id"]: case for case in REPRO.cases()}
SMALL = {"length": 27, "batch": 2, "embed": 64, "heads": 8, "hidden": 96}
MEDIUM = Size(length=162, batch=2, embed=256, heads=8, hidden=256)
FLOORS = {"fp32": [FLOAT32], "tf32": [TF32], "fp16": [FP16, FP16_BLOCKS]}


def small(name: str) -> dict[str, Any]:
    return {**CASES[name]["params"], **SMALL}


def on_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def rel_l2(outputs: dict[str, Array], reference: dict[str, Array]) -> float:
    """The case's figure: the worst output's."""
    return max(measure_output(y, reference[name])["rel_l2"] for name, y in outputs.items())


@pytest.mark.parametrize("name", CASES)
def test_graphs_compute_the_reference_unless_a_defect_is_put_in(name: str) -> None:
    params = small(name)
    made = REPRO.prepare(params)
    outputs = on_onnxruntime(made["model"], made["inputs"])
    right = rel_l2(outputs, made["reference"]) < (8e-3 if params["precision"] == "fp16" else 2e-6)
    assert right == (params["defect"] == "none")


def emulated(precision: str, masked: bool, arithmetic: Arithmetic, **defect: Any) -> dict[str, float]:
    """rel_l2 of "whole" and "alone" with a precision's rounding."""
    dtype = np.float16 if precision == "fp16" else np.float32
    weights, made = draw(MEDIUM, dtype, masked=masked)
    module = Transformer(size=MEDIUM, weights=weights, arithmetic=arithmetic, **defect)
    (inputs, reference), (looked, alone) = made["whole"], made["alone"]
    found = module.compute(**inputs)
    whole = {name: found[name] for name in reference}
    if defect:
        whole.pop("scores")
    return {
        "whole": rel_l2(whole, reference),
        "alone": rel_l2({"y": module.cross(**looked)[0]}, alone),
    }


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "no-mask"])
@pytest.mark.parametrize("precision", FLOORS)
def test_a_right_kernel_stays_well_below_the_limit(precision: str, masked: bool) -> None:
    for arithmetic in FLOORS[precision]:
        for figure in emulated(precision, masked, arithmetic).values():
            assert figure < 0.5 * REPRO.LIMITS[precision]


@pytest.mark.parametrize("defect", [{"cross_scale": MEDIUM.scale**0.5}, {"cross_mask": False}])
@pytest.mark.parametrize("precision", FLOORS)
def test_a_defect_stays_well_above_the_limit(precision: str, defect: dict[str, Any]) -> None:
    for figure in emulated(precision, True, FLOORS[precision][0], **defect).values():
        assert figure > 10 * REPRO.LIMITS[precision]


def test_mask_hides_one_frame_of_the_second_row() -> None:
    size = Size(**{name: REPRO.SIZE[name] for name in SMALL})
    mask = padding(size)
    assert mask.sum(axis=1).tolist() == [0, 324]
    assert mask[1, 324:648].all()


def test_cases_are_a_readable_table() -> None:
    assert len(CASES) == 23
    negative = {name for name, case in CASES.items() if case["control"] == "negative"}
    assert negative == {name for name in CASES if name.startswith("control-")}
    assert {"alone-fp16", "whole-tf32", "whole-no-mask-fp32", "native-whole-fp32"} <= set(CASES)


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


def test_softmax_is_constrained_under_the_flag_and_cast_in_a_typed_graph() -> None:
    asked: dict[str, Any] = {}
    engine = SimpleNamespace(run=lambda _: {})
    trt = SimpleNamespace(has_streams=False, build=lambda _, **kwargs: asked.update(kwargs) or engine)
    files = SimpleNamespace(model=Path("-"), inputs={})
    wanted = {"whole-softmax32-fp16-flag": ("Softmax",), "whole-softmax32-fp16": (), "whole-fp16-flag": ()}
    for name, constrained in wanted.items():
        REPRO.run(CASES[name]["params"], files, trt)
        assert asked["keep_fp32"] == constrained
        casts = sum(
            node.op_type == "Cast" and node.attribute[0].i != onnx.TensorProto.BOOL
            for node in REPRO.prepare(small(name))["model"].graph.node
        )
        assert casts == (6 if name == "whole-softmax32-fp16" else 0)


def test_scores_are_a_tensor_of_the_graph_under_their_own_name() -> None:
    made = REPRO.prepare(small("whole-scores-fp32"))
    [node] = [node for node in made["model"].graph.node if "scores" in node.output]
    assert node.name == "/decoder/layers.0/multihead_attn/MatMul_3"
    assert made["reference"]["scores"].shape == (16, 1, 27)
