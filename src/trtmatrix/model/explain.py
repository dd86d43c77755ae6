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
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.text import counted, short
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR
from trtmatrix.judge.judge import other_shapes, subject_of
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.numbers import nan_last
from trtmatrix.judge.record import RAN, Measured, Record
from trtmatrix.model.explain_search import (
    Errors,
    Graph,
    Node,
    Reading,
    Search,
    in_floors,
    is_wrong,
)
from trtmatrix.model.outcomes import WrongLayer
from trtmatrix.model.own_model import (
    Inputs,
    ModelOptions,
    choose_inputs,
    model_repro,
    open_model,
    outputs_of,
    profile_texts,
)
from trtmatrix.onnxmodel.graphs import find_external, infer, inputs_of, known_of
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.onnxmodel.reading import read_model
from trtmatrix.plan.context import Context
from trtmatrix.suite.model import Product

if TYPE_CHECKING:
    from trtmatrix.run.session import Session

Measure = Callable[[str], Errors | str]
"""Runs the model with a tensor marked, or none: the errors of its outputs and of that one, or the trouble."""

Tell = Callable[[str], None]

FOLDER = "explain"
"""Where in the cache the records of steps lie: the same step is served from there."""

INTERRUPTED = "it was interrupted"

NOT_WRONG = (
    f"no output is {FAIL_FACTOR:g} noise floors off or more: what fails is a limit of your own, "
    "which says nothing about inner tensors"
)
NO_FLOORS = "no noise floor is known of its outputs: nothing tells a wrong inner tensor from a rounded one"
GONE = (
    "run again with nothing marked it did not fail: the failure is not steady, "
    "or other samples are needed to see it (--rebuilds 5 shows how often it fails)"
)

SHOWN = 6
"""Tensors of a region that are named."""

MEASURED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Types whose errors can be told in every product: NumPy has no bfloat16, TensorRT no float64."""

LARGE_FILE = 1 << 24
"""Bytes of a model's own file from which on its weights are moved out of it: equal files are kept once."""

SHAPES = frozenset({"Shape", "Size"})
"""Operators that look at no value of their input: a wrong one changes nothing behind them."""


def explain(
    context: Context, options: ModelOptions, entry: Entry, calibration: Calibration, tell: Tell
) -> WrongLayer:
    """Return the first layer of the user's model that goes wrong in an entry that fails.

    ``context``: as :func:`.open_model` gave it. What cannot be done is said in the answer.
    """
    from trtmatrix.run.session import Session

    version, cache = entry.cell.version, context.project.cache
    file = context.project.repros.parent / "model" / "model.onnx"
    graph = read_graph(file)
    inputs = choose_inputs(read_model(file), options.inputs, options.profile)
    gpu = entry.cell.gpu.slug if version.product is Product.TENSORRT else ""
    kept = replace(context, project=replace(context.project, results=cache / FOLDER / "results"))
    started = time.monotonic()
    with Session(kept, version.name, gpu) as session:
        runs = Runs(
            context=context, options=options, entry=entry, calibration=calibration, session=session,
            file=file, inputs=inputs,
        )  # fmt: skip
        sample, errors = runs.find_worst()
        if isinstance(errors, str):
            return WrongLayer(version=version.name, why_not=errors)
        found = search_for_layer(graph, errors, version.name, lambda t: runs.measure(t, sample), tell)
    tell(f"{version.name}: {counted(len(found.steps), 'marking')} in {time.monotonic() - started:.1f} s")
    return found


