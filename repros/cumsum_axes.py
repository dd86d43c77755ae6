"""Two CumSum along different axes in one network: both run along one of them.

As in DETR's sine position encoding, which counts rows and columns of a mask.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "two CumSum along different axes",
    "upstream": "NVIDIA/TensorRT#4551",
    "url": "https://github.com/NVIDIA/TensorRT/issues/4551",
    # See also onnx/onnx-tensorrt#1034, NVIDIA/TensorRT#4813
    "summary": "From 10.8 on, where the layer for it came, to 10.11.0.33 at least (A10). Up to 10.7 the "
    "parser writes a loop, which is right.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {
        "first-axis": {"what": "both along the first one's axis", "upstream": "NVIDIA/TensorRT#4551"},
        "second-axis": {"what": "both along the second one's axis", "upstream": "NVIDIA/TensorRT#4551"},
    },
    "expectations": [  # the first that fits counts
        {
            "cases": ["two-axes-4x2", "two-axes-48", "position-encoding"],
            "versions": "==10.11.0",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4551",
            "on": "A10",
            "note": "10.11.0.33",
        },
        {
            "cases": ["two-axes-4x2", "two-axes-48", "position-encoding"],
            "versions": ">=10.8",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4551",
            "note": "the layer came with 10.8; open: no fix is reported",
        },
        {
            "cases": ["two-axes-*", "position-encoding", "workaround-*"],
            "versions": "<10.8",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/onnx/onnx-tensorrt/issues/1034",
            "note": "the parser writes a loop",
        },
    ],
    "workarounds": [
        {"what": "one of them as a MatMul by a triangle of ones", "case": "workaround-triangle"},
        {
            "what": "one of them between two Transposes, along the other's axis",
            "case": "workaround-transpose",
        },
    ],
    "rules": [
        {
            "what": "several CumSum run along the axis of one of them",
            "graph": [{"op": ["CumSum"]}],
            "differ": 1,
            "at": [
                {"versions": "==10.11.*", "effect": "wrong", "basis": "reported", "on": "A10"},
                {"versions": ">=10.8", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/4551",
            "instead": "a MatMul by a triangle of ones, or Transposes, so that all have one axis",
        },
    ],
}  # fmt: skip

ROWS: Dict[str, Tuple[str, int, int]] = {  # form, rows, columns
    "two-axes-4x2": ("two", 4, 2),
    "two-axes-48": ("two", 48, 48),
    "position-encoding": ("encoding", 25, 34),
    "workaround-triangle": ("triangle", 48, 48),
    "workaround-transpose": ("transpose", 48, 48),
    "control-one-axis": ("one", 48, 48),
    "control-wrong-axis": ("wrong", 48, 48),
}
NOISE = ("form", "rows", "columns", "precision")


def cases() -> Iterator[Dict[str, Any]]:
    for name, (form, rows, columns) in ROWS.items():
        params = {"form": form, "rows": rows, "columns": columns, "precision": "fp32"}
        made: Dict[str, Any] = {"id": name, "params": params, "defects": ["first-axis", "second-axis"]}
        if form == "one":
            made.update(control="positive", defects=[])
        elif form == "wrong":
            made.update(control="negative", defect="first-axis")
        yield made


def axes_of(params: Dict[str, Any], defect: str) -> Tuple[int, int]:
    if params["form"] == "one":
        return 1, 1
    return {"first-axis": (0, 0), "second-axis": (1, 1)}.get(defect, (0, 1))


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """Sums along two axes; encoding: as shares of the whole."""
    x = drawn(params, seed).astype(arithmetic.working)
    sums = [arithmetic.stored(np.cumsum(x, axis)) for axis in axes_of(params, defect)]
    if params["form"] != "encoding":
        return {"y0": sums[0], "y1": sums[1]}
    lasts = (sums[0][-1:, :], sums[1][:, -1:])
    shares = [
        total / (last + arithmetic.working(1e-6)) for total, last in zip(sums, lasts, strict=True)
    ]  # each by its own last row or column
    return {"y": arithmetic.stored(np.stack([np.sin(6 * share) for share in shares]))}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.graph import Graph

    x, form = drawn(params, seed=0), params["form"]
    graph = Graph()
    graph.input("x", np.float32, x.shape)

    def cumsum(axis: int, out: str, source: str = "x") -> str:
        return str(graph.node("CumSum", source, graph.constant(axis), out=out))

    if form == "encoding":
        shares = []
        for axis, name in ((0, "rows"), (1, "columns")):
            total = cumsum(axis, name)
            ends = (graph.constant([-1]), graph.constant([2**31 - 1]), graph.constant([axis]))
            last = graph.node("Slice", total, *ends)
            shifted = graph.node("Add", last, graph.constant(np.full((1, 1), 1e-6, np.float32)))
            share = graph.node("Div", total, shifted)
            scaled = graph.node("Mul", share, graph.constant(np.full((1, 1), 6, np.float32)))
            shares.append(graph.node("Unsqueeze", graph.node("Sin", scaled), graph.constant([0])))
        graph.node("Concat", *shares, axis=0, out="y")
    else:
        cumsum(1 if form == "one" else 0, "y0")
        if form == "triangle":
            graph.node("MatMul", "x", graph.constant(np.triu(np.ones((48, 48), np.float32))), out="y1")
        elif form == "transpose":
            turned = cumsum(0, "", graph.node("Transpose", "x", perm=[1, 0]))
            graph.node("Transpose", turned, perm=[1, 0], out="y1")
        else:
            cumsum(0 if form == "wrong" else 1, "y1")
    reference = emulate(params, FLOAT64)
    for name, array in reference.items():
        graph.output(name, np.float32, array.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": reference}


def drawn(params: Dict[str, Any], seed: int) -> Any:
    """Numbers of one size; for the encoding a mask that is padded at the right and below."""
    rows, columns = params["rows"], params["columns"]
    if params["form"] == "encoding":
        mask = np.zeros((rows, columns), np.float32)
        mask[: rows - 5 + seed % 3, : columns - 9] = 1
        return mask
    return np.random.default_rng(seed).uniform(0.5, 1.5, (rows, columns)).astype(np.float32)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
