"""``python -m bench.operator_causes [VERSION]``: what TensorRT (8.6.0) gets wrong of ONNX's tests, and why.

Each wrong model of the record is changed as the table of ``docs/operators.md`` says, and computed on the CPU:
by ONNX's reference implementation, by NumPy for Scatter and Split, by the formula of its shape for pooling.
What comes out is held against what ONNX expects; where the cause is the right one, the message is the one of
the record. Prints for each cause how many models have it, how many of their messages are the same, and how
many are but for the last digit.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from trtmatrix.common.paths import default_cache
from trtmatrix.operators.cases import open_suite, read_arrays
from trtmatrix.operators.verdicts import find_wrong
from trtmatrix.records.operators import Verdict, read_operator_records

Arrays = dict[str, NDArray[Any]]

DROPPED = {
    "Shape": ("start", "end"), "Resize": ("antialias",), "ScatterND": ("reduction",), "LSTM": ("layout",),
    "ScatterElements": ("reduction",), "GRU": ("layout",), "RNN": ("layout",), "LpPool": ("dilations",),
    "SpaceToDepth": ("mode",),
}  # fmt: skip
"""The attributes that are not read, by operator."""
AXES_READ = {"ReduceSum", "ReduceLogSum"}


def misread(node: NodeProto) -> str:
    """Change a node into what the parser makes of it; returns the cause, nothing where it is none."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    kind, changed = node.op_type, dict(values)
    if kind.startswith("Reduce") and kind not in AXES_READ and len(node.input) > 1:
        del node.input[1:]
        return "Reduce over all axes"
    if kind == "GridSample" and values.get("mode") in {b"linear", b"cubic"}:
        changed["mode"] = "nearest"
    elif kind == "Trilu":
        changed.setdefault("upper", 0)
    elif kind == "Constant" and "value_int" in values:
        changed["value_int"] = 0
    for name in DROPPED.get(kind, ()):
        changed.pop(name, None)
    if changed == values:
        return ""
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items())
    return f"{kind}: {', '.join(sorted(set(values) ^ set(changed)) or set(changed) & {'mode', 'value_int'})}"


def compute(model: ModelProto, inputs: Arrays) -> Arrays:
    """Compute a model; the shapes that it declares for its outputs do not hold any more."""
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    found = ReferenceEvaluator(model).run(None, inputs)
    names = [output.name for output in model.graph.output]
    return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}


def compute_by_hand(node: NodeProto, inputs: Arrays) -> Arrays | None:
    """Compute Scatter (the first update of an element stays), uneven Split, and the shape of pooling."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    data = inputs.get(node.input[0], np.empty(0)) if node.input else np.empty(0)
    if node.op_type.startswith("Scatter") and set(node.input) <= set(inputs):
        places, updates = inputs[node.input[1]], inputs[node.input[2]]
        y, done = data.copy(), set[tuple[int, ...]]()
        for at in np.ndindex(*places.shape[: -1 if node.op_type == "ScatterND" else None]):
            place = tuple(int(number) for number in np.atleast_1d(places[at]))
            if node.op_type == "ScatterElements":
                axis = int(values.get("axis", 0))
                place = (*at[:axis], place[0] % data.shape[axis], *at[axis + 1 :])
            if place not in done:
                y[place] = updates[at]
                done.add(place)
        return {node.output[0]: y}
    if node.op_type == "Split":
        axis, parts = int(values.get("axis", 0)), len(node.output)
        part = np.take(data, range(data.shape[axis] // parts), axis)
        return dict.fromkeys(node.output, part)
    if node.op_type in {"MaxPool", "AveragePool"}:
        kernel = values["kernel_shape"]
        pads = values.get("pads", [0] * 2 * len(kernel))
        lengths = [n + pads[i] + pads[i + len(kernel)] for i, n in enumerate(data.shape[2:])]
        sizes = [
            math.ceil((n - k) / s) + 1 for n, k, s in zip(lengths, kernel, values["strides"], strict=True)
        ]
        return {node.output[0]: np.zeros((*data.shape[:2], *sizes), data.dtype)}
    return None


def is_same(told: str, found: str) -> bool:
    """Whether two messages differ in nothing but the last digits of their values."""
    number = r"-?\d+\.\d+"
    if re.sub(number, "#", told) != re.sub(number, "#", found):
        return False
    pairs = zip(re.findall(number, told), re.findall(number, found), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-5) for a, b in pairs)


def main(version: str = "8.6.0") -> None:
    """Print the table of a version that has a record."""
    suite = open_suite(default_cache())
    cases = {case.name: case for case in suite.cases}
    (record,) = (one for one in read_operator_records(Path("results")) if one.version == version)
    models, same, near = Counter[str](), Counter[str](), Counter[str]()
    with ZipFile(suite.file) as archive:
        for row in (row for row in record.rows.values() if row.verdict is Verdict.WRONG):
            case = cases[row.name]
            model, inputs = onnx.load_from_string(archive.read(case.model)), read_arrays(archive, case.inputs)
            constants = {
                tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
            }
            cause = " + ".join(sorted({misread(node) for node in model.graph.node} - {""}))
            by_hand = compute_by_hand(model.graph.node[0], inputs | constants)
            outputs = compute(model, inputs) if by_hand is None else by_hand
            found = find_wrong(case, read_arrays(archive, case.outputs), outputs)
            cause = cause or row.operator
            models[cause] += 1
            same[cause] += found == row.detail
            near[cause] += found != row.detail and is_same(row.detail, found)
    for cause, count in models.most_common():
        print(f"{count:4} {cause}: {same[cause]} the same, {near[cause]} but for the last digit")
    print(f"{models.total():4} in all: {same.total()} the same, {near.total()} but for the last digit")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    main(*sys.argv[1:])
