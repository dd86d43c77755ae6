"""Attributes and inputs of opset 16 to 20 that TensorRT's ONNX parser drops without a word.

The graph is parsed, built and run, and computes something else: opset-18 Reduce over all axes, Scatter
without its reduction, Resize without antialiasing, Split and Shape as of older opsets, GridSample by nearest.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator

FACTS = {
    "title": "attributes that the ONNX parser drops without a word",
    "upstream": "NVIDIA/TensorRT#3467",
    "url": "https://github.com/NVIDIA/TensorRT/issues/3467",
    # See also NVIDIA/TensorRT#3750, NVIDIA/TensorRT#3560, NVIDIA/TensorRT#3465, NVIDIA/TensorRT#3466,
    # NVIDIA/TensorRT#4646, NVIDIA/TensorRT#4756
    "summary": "The parsers of 8.5 to 9.3 read no axes input of an opset-18 Reduce, no reduction of Scatter, "
    "no antialias of Resize, num_outputs of Split, start and end of Shape; later ones read or refuse "
    "them. GridSample with opset 20's names, and GroupNormalization with one group, are wrong longer.",
    "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
    "defects": {
        "dropped": {"what": "computed as if the attribute or input were not there"},
    },
    "expectations": [  # the first that fits counts
        {
            "cases": ["scatter-nd-add*"],
            "versions": ">=10.0,<10.2",
            "verdict": "NO VERDICT",
            "basis": "assumed",
            "source": "https://github.com/microsoft/onnxruntime/issues/17434",
            "note": "refused: Attribute reduction is not supported",
        },
        {
            "cases": ["resize-linear", "resize-preprocess", "resize-cubic"],
            "versions": ">=10.0",
            "verdict": "NO VERDICT",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3560",
            "note": "10.0.1.6 refuses: Antialiasing is not supported currently",
        },
        {
            "cases": ["groupnorm-one*"],
            "versions": "==8.6.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4756",
            "note": "computed for each channel on an H200 in three builds of three",
        },
        {
            "cases": ["groupnorm-*"],
            "versions": "<10.9",
            "verdict": "NO VERDICT",
            "basis": "assumed",
            "note": "opset 21's form, with a scale a channel; 8.5.1.7 to 8.5.3.1 have no importer for it",
        },
        {
            "cases": ["groupnorm-one*"],
            "versions": "==10.16.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4756",
            "note": "10.16.1.11",
        },
        {
            "cases": ["groupnorm-one*"],
            "versions": ">=10.9",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4756",
            "note": "from 10.9 on opset 21's form is read; open: no fix is reported",
        },
        {
            "cases": ["gridsample-linear*", "gridsample-cubic"],
            "versions": "==10.13.3",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/4646",
            "on": "RTX 5090",
        },
        {
            "cases": ["gridsample-linear*", "gridsample-cubic"],
            "versions": ">=8.5",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/onnx/onnx-tensorrt",
            "note": "the parser's sources of 8.5 to 10.1 take a mode that they do not know for nearest",
        },
        {
            "cases": ["reduce-max"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3467",
            "note": "8.6.1.6, ReduceMax; the other reductions are parsed by the same lines",
        },
        {
            "cases": ["scatter-elements-add*", "scatter-nd-add*"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3750",
            "note": "8.6.1.6: no error, a wrong result",
        },
        {
            "cases": ["resize-linear", "resize-preprocess", "resize-cubic"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3560",
            "note": "8.6: antialiasing is not applied",
        },
        {
            "cases": ["shape-*"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3465",
            "note": "8.6.1.6",
        },
        {
            "cases": ["split-*"],
            "versions": "==8.6.1",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/NVIDIA/TensorRT/issues/3466",
            "note": "8.6.1.6; to be fixed in 10.0",
        },
        {
            "cases": [
                "reduce-rmsnorm", "reduce-layernorm", "reduce-max", "reduce-l2", "reduce-channel-gate",
                "reduce-pooled", "scatter-*", "resize-linear", "resize-preprocess", "resize-cubic",
                "split-*", "shape-*",
            ],
            "versions": ">=8.5,<10.0",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/onnx/onnx-tensorrt",
            "note": "read in the parser's sources of 8.5 to 9.3; measured from 8.5.1.7 to 8.6.0 on an H200",
        },
        {
            "cases": ["reduce-*", "scatter-*", "split-*", "shape-*"],
            "versions": ">=10.0",
            "verdict": "PASS",
            "basis": "assumed",
            "source": "https://github.com/onnx/onnx-tensorrt",
            "note": "read in the parser's sources of release/10.0",
        },
    ],
    "workarounds": [
        {
            "what": "export Reduce at opset 17: the axes are an attribute",
            "case": "control-reduce-attribute",
            "cases": ["reduce-*"],
        },
        {
            "what": "ReduceSum, the one that was read, and a Mul by 1/n",
            "case": "workaround-reduce-by-sum",
            "cases": ["reduce-rmsnorm", "reduce-layernorm", "reduce-channel-gate", "reduce-pooled"],
        },
        {
            "what": "Resize as two MatMuls with constant weights",
            "case": "workaround-resize-by-matmul",
            "cases": ["resize-*"],
        },
        {"what": "give Split its sizes", "case": "workaround-split-by-sizes", "cases": ["split-*"]},
        {
            "what": "take Shape whole and Gather from it",
            "case": "workaround-shape-by-gather",
            "cases": ["shape-*"],
        },
        {
            "what": "export GridSample at opset 16",
            "case": "control-gridsample-bilinear-opset16",
            "cases": ["gridsample-*"],
        },
        {
            "what": "write the norm of one group out",
            "case": "workaround-groupnorm-by-reduce",
            "cases": ["groupnorm-*"],
        },
    ],
    "rules": [
        {
            "what": "the axes input: all axes are reduced",
            "graph": [
                {
                    "op": [
                        "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
                    ],
                    "opset": ">=18",
                    "given": [1],
                    "where": ["some axes"],
                },
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "ignored", "basis": "reported"},
                {"versions": ">=8.5,<10.0", "effect": "ignored", "basis": "read"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3467",
            "instead": "export at opset 17 (the axes are an attribute there), or ReduceSum and a Mul by 1/n",
        },
        {
            "what": "the reduction: updates overwrite",
            "graph": [
                {
                    "op": ["ScatterElements", "ScatterND"],
                    "attributes": {"reduction": ["add", "mul", "max", "min"]},
                },
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "ignored", "basis": "reported"},
                {"versions": ">=8.5,<10.0", "effect": "ignored", "basis": "read"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3750",
        },
        {
            "what": "the reduction",
            "graph": [{"op": ["ScatterND"], "attributes": {"reduction": ["add", "mul", "max", "min"]}}],
            "at": [{"versions": ">=10.0,<10.2", "effect": "refused", "basis": "assumed"}],
            "source": "https://github.com/microsoft/onnxruntime/issues/17434",
        },
        {
            "what": "antialiasing",
            "graph": [{"op": ["Resize"], "attributes": {"antialias": [1], "mode": ["linear", "cubic"]}}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "ignored", "basis": "reported"},
                {"versions": ">=8.5,<10.0", "effect": "ignored", "basis": "read"},
                {"versions": ">=10.0,<10.2", "effect": "refused", "basis": "read"},
                {"versions": ">=10.2", "effect": "refused", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3560",
            "instead": "write it as two MatMuls with constant weights",
        },
        {
            "what": "the uneven last part: rows are lost",
            "graph": [{"op": ["Split"], "opset": ">=18", "where": ["uneven parts"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "ignored", "basis": "reported"},
                {"versions": ">=8.5,<10.0", "effect": "ignored", "basis": "read"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3466",
            "instead": "give it its sizes, as an input",
        },
        {
            "what": "start and end: it gives the whole shape",
            "graph": [{"op": ["Shape"], "where": ["part of the shape"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": "==8.6.1.*", "effect": "ignored", "basis": "reported"},
                {"versions": ">=8.5,<10.0", "effect": "ignored", "basis": "read"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/3465",
            "instead": "take Shape whole, and Gather or Slice from it",
        },
        {
            "what": "opset 20's modes: sampled by nearest",
            "graph": [
                {"op": ["GridSample"], "opset": ">=20", "attributes": {"mode": ["linear", "cubic"]}},
            ],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<10.2", "effect": "wrong", "basis": "read"},
                {"versions": "==10.13.3.*", "effect": "wrong", "basis": "reported", "on": "RTX 5090"},
                {"versions": ">=10.2", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/4646",
            "instead": "export at opset 16: bilinear, bicubic",
        },
        # The next three are shown by ONNX's own tests, not by a case: see docs/operators.md.
        {
            "what": "layout 1: read as if it were 0",
            "graph": [{"op": ["GRU", "LSTM", "RNN"], "attributes": {"layout": [1]}}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "ignored", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<8.6.1", "effect": "ignored", "basis": "assumed"},
            ],
            "source": "https://github.com/onnx/onnx-tensorrt",
            "instead": "transpose around it, and leave layout at 0",
        },
        {
            "what": "upper left out: the lower triangle",
            "graph": [{"op": ["Trilu"], "where": ["upper left out"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<8.6.1", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/onnx/onnx-tensorrt",
            "instead": "give upper=1",
        },
        {
            "what": "value_int: read as 0",
            "graph": [{"op": ["Constant"], "where": ["an integer, not 0"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6.1", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": ">=8.5,<8.6.1", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/onnx/onnx-tensorrt",
            "instead": "an initializer, or a tensor as value",
        },
        {
            "what": "one group: computed as one a channel",
            "graph": [
                {"op": ["GroupNormalization"], "opset": "<21", "attributes": {"num_groups": [1]}},
            ],
            "at": [
                {"versions": ">=8.6,<10.2", "effect": "wrong", "basis": "read"},
                {"versions": ">=10.2", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/4756",
            "instead": "write the norm of one group out",
        },
        {
            "what": "one group: computed as one a channel",
            "graph": [
                {"op": ["GroupNormalization"], "opset": ">=21", "attributes": {"num_groups": [1]}},
            ],
            "at": [
                {"versions": "==8.6.0.*", "effect": "wrong", "basis": "measured", "on": "H200"},
                {"versions": "==10.16.1.*", "effect": "wrong", "basis": "reported"},
                {"versions": ">=10.9", "effect": "wrong", "basis": "assumed"},
            ],
            "source": "https://github.com/NVIDIA/TensorRT/issues/4756",
            "instead": "write the norm of one group out",
        },
        {
            "what": "opset 21's form, with a scale a channel",
            "graph": [{"op": ["GroupNormalization"], "opset": ">=21"}],
            "at": [{"versions": ">=8.6.1,<10.9", "effect": "refused", "basis": "assumed"}],
            "source": "https://github.com/onnx/onnx-tensorrt",
        },
        {
            "what": "the operator, which this parser does not have",
            "graph": [{"op": ["GroupNormalization"]}],
            "at": [
                {"versions": ">=8.5.1.7,<8.6", "effect": "refused", "basis": "measured", "on": "H200"},
                {"versions": "<8.6", "effect": "refused", "basis": "assumed"},
            ],
            "source": "https://github.com/onnx/onnx-tensorrt",
            "instead": "write the norm out at opset 17, as was shown for one group",
        },
    ],
}  # fmt: skip

NOISE = ("graph", "precision")
DROPPED = (
    "reduce-rmsnorm", "reduce-layernorm", "reduce-max", "reduce-l2", "reduce-channel-gate",
    "scatter-elements-add", "scatter-elements-max", "scatter-nd-add", "resize-linear", "resize-preprocess",
    "resize-cubic", "split-uneven-product", "shape-scale", "gridsample-linear", "gridsample-linear-border",
    "gridsample-linear-align", "gridsample-cubic", "groupnorm-one", "groupnorm-one-1d",
)  # fmt: skip
OTHER = (  # another shape, or one of several updates that may win
    "reduce-pooled", "split-uneven", "shape-reshape",
    "scatter-elements-add-duplicates", "scatter-nd-add-duplicates",
)  # fmt: skip
WORKAROUNDS = (
    "reduce-by-sum", "resize-by-matmul", "split-by-sizes", "shape-by-gather", "groupnorm-by-reduce",
)  # fmt: skip
CONTROLS = (
    "reduce-attribute", "scatter-elements-plain", "scatter-nd-plain", "resize-plain", "gridsample-nearest",
    "gridsample-bilinear-opset16", "gridsample-bicubic-opset16",
)  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    for graph in (*DROPPED, *OTHER, *WORKAROUNDS, *CONTROLS):
        control, workaround = graph in CONTROLS, graph in WORKAROUNDS
        made = {"id": ("control-" if control else "workaround-" if workaround else "") + graph}
        case: Dict[str, Any] = {**made, "params": {"graph": graph, "precision": "fp32"}}
        if control:
            case["control"] = "positive"
        if graph in DROPPED:
            case["defects"] = ["dropped"]
        yield case
    yield {
        "id": "control-reduce-everywhere",
        "params": {"graph": "reduce-everywhere", "precision": "fp32"},
        "control": "negative",
        "defects": ["dropped"],
        "defect": "dropped",
    }


def emulate(
    params: Dict[str, Any], arithmetic: Any, defect: str = "", seed: int = 0, small: bool = False
) -> Dict[str, Any]:
    """The graph's mathematics, with what is dropped or without; the graphs are small."""
    from trtmatrix.authoring.parser_graphs import EXAMPLES

    example = EXAMPLES[params["graph"]]
    return dict(example.outputs(example.draw(seed), arithmetic, dropped=defect == "dropped"))


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.arithmetic import FLOAT64
    from trtmatrix.authoring.parser_graphs import EXAMPLES

    example = EXAMPLES[params["graph"]]
    inputs, reference = example.draw(seed=0), emulate(params, FLOAT64)
    return {"model": example.model(inputs, reference), "inputs": inputs, "reference": reference}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    return trt.build(files.model, precision=params["precision"]).run(files.inputs)


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
