"""Names the first layer of a user's model that goes wrong at a version: ``--explain``.

The model runs with an inner tensor as a further output, as any other model does, against ONNX Runtime's
result of the same graph, in multiples of its noise floors; one warm process of the version runs all of them
(:mod:`trtmatrix.run.session`). Which tensor comes next is decided in :mod:`.explain_search`. Records of
these runs lie in the cache: the same search is served from there.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

import numpy as np
import onnx
from onnx import TensorProto

from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.text import counted, one_line
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import nan_last, other_shapes, subject_of
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.record import RAN, Measured, Record
from trtmatrix.model.explain_search import Errors, Graph, search_for_layer
from trtmatrix.model.outcomes import WrongLayer
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model, outputs_of
from trtmatrix.onnxmodel.graphs import find_external, infer, inputs_of, known_of
from trtmatrix.onnxmodel.inputs import choose_inputs, profile_texts
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.onnxmodel.reading import read_model
from trtmatrix.plan.context import Context
from trtmatrix.suite.model import Product

FOLDER = "explain"
"""Where in the cache the records of steps lie: the same step is served from there."""

MEASURED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Types whose errors can be told in every product: NumPy has no bfloat16, TensorRT no float64."""

LARGE_FILE = 1 << 24
"""Bytes of a model's own file from which on its weights are moved out of it: equal files are kept once."""

SHAPES = frozenset({"Shape", "Size"})
"""Operators that look at no value of their input: a wrong one changes nothing behind them."""

LEAST_FLOAT32 = 2.0**-22
LEAST: Mapping[str, float] = {"fp16": 2.0**-11, "fp16-flag": 2.0**-11, "bf16": 2.0**-8}
"""What an inner tensor may be off at least: a rounding of the precision; four of float32's, whose
elementary functions are no better on a GPU."""


def explain(
    context: Context, options: ModelOptions, entry: Entry, calibration: Calibration,
    tell: Callable[[str], None],
) -> WrongLayer:  # fmt: skip
    """Return the first layer of the user's model that goes wrong in an entry that fails.

    ``context``: as :func:`.open_model` gave it. What cannot be done is said in the answer. Errors are read
    from the record of the failure, for the sample whose outputs are furthest off; where it has none, as an
    output has another shape than its reference, each sample is run anew.
    """
    from trtmatrix.run.session import Session

    version, root, record = entry.cell.version, context.project.cache / FOLDER, entry.records[0]
    root.mkdir(parents=True, exist_ok=True)
    file = context.project.repros.parent / "model" / "model.onnx"
    inputs = choose_inputs(read_model(file), options.inputs, options.profile)
    names, samples = outputs_of(model_repro(context)), range(len(inputs.samples))
    own, some = frozenset(names.values()), entry.outcome and entry.outcome.failed < entry.outcome.builds
    gpu = entry.cell.gpu.slug if version.product is Product.TENSORRT else ""
    kept, started = replace(context, project=replace(context.project, results=root / "results")), monotonic()

    def measure(tensor: str, sample: int) -> Errors | str:
        try:
            with tempfile.TemporaryDirectory(dir=root, prefix=".marking-") as name:
                marked = Path(name) / "model" / "explained.onnx"  # its cells are none of the model's own
                fed, profile = Path(name) / "inputs.npz", profile_texts(inputs.profile)
                write_marked(file, tensor, marked)
                np.savez(fed, **inputs.samples[sample])  # type: ignore[arg-type] # arrays alone
                told = ModelOptions(model=marked, inputs=fed, precision=options.precision, profile=profile)
                repro = model_repro(open_model(context, told))
            found = session.ask(repro, builds=0 if some else 1)
        except (TrtMatrixError, OSError) as error:
            return one_line(str(error))
        if found.record is None:
            return "it did not run"
        return errors_of(found.record, found, outputs_of(repro), calibration, own)

    with Session(kept, version.name, gpu) as session:
        if other_shapes(record):
            every = [measure("", sample) for sample in samples]
        else:
            marks = [mark_of(sample, len(samples)) for sample in samples]
            every = [errors_of(record, entry, names, calibration, own, mark) for mark in marks]
        sizes = [math.inf if isinstance(errors, str) else _furthest(errors) for errors in every]
        sample = sizes.index(max(sizes))
        if isinstance(errors := every[sample], str):
            return WrongLayer(version=version.name, why_not=errors)
        graph = read_graph(file)
        layer = search_for_layer(graph, errors, version.name, lambda tensor: measure(tensor, sample), tell)
    tell(f"{version.name}: {counted(len(layer.steps), 'marking')} in {monotonic() - started:.1f} s")
    return layer


