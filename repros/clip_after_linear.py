"""Clip(0, 6) after a Linear becomes ReLU: the upper bound is lost (torch: Linear and ReLU6)."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "Clip after a Linear loses its upper bound",
    "upstream": "NVIDIA/TensorRT#4606",
    "url": "https://github.com/NVIDIA/TensorRT/issues/4606",
    # See also NVIDIA/TensorRT#2521, NVIDIA/TensorRT#3785
    "summary": "MatMul, Add and Clip with the bounds 0 and 6 give max(x W + b, 0) at 10.12 and 10.13.3, on "
    "A100 and H200, by default settings. The reporter's smallest form is (2, 3) by (3, 4). In FP16 clamps "
    "of half models were reported at 8.5 and 8.6. On an H200 8.5.1.7 gives zeros or infinities for graphs "
    "typed in float16, other ones in each build; 8.5.2.2, 8.5.3.1 and 8.6.0 are right.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {"no-upper-bound": {"what": "the upper bound lost", "upstream": "NVIDIA/TensorRT#4606"}},
    "expectations": [  # the first that fits counts
        {
            "cases": ["relu6-3x4", "relu6-256", "relu6-tf32"],
            "versions": ">=10.12,<=10.13.3",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4606",
            "on": "A100, H200",
            "note": "10.12.0.36 and 10.13.3.9",
        },
        {
            "cases": ["relu6-fp16", "clamp-from-half-fp16"],
            "versions": "==8.5.1.*",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/2521",
            "note": "garbage on an H200 at 8.5.1.7 in three builds of three; right from 8.5.2.2",
        },
        {
            "cases": ["relu6-3x4", "relu6-256", "relu6-tf32", "relu6-gemm", "relu6-fp16"],
            "versions": ">=10.12",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4606",
            "note": "open: no fix is reported",
        },
    ],
    "workarounds": [
        {"what": "Max and Min instead of Clip", "case": "workaround-minmax"},
        {"what": "a lower bound other than 0", "case": "workaround-minus1"},
    ],
    "rules": [
        {
            "what": "Clip from 0 after a Linear loses its upper bound",
            "graph": [
                {"op": ["MatMul", "Gemm"], "constant": [0, 1]},
                {"op": ["Clip"], "skip": ["Add"], "where": ["bounded from 0"]},
            ],
            "at": [
                {
                    "versions": ">=10.12,<10.13.4", "effect": "wrong", "basis": "reported",
                    "on": "A100, H200",
                },
                {"versions": ">=10.12", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/4606",
            "instead": "Max and Min, or a lower bound other than 0",
        },
        {
            "what": "Clip in float16 after a Linear: garbage, another in each build",
            "graph": [
                {"op": ["MatMul", "Gemm"], "constant": [0, 1], "types": {0: ["float16"]}},
                {"op": ["Clip"], "skip": ["Add"]},
            ],
            "at": [{"versions": "==8.5.1.7", "effect": "wrong", "basis": "measured", "on": "H200"}],
            "source": "https://github.com/NVIDIA/TensorRT/issues/2521",
            "instead": "8.5.2.2 is right",
        },
    ],
}  # fmt: skip

HIGH = 6.0
BASE = {"form": "matmul", "low": 0.0, "rows": 32, "width": 256, "outs": 128, "precision": "fp32"}
REPORTED = {"rows": 2, "width": 3, "outs": 4}
ROWS: Dict[str, Dict[str, Any]] = {  # what differs from BASE
    "relu6-3x4": REPORTED,
    "relu6-256": {},
    "relu6-tf32": {"precision": "tf32"},
    "relu6-gemm": {"form": "gemm"},
    "relu6-conv": {"form": "conv"},
    "relu6-fp16": {"precision": "fp16"},
    "relu6-fp16-flag": {"precision": "fp16-flag"},
    "clamp-from-half-fp16": {"low": 0.5, "precision": "fp16"},
    "workaround-minmax": {"form": "minmax"},
    "workaround-minus1": {"low": -1.0},
    "control-relu": {"form": "relu"},
    "control-no-upper-bound": {"form": "wrong"},
}
NOISE = ("form", "low", "rows", "width", "outs", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for name, own in ROWS.items():
        made: Dict[str, Any] = {"id": name, "params": {**BASE, **own}, "defects": ["no-upper-bound"]}
        if name == "control-relu":
            made.update(control="positive", defects=[])
        elif name.startswith("control"):
            made.update(control="negative", defect="no-upper-bound")
        yield made


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """Clip(x W + b); without its upper bound where that is the defect."""
    x, weight, bias = drawn(params, seed)
    y = arithmetic.stored(arithmetic.matmul(x, weight) + bias.astype(arithmetic.working))
    high = np.inf if defect or params["form"] == "relu" else HIGH
    y = np.clip(y, params["low"], high)
    return {"y": y.T[np.newaxis, :, :, np.newaxis] if params["form"] == "conv" else y}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    x, weight, bias = drawn(params, seed=0)
    form, dtype = params["form"], x.dtype
    graph = Graph()
    if form == "conv":  # the same product, rows as places of a picture
        x = np.ascontiguousarray(x.T[np.newaxis, :, :, np.newaxis])
        graph.input("x", dtype, x.shape)
        kernel = graph.initializer("w", np.ascontiguousarray(weight.T[:, :, np.newaxis, np.newaxis]))
        linear = graph.node("Conv", "x", kernel, graph.initializer("b", bias), kernel_shape=[1, 1])
    else:
        graph.input("x", dtype, x.shape)
        w, b = graph.initializer("w", weight), graph.initializer("b", bias)
        if form == "gemm":
            linear = graph.node("Gemm", "x", w, b)
        else:
            linear = graph.node("Add", graph.node("MatMul", "x", w), b)
    if form in ("relu", "wrong"):
        graph.node("Relu", linear, out="y")
    elif form == "minmax":
        low, high = (graph.constant(np.array([bound], dtype)) for bound in (params["low"], HIGH))
        graph.node("Min", graph.node("Max", linear, low), high, out="y")
    else:
        low, high = (graph.constant(np.array(bound, dtype)) for bound in (params["low"], HIGH))
        graph.node("Clip", linear, low, high, out="y")
    reference = emulate(params, FLOAT64)
    graph.output("y", dtype, reference["y"].shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": reference}


def drawn(params: Dict[str, Any], seed: int) -> Tuple[Any, Any, Any]:
    """X, W and b; a third of the products is beyond 6."""
    random = np.random.default_rng(seed)
    width, outs = params["width"], params["outs"]
    x, bias = random.normal(size=(params["rows"], width)), random.normal(size=outs)
    weight = random.normal(size=(width, outs)) * 12 / np.sqrt(width)
    dtype = np.float16 if params["precision"] == "fp16" else np.float32
    return x.astype(dtype), weight.astype(dtype), bias.astype(dtype)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
