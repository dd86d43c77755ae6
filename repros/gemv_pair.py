"""Two matrix products in a row with one row or one column each (two GEMVs): wrong from 10.0 on."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "two products of one row in a row",
    "upstream": "NVIDIA/TensorRT#3969",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3969",
    "summary": "Segment Anything's mask decoder is wrong at batch 1 with 10.0.1 (RTX 3090), right at larger "
    "batches and with 8.6.3. 10.1's release notes name two consecutive GEMV operations and advise padding.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "expectations": [  # the first that fits counts
        {
            "cases": ["mlp-*", "hyper-network-*", "column-*"],
            "versions": ">=10.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3969",
            "on": "RTX 3090",
            "note": "10.0.1 as reported, of a whole model: which of these forms it takes is not said",
        },
        {
            "cases": ["mlp-*", "hyper-network-*", "column-*", "workaround-*"],
            "versions": "<10.0",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3969",
            "note": "8.6.3 as reported",
        },
    ],
    "workarounds": [{"what": "pad the rows to two", "case": "workaround-pad-fp32"}],
    "rules": [
        {
            "what": "two products of one row or column in a row",
            "graph": [
                {"op": ["MatMul"], "where": ["one row or column"]},
                {"op": ["MatMul"], "skip": ["Add", "Relu"], "where": ["one row or column"]},
            ],
            "at": [
                {"versions": ">=10.0", "effect": "wrong", "basis": "assumed", "on": "RTX 3090"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3969",
            "depends": "it is of the form that is reported of a whole model at 10.0.1",
            "instead": "pad the rows to two",
        },
    ],
}  # fmt: skip

FORMS = ("mlp", "mlp-relu", "hyper-network", "column")
SIZE, OUT, PLACES = 256, 32, 4096
NOISE = ("form", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for precision in ("fp32", "tf32", "fp16"):
        for form in FORMS:
            yield case(f"{form}-{precision}", form, precision)
    yield case("workaround-pad-fp32", "pad", "fp32")
    yield {**case("control-four-rows-fp32", "four", "fp32"), "control": "positive"}
    yield {**case("control-no-bias-fp32", "wrong", "fp32"), "control": "negative"}


def case(name: str, form: str, precision: str) -> Dict[str, Any]:
    return {"id": name, "params": {"form": form, "precision": precision}}


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """Two linear layers; hyper-network: their result times an embedding; column: A (B x)."""
    inputs, (first, second), biases = drawn(params, seed)
    if params["form"] == "column":
        inner = arithmetic.matmul(second, inputs["x"][0])
        return {"y": arithmetic.matmul(first, inner)[np.newaxis]}
    hidden = arithmetic.stored(
        arithmetic.matmul(inputs["x"][0], first) + biases[0].astype(arithmetic.working)
    )
    if params["form"] != "mlp":
        hidden = np.maximum(hidden, 0)
    y = arithmetic.stored(arithmetic.matmul(hidden, second) + biases[1].astype(arithmetic.working))
    if params["form"] == "hyper-network":
        y = arithmetic.matmul(y, inputs["embedding"][0])
    return {"y": y[np.newaxis]}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    inputs, weights, biases = drawn(params, seed=0)
    form, dtype = params["form"], inputs["x"].dtype
    graph = Graph()
    for name, array in inputs.items():
        graph.input(name, dtype, array.shape)
    first, second = (graph.initializer(f"w{i}", weight) for i, weight in enumerate(weights))
    if form == "column":
        graph.node("MatMul", first, graph.node("MatMul", second, "x"), out="y")
    else:
        names = [graph.initializer(f"b{i}", bias) for i, bias in enumerate(biases)]
        source = graph.node("Concat", "x", "x", axis=1) if form == "pad" else "x"
        hidden = graph.node("Add", graph.node("MatMul", source, first), names[0])
        hidden = hidden if form == "mlp" else graph.node("Relu", hidden)
        y = graph.node("MatMul", hidden, second)
        y = y if form == "wrong" else graph.node("Add", y, names[1])
        if form == "hyper-network":
            y = graph.node("MatMul", y, "embedding")
        if form == "pad":
            y = graph.node("Slice", y, *(graph.constant([value]) for value in (0, 1, 1)))
        graph.node("Identity", y, out="y")
    reference = emulate(params, FLOAT64)
    graph.output("y", dtype, reference["y"].shape)
    return {"model": graph.model(), "inputs": inputs, "reference": reference}


def drawn(params: Dict[str, Any], seed: int) -> Tuple[Dict[str, Any], Any, Any]:
    """Inputs, two weights, two biases."""
    random = np.random.default_rng(seed)
    column, rows = params["form"] == "column", 4 if params["form"] == "four" else 1
    dtype = np.float16 if params["precision"] == "fp16" else np.float32
    inputs = {"x": random.normal(size=(1, SIZE, 1) if column else (1, rows, SIZE)).astype(dtype)}
    if params["form"] == "hyper-network":
        inputs["embedding"] = random.normal(size=(1, OUT, PLACES)).astype(dtype)
    shapes = ((SIZE, SIZE), (SIZE, SIZE) if column else (SIZE, OUT))
    weights = [(random.normal(size=shape) / np.sqrt(SIZE)).astype(dtype) for shape in shapes]
    biases = [(random.normal(size=size) / 10).astype(dtype) for size in (SIZE, OUT)]
    return inputs, weights, biases


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
