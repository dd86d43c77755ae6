"""Graphs run as they are written, and how far outputs lie from a reference and along a defect."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, Arithmetic
from trtmatrix.judge.factors import ALLOWED

Array = NDArray[Any]


def on_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph on the CPU without any optimisation; returns its outputs by name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def relative(y: Array, reference: Array) -> float:
    return float(np.linalg.norm((y - reference).ravel()) / np.linalg.norm(reference.ravel()))


def contained(y: Array, reference: Array, wrong: Array) -> float:
    d = wrong - reference
    return float(np.vdot(y - reference, d) / np.vdot(d, d))


def members(params: Mapping[str, Any]) -> Iterator[Arithmetic]:
    for precision in ALLOWED[params["precision"]]:
        yield from ENSEMBLE[precision].values()


def floor_of(repro: Any, params: Mapping[str, Any], *, small: bool = False) -> float:
    reference = repro.emulate(params, FLOAT64, small=small)["y"]
    return max(relative(repro.emulate(params, a, small=small)["y"], reference) for a in members(params))