def errors_of(
    record: Record, entry: Entry, names: Mapping[str, str], calibration: Calibration,
    outputs: frozenset[str], mark: str = "",
) -> Errors | str:  # fmt: skip
    """Return the errors of tensors, of the build that is furthest off; or why there are none.

    ``names``: a record's names → the graph's. ``outputs``: the model's own, whose floors are taken as they
    are; those of inner tensors are never less than one rounding. ``mark`` stands behind names of one sample.
    """
    shapes = other_shapes(record)
    if record.ended != RAN and not shapes:
        return f"{record.ended}: {record.detail[:200]}".rstrip(": ")
    subject = subject_of(record, entry.cell, calibration)
    noise, least = subject.noise, LEAST.get(subject.precision, LEAST_FLOAT32)
    if noise is None:
        return "no noise floor is known"

    def read(build: Measured) -> dict[str, float | str]:
        found: dict[str, float | str] = {}
        for name, tensor in ((name + mark, tensor) for name, tensor in names.items()):
            values, floor = build.outputs.get(name), noise.floor(name, subject.precision)
            if name in shapes:
                found[tensor] = shapes[name]
            elif values is not None and floor is not None and "rel_l2" in values:
                error = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
                found[tensor] = error / (floor if floor and tensor in outputs else max(floor, least))
        return found

    builds = [read(build) for build in record.builds]
    return max(builds, key=lambda found: _furthest({t: e for t, e in found.items() if t in outputs}))


def _furthest(errors: Errors) -> float:
    return max((math.inf if isinstance(e, str) else nan_last(e) for e in errors.values()), default=-1.0)


def read_graph(file: Path) -> Graph:
    """Read a model as a search sees it; its external weights are left where they are.

    What depends on no input is not marked, nor what holds no float32 or float16, nor what lies in a branch or
    a loop's body: what goes wrong there is found in the next tensor that can be marked. Raises as onnx.load.
    """
    model = onnx.load(str(file), load_external_data=False)
    known, graph = known_of(infer(model).graph), model.graph
    outputs = {info.name for info in graph.output}
    moving = {info.name for info in graph.input} - {tensor.name for tensor in graph.initializer}
    sources: dict[str, tuple[str, ...]] = dict.fromkeys(moving, ())  # of those that cannot be marked too
    inputs, nodes = dict[str, tuple[str, ...]](), dict[str, tuple[str, str]]()
    for place, node in enumerate(graph.node):
        used = [name for name in inputs_of(node) if name in sources]
        if not used or node.op_type in SHAPES:
            continue
        behind = tuple(dict.fromkeys(source for name in used for source in sources[name]))
        for tensor in filter(None, node.output):
            marked = known.types.get(tensor) in MEASURED and tensor in known.shapes
            if marked or tensor in outputs:
                inputs[tensor] = behind
                nodes[tensor] = node.name or f"the {place + 1}th node", node.op_type
            sources[tensor] = (tensor,) if marked else behind
    return Graph(inputs=inputs, nodes=nodes)


def write_marked(file: Path, tensor: str, target: Path) -> None:
    """Write a model with a further output, if one is named, into a folder of its own on the same disk.

    Its external weights are linked, not copied. Large weights inside of it are written beside it, where the
    cache has them once. ``OSError`` where it cannot be written.
    """
    model = onnx.load(str(file), load_external_data=False)
    model.graph.output.extend(info for info in infer(model).graph.value_info if info.name == tensor)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = find_external(file, model)
    for name, weights in beside.items():
        (target.parent / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(weights.resolve(), target.parent / name)
    if file.stat().st_size >= LARGE_FILE and not beside:
        onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin")
    onnx.save(model, str(target))