def search_for_layer(graph: Graph, errors: Errors, version: str, measure: Measure, tell: Tell) -> WrongLayer:
    """Return the first layer that goes wrong at a version, or as much as could be found.

    ``errors``: those of the model's outputs there. The failure is that of the first output that is wrong: it
    survives a marking where that output is still wrong. An interrupt ends the search, and what is known so
    far is returned.
    """
    search = Search(graph, errors)
    if not search.failing:
        return WrongLayer(version=version, why_not=NOT_WRONG if errors.floors else NO_FLOORS)
    cut_short = ""
    try:
        while (tensor := search.next_mark()) is not None:
            measured = measure(tensor)
            if not isinstance(measured, str) and search.failing not in measured.floors:
                measured = f"no noise floor is known of {search.failing}"
            if isinstance(measured, str):
                reading = Reading(marked=tensor, survived=None, errors=Errors(floors={}), trouble=measured)
            else:
                survived = is_wrong(measured.floors[search.failing])
                reading = Reading(marked=tensor, survived=survived, errors=measured)
            search.learn(reading)
            tell(f"{version}: marking {step_text(len(search.readings), reading)}")
    except KeyboardInterrupt:
        cut_short = f"{INTERRUPTED} after {counted(len(search.readings), 'marking')}"
    return describe(search, version, cut_short)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs a model at one version with a tensor marked, like any other, and one sample of it at a time."""

    context: Context
    options: ModelOptions
    entry: Entry
    calibration: Calibration
    session: Session
    file: Path
    inputs: Inputs

    def find_worst(self) -> tuple[int, Errors | str]:
        """Return the sample whose outputs are furthest off, and their errors; or why there are none.

        They are read from the record of the failure. Where it has none, as an output has another shape than
        its reference, each sample is run anew.
        """
        record, names = self.entry.record, outputs_of(model_repro(self.context))
        if record is None:
            return 0, "there is no record of it"
        if other_shapes(record):
            found = [self.measure("", number) for number in range(len(self.inputs.samples))]
        else:
            marks = [mark_of(number, len(self.inputs.samples)) for number in range(len(self.inputs.samples))]
            own = frozenset(names.values())
            found = [errors_of(record, self.entry, names, self.calibration, own, mark) for mark in marks]
        sizes = [
            math.inf if isinstance(e, str) else max(map(nan_last, e.floors.values()), default=-1.0)
            for e in found
        ]
        sample = sizes.index(max(sizes))
        return sample, found[sample]

    def measure(self, tensor: str, sample: int) -> Errors | str:
        """Return the errors of the outputs and of a marked tensor, or why there are none."""
        outcome, root = self.entry.outcome, self.context.project.cache / FOLDER
        some = outcome is not None and outcome.failed < outcome.builds
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=".marking-") as name:
                inputs = Path(name) / "inputs.npz"
                marked = write_marked(self.file, tensor, Path(name) / "model")
                marked = marked.rename(marked.with_name("explained.onnx"))  # no cells of the model's own
                np.savez(inputs, **self.inputs.samples[sample])  # type: ignore[arg-type] # arrays alone
                repro = model_repro(open_model(self.context, ModelOptions(
                    model=marked, inputs=inputs, precision=self.options.precision,
                    profile=profile_texts(self.inputs.profile),
                )))  # fmt: skip
            found = self.session.ask(repro, builds=0 if some else 1)
        except (TrtMatrixError, OSError) as error:
            return " ".join(str(error).split())[:300]
        if found.record is None:
            return "it did not run"
        own = frozenset(outputs_of(model_repro(self.context)).values())
        errors = errors_of(found.record, found, outputs_of(repro), self.calibration, own)
        if not isinstance(errors, str) and tensor and tensor not in errors.floors:
            return f"no noise floor is known of {tensor}"
        return errors


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
    subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
    noise = subject.noise
    if noise is None:
        return "no noise floor is known"

    def read(build: Measured) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, tensor in names.items():
            if name + mark in shapes:
                found[tensor] = math.inf
                continue
            values, floor = build.outputs.get(name + mark), noise.floor(name + mark, subject.precision)
            if values is None or floor is None or "rel_l2" not in values:
                continue
            error = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
            own = tensor in outputs and floor
            found[tensor] = error / floor if own else in_floors(error, floor, subject.precision)
        return found

    builds = [read(build) for build in record.builds]
    worst = max(
        builds, key=lambda found: max((nan_last(found[t]) for t in found if t in outputs), default=0.0)
    )
    named = {tensor: shapes[name + mark] for name, tensor in names.items() if name + mark in shapes}
    return Errors(floors=worst, shapes=named)


def step_text(number: int, reading: Reading) -> str:
    """Say what one marking showed: ``3: marked a: it still fails; a is right (0.9)``."""
    tensor = reading.marked
    head = f"{number}: {f'marked {tensor}' if tensor else 'nothing marked'}: it"
    if reading.survived is None:
        return f"{head} could not be run: {reading.trouble}"
    if not reading.survived:
        return f"{head} does not fail" + " any more" * bool(tensor)
    if not tensor:
        return f"{head} still fails"
    floors, shape = reading.errors.floors[tensor], reading.errors.shapes.get(tensor, "")
    word = "wrong" if shape or is_wrong(floors) else "right"
    return f"{head} still fails; {tensor} is {word} ({shape or _floors(floors)})"


def describe(search: Search, version: str, cut_short: str = "") -> WrongLayer:
    """Return what was found at a version; ``cut_short``: why the search ended before its time, or nothing."""
    steps = tuple(step_text(number, reading) for number, reading in enumerate(search.readings, 1))
    left, nodes = search.left, search.graph.nodes
    shown = [f"{nodes[t].operator} {nodes[t].name or t}" for t in left]
    cures = [tensor for tensor in search.cures if tensor in left]
    tensor = error = why_not = ""
    if search.is_hopeless:
        trouble = search.readings[-1].trouble
        why_not = f"it could not be run again: {trouble}" if trouble else GONE
    elif len(left) == 1:
        tensor = search.wrong
        sources = [t for t in search.graph.inputs.get(tensor, ()) if t in search.floors]
        right = ", ".join(f"{t} {_floors(search.floors[t])}" for t in sources[:SHOWN])
        error = search.shapes.get(tensor, "") or f"{_floors(search.floors[tensor])} noise floors"
        error += f"; what it is computed from is right: {right}" * bool(right)
        error += "; it is computed from inputs alone" * (not right)
    elif cures and not cut_short:
        also = f" (so does {' or '.join(cures[1 : SHOWN + 1])})" if cures[1:] else ""
        path = " → ".join(shown if len(shown) <= SHOWN else [*shown[:3], "…", *shown[-2:]])
        tensor = cures[0]
        error = (
            f"marking {tensor} as an output cures the failure{also}: it lies in the fusion around it, "
            f"in {len(left)} nodes up to {search.wrong}, whose output is wrong: {path}"
        )
    else:
        cut = cut_short or f"after {counted(len(steps), 'marking')} no other is tried"
        why_not = (
            f"{cut}: it lies in the {len(left)} nodes from {shown[0]} to {shown[-1]}, whose output is wrong"
        )
    node = nodes.get(tensor, Node(name="", operator=""))
    return WrongLayer(
        version=version, tensor=tensor, node=node.name, operator=node.operator, error=error, steps=steps,
        why_not=why_not,
    )  # fmt: skip


def _floors(floors: float) -> str:
    return "NaN or infinite" if not math.isfinite(floors) else short(floors)


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
    inputs, nodes, inner = dict[str, tuple[str, ...]](), dict[str, Node](), set[str]()
    for place, node in enumerate(graph.node):
        used = [name for name in inputs_of(node) if name in sources]
        if not used or node.op_type in SHAPES:
            continue
        behind = tuple(dict.fromkeys(source for name in used for source in sources[name]))
        for tensor in filter(None, node.output):
            marked = known.types.get(tensor) in MEASURED and tensor in known.shapes
            if marked or tensor in outputs:
                inputs[tensor] = behind
                nodes[tensor] = Node(name=node.name or f"the {place + 1}th node", operator=node.op_type)
                if marked and tensor not in outputs:
                    inner.add(tensor)
            sources[tensor] = (tensor,) if marked else behind
    return Graph(inputs=inputs, nodes=nodes, inner=frozenset(inner))


def write_marked(file: Path, tensor: str, folder: Path) -> Path:
    """Write a model with a further output, if one is named, to a folder on the same disk.

    Its external weights are linked, not copied. Large weights inside of it are written beside it, where the
    cache has them once. Returns the model's file, which has the name that it had. ``OSError`` where it cannot
    be written.
    """
    model = onnx.load(str(file), load_external_data=False)
    model.graph.output.extend(info for info in infer(model).graph.value_info if info.name == tensor)
    folder.mkdir(parents=True, exist_ok=True)
    beside = find_external(file, model)
    for name, weights in beside.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(weights.resolve(), folder / name)
    target = folder / file.name
    if file.stat().st_size >= LARGE_FILE and not beside:
        onnx.external_data_helper.convert_model_to_external_data(model, location="weights.bin")
    onnx.save(model, str(target))
    return target
