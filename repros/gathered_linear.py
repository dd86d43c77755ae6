"""Gathered rows, a Linear over them and one over other rows, as heads, multiplied and summed: garbage.

As in graph attention and trajectory prediction. Memory that was never computed is read: values differ from
engine to engine, NaN and 1e23 among them.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "gathered rows, Linear, product and sum of heads",
    "upstream": "NVIDIA/TensorRT#3645",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3645",
    "summary": "Reported at 8.6.1.6, right at 8.2.2.1, closed as an internal bug without a version. On H200s "
    "8.5.3.1 and 8.6.0 give garbage. The cure that was reported, a further output, does not help there.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "expectations": [  # the first that fits counts
        {
            "cases": ["linear-128x8", "linear-tf32"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3645",
            "note": "8.6.1.6; it does not say which GPU",
        },
        {
            "cases": ["linear-*", "matmul-*"],
            "versions": ">=8.5,<=8.6.1",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3645",
            "note": "graphs like these were garbage on an H200 at 8.5.3.1 and 8.6.0",
        },
    ],
    "workarounds": [
        {"what": "multiply first, reshape then", "case": "workaround-reshape-last"},
    ],
    "rules": [
        {
            "what": "gathered rows, Linear, heads, product and sum: memory that was never computed",
            "graph": [
                {"op": ["Gather"]},
                {"op": ["Gemm", "MatMul"], "constant": [1]},
                {"op": ["Reshape"], "skip": ["Add"]},
                {"op": ["Mul"], "after": ["Reshape"], "named": True},
                {"op": ["ReduceSum"]},
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "wrong", "basis": "reported"},
                {"versions": ">=8.5,<8.6.2", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3645",
            "instead": "multiply first, reshape then",
        },
    ],
}  # fmt: skip

ROWS: Dict[str, Dict[str, Any]] = {  # what differs from 128 channels, 8 heads, two Gemm of gathered rows
    "linear-128x8": {},
    "linear-32x4": {"channels": 32, "heads": 4, "rows": 16, "edges": 37},
    "linear-fp16": {"precision": "fp16"},
    "linear-tf32": {"precision": "tf32"},
    "linear-output": {"form": "output"},
    "matmul-128x8": {"form": "matmul"},
    "workaround-reshape-last": {"form": "reshape-last"},
    "control-no-gather": {"form": "no-gather"},
    "control-swapped-heads": {"form": "swapped"},
}
BASE = {"form": "gemm", "channels": 128, "heads": 8, "rows": 192, "edges": 192, "precision": "fp32"}
NOISE = ("form", "channels", "heads", "rows", "edges", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for name, own in ROWS.items():
        made = {"id": name, "params": {**BASE, **own}, "builds": 2}
        if name.startswith("control"):
            made["control"] = "negative" if own["form"] == "swapped" else "positive"
        yield made


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """The sum over each head of q·k, of rows taken by the index."""
    inputs, weights, index = drawn(params, seed)
    rows = inputs["a"] if index is None else inputs["a"][index]
    q, k = (
        arithmetic.stored(
            arithmetic.matmul(x, weights["w" + name]) + weights["b" + name].astype(arithmetic.working)
        )
        for x, name in ((rows, "q"), (inputs["b"], "k"))
    )
    product = arithmetic.stored(q * k).reshape(len(q), params["heads"], -1)
    outputs = {"y": arithmetic.stored(product.sum(axis=-1))}
    return {**outputs, "k": k} if params["form"] == "output" else outputs


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    inputs, weights, index = drawn(params, seed=0)
    form, dtype = params["form"], inputs["a"].dtype
    graph = Graph()
    for name, array in inputs.items():
        graph.input(name, dtype, array.shape)
    named = {name: graph.initializer(name, array) for name, array in weights.items()}
    gathered = "a" if index is None else graph.node("Gather", "a", graph.constant(index), axis=0)
    heads = graph.constant([-1, params["heads"], params["channels"] // params["heads"]])

    def linear(x: str, name: str, out: str = "") -> str:
        if form == "matmul":
            return str(
                graph.node("Add", graph.node("MatMul", x, named["w" + name]), named["b" + name], out=out)
            )
        return str(graph.node("Gemm", x, named["w" + name], named["b" + name], out=out))

    q, k = linear(gathered, "q"), linear("b", "k", out="k" if form == "output" else "")
    if form == "reshape-last":
        product = graph.node("Reshape", graph.node("Mul", q, k), heads)
    else:
        product = graph.node("Mul", *(graph.node("Reshape", x, heads) for x in (q, k)))
    axis = 2
    if form == "swapped":  # wrong on purpose: the heads in reverse
        product = graph.node("Gather", product, graph.constant(list(range(params["heads"]))[::-1]), axis=1)
    graph.node("ReduceSum", product, graph.constant([axis]), keepdims=0, out="y")
    reference = emulate(params, FLOAT64)
    for name, array in reference.items():
        graph.output(name, dtype, array.shape)
    return {"model": graph.model(), "inputs": inputs, "reference": reference}


def drawn(params: Dict[str, Any], seed: int) -> Tuple[Dict[str, Any], Dict[str, Any], Any]:
    """Inputs, weights of two Linears, and the index of the gathered rows."""
    random, size = np.random.default_rng(seed), params["channels"]
    dtype = np.float16 if params["precision"] == "fp16" else np.float32
    plain = params["form"] in ("no-gather", "swapped")
    rows = params["edges"] if plain else params["rows"]
    inputs = {"a": random.normal(size=(rows, size)), "b": random.normal(size=(params["edges"], size))}
    weights = {"w" + name: random.normal(size=(size, size)) / np.sqrt(size) for name in "qk"}
    weights.update({"b" + name: random.normal(size=size) / 10 for name in "qk"})
    index = None if plain else random.integers(0, rows, params["edges"])
    rounded = [{name: array.astype(dtype) for name, array in part.items()} for part in (inputs, weights)]
    return rounded[0], rounded[1], index


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
