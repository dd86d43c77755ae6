"""Linears that share one norm's output (q, k, v or gate and up) are merged into one: garbage at batch 1."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "Linears that share their input are merged",
    "upstream": "NVIDIA/TensorRT-Edge-LLM#151",
    "url": "https://github.com/NVIDIA/TensorRT-Edge-LLM/issues/151",
    # See also NVIDIA/TensorRT-Edge-LLM#105
    "summary": "On Jetson Thor with 10.13.3.9 the V projection of a merged q, k, v is garbage; marking it as "
    "an output cures it. NVIDIA's own builder of language models switches the merging off (for 10.13 and "
    "10.14 match_dual_gemm, from 10.15 on fc_h_fusion). Other GPUs are not reported.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "expectations": [  # the first that fits counts
        {
            "cases": ["qkv-1-fp16"],
            "versions": "==10.13.3",
            "compute": "==11.0",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT-Edge-LLM/issues/151",
            "on": "Jetson Thor",
            "note": "of a whole model, 10.13.3.9",
        },
        {
            "cases": ["qkv-1-fp16", "swiglu-1-fp16"],
            "versions": ">=10.13",
            "compute": "==11.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT-Edge-LLM/issues/105",
            "note": "NVIDIA's builder of language models switches the merging off, up to 11",
        },
        {
            "cases": ["qkv-*", "swiglu-*", "workaround-*"],
            "versions": "<10.13",
            "verdict": "PASS",
            "basis": "assumed",
            "note": "not reported of earlier versions",
        },
    ],
    "workarounds": [{"what": "mark the projections as outputs", "case": "workaround-outputs-1-fp16"}],
    "rules": [
        {
            "what": "Linears of one row that share their input are merged: garbage",
            "graph": [
                {
                    "op": ["MatMul"], "types": {0: ["float16"]}, "constant": [1],
                    "where": ["one row or column", "no output"],
                },
            ],
            "same": 0,
            "at": [
                {
                    "versions": "==10.13.3.*", "effect": "wrong", "basis": "reported", "on": "Jetson Thor",
                    "compute": "==11.0",
                },
                {"versions": ">=10.13", "effect": "wrong", "basis": "assumed", "compute": "==11.0"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT-Edge-LLM/issues/151",
            "instead": "mark the projections as outputs",
        },
    ],
}  # fmt: skip

SIZE, HEADS, INNER, EPSILON = 512, 8, 1408, 1e-5
NOISE = ("form", "length", "outputs", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for form in ("qkv", "swiglu"):
        for length in (1, 16):
            for precision in ("fp16", "fp32"):
                yield case(f"{form}-{length}-{precision}", form, length, precision)
    yield case("workaround-outputs-1-fp16", "qkv", 1, "fp16", outputs=True)
    yield {**case("control-swapped-16-fp32", "swapped", 16, "fp32"), "control": "negative"}


def case(name: str, form: str, length: int, precision: str, *, outputs: bool = False) -> Dict[str, Any]:
    params = {"form": form, "length": length, "outputs": outputs, "precision": precision}
    return {"id": name, "params": params}


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """RMSNorm, then attention or SwiGLU with a projection behind."""
    x, weights = drawn(params, seed)
    x = x[0].astype(arithmetic.working)
    deviation = np.sqrt((x * x).mean(axis=-1, keepdims=True) + arithmetic.working(EPSILON))
    normed = arithmetic.stored(x / deviation)
    made = {name: arithmetic.matmul(normed, weights[name]) for name in weights if name != "out"}
    if params["form"] == "swiglu":
        gate = arithmetic.stored(made["gate"] / (1 + np.exp(-made["gate"])))
        inner = arithmetic.stored(gate * made["up"])
        return {"y": arithmetic.matmul(inner, weights["out"])[np.newaxis]}
    heads = {name: array.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for name, array in made.items()}
    mixed = []
    for q, k, v in zip(heads["q"], heads["k"], heads["v"], strict=True):
        scores = arithmetic.stored(arithmetic.matmul(q, k.T) * arithmetic.working(0.125))
        mixed.append(arithmetic.softmax_matmul(scores, v))
    joined = np.stack(mixed).transpose(1, 0, 2).reshape(len(x), SIZE)
    outputs = {"y": arithmetic.matmul(joined, weights["out"])[np.newaxis]}
    return {**outputs, **({name: made[name][np.newaxis] for name in "qkv"} if params["outputs"] else {})}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    x, weights = drawn(params, seed=0)
    dtype, length = x.dtype, params["length"]
    graph = Graph()
    graph.input("x", dtype, x.shape)
    mean = graph.node("ReduceMean", graph.node("Mul", "x", "x"), axes=[-1], keepdims=1)
    shifted = graph.node("Add", mean, graph.constant(np.full((1, 1, 1), EPSILON, dtype)))
    normed = graph.node("Div", "x", graph.node("Sqrt", shifted))
    named = {name: graph.initializer("w_" + name, weight) for name, weight in weights.items()}

    def linear(source: str, name: str, out: str = "") -> str:
        return str(graph.node("MatMul", source, named[name], out=out))

    if params["form"] == "swiglu":
        gate, up = linear(normed, "gate"), linear(normed, "up")
        inner = graph.node("Mul", graph.node("Mul", gate, graph.node("Sigmoid", gate)), up)
    else:
        made = {name: linear(normed, name, name if params["outputs"] else "") for name in "qkv"}
        if params["form"] == "swapped":  # wrong on purpose
            made["k"], made["v"] = made["v"], made["k"]
        split = graph.constant([1, length, HEADS, SIZE // HEADS])
        turned = {
            name: graph.node(
                "Transpose",
                graph.node("Reshape", made[name], split),
                perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3],
            )
            for name in "qkv"
        }
        scores = graph.node("MatMul", turned["q"], turned["k"])
        scaled = graph.node("Mul", scores, graph.constant(np.full((1, 1, 1, 1), 0.125, dtype)))
        mixed = graph.node("MatMul", graph.node("Softmax", scaled, axis=-1), turned["v"])
        back = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
        inner = graph.node("Reshape", back, graph.constant([1, length, SIZE]))
    linear(inner, "out", "y")
    reference = emulate(params, FLOAT64)
    for name, array in reference.items():
        graph.output(name, dtype, array.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": reference}


def drawn(params: Dict[str, Any], seed: int) -> Tuple[Any, Dict[str, Any]]:
    """X and the weights of the Linears."""
    random = np.random.default_rng(seed)
    dtype = np.float16 if params["precision"] == "fp16" else np.float32
    swiglu = params["form"] == "swiglu"
    shapes = dict.fromkeys(("gate", "up") if swiglu else "qkv", (SIZE, INNER if swiglu else SIZE))
    shapes["out"] = (INNER if swiglu else SIZE, SIZE)
    x = random.normal(size=(1, params["length"], SIZE)).astype(dtype)
    weights = {
        name: (random.normal(size=shape) / np.sqrt(shape[0])).astype(dtype) for name, shape in shapes.items()
    }
    return x, weights


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
