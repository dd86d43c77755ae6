"""Names the first layer of a user's model that goes wrong at a version: ``--explain``.

The model runs with a few inner tensors as further outputs, as any other model does, against ONNX Runtime's
result of the same graph, in multiples of its noise floors; one warm process of the version runs all of them
(:mod:`trtmatrix.run.session`). Which tensors come next is decided in :mod:`.explain_search`. Records of
these runs lie in the cache: the same search is served from there.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.words import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR
from trtmatrix.judge.judge import other_shapes, subject_of
from trtmatrix.judge.record import RAN, Measured, Record
from trtmatrix.model.explain_search import (
    Ending,
    Errors,
    Found,
    Graph,
    Node,
    Reading,
    Search,
    begin_search,
    conclude,
    in_floors,
    is_wrong,
    learn,
    next_group,
    step_budget,
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
from trtmatrix.plan.context import Context
from trtmatrix.suite.model import Product

if TYPE_CHECKING:
    from trtmatrix.model.marking import Markable
    from trtmatrix.run.session import Session

Measure = Callable[[tuple[str, ...]], Errors | str]
"""Runs the model with tensors marked: the errors of its outputs and of those, or the trouble."""

Tell = Callable[[str], None]

FOLDER = "explain"
"""Where in the cache the records of steps lie: the same step is served from there."""

INTERRUPTED = "it was interrupted"

NOT_WRONG = (
    f"no output is {FAIL_FACTOR:g} noise floors off or more: what fails is a limit of your own, "
    "which says nothing about inner tensors"
)
NO_FLOORS = "no noise floor is known of its outputs: nothing tells a wrong inner tensor from a rounded one"

SHOWN = 6
"""Tensors of a region that are named."""

GONE = (
    "run again with nothing marked it did not fail: the failure is not steady, "
    "or other samples are needed to see it (--rebuilds 5 shows how often it fails)"
)
NOBODY = Node(name="", operator="")


def explain(
    context: Context, options: ModelOptions, entry: Entry, calibration: Calibration, tell: Tell
) -> WrongLayer:
    """Return the first layer of the user's model that goes wrong in an entry that fails.

    ``context``: as :func:`.open_model` gave it. What cannot be done is said in the answer.
    """
    from trtmatrix.model.marking import read_markable
    from trtmatrix.onnxmodel.reading import read_model
    from trtmatrix.run.session import Session

    version, cache = entry.cell.version, context.project.cache
    file = context.project.repros.parent / "model" / "model.onnx"
    markable = read_markable(file)
    inputs = choose_inputs(read_model(file), options.inputs, options.profile)
    gpu = entry.cell.gpu.slug if version.product is Product.TENSORRT else ""
    kept = replace(context, project=replace(context.project, results=cache / FOLDER / "results"))
    started = time.monotonic()
    with Session(kept, version.name, gpu) as session:
        runs = Runs(
            context=context, options=options, entry=entry, calibration=calibration, session=session,
            markable=markable, inputs=inputs,
        )  # fmt: skip
        sample, errors = runs.find_worst()
        if isinstance(errors, str):
            return WrongLayer(version=version.name, why_not=errors)

        def measure(tensors: tuple[str, ...]) -> Errors | str:
            return runs.measure(tensors, sample)

        found = search_for_layer(markable, errors, version.name, measure, tell)
    markings, seconds = len(found.steps), time.monotonic() - started
    tell(f"{version.name}: {markings} marking{'s' * (markings != 1)} in {seconds:.1f} s")
    return found


def search_for_layer(
    markable: Markable, errors: Errors, version: str, measure: Measure, tell: Tell
) -> WrongLayer:
    """Return the first layer that goes wrong at a version, or as much as could be found.

    ``errors``: those of the model's outputs there. The failure is that of the first output that is wrong: it
    survives a marking where that output is still wrong. An interrupt ends the search, and what is known so
    far is returned.
    """
    search = begin_search(markable.graph, errors)
    if search is None:
        return WrongLayer(version=version, why_not=NOT_WRONG if errors.floors else NO_FLOORS)
    failing, budget, cut_short = search.wrong, step_budget(len(markable.inner)), ""
    try:
        while (group := next_group(search, budget)) is not None:
            measured = measure(group)
            if not isinstance(measured, str) and failing not in measured.floors:
                measured = f"no noise floor is known of {failing}"
            if isinstance(measured, str):
                reading = Reading(marked=group, survived=None, floors={}, trouble=measured)
            else:
                survived, floors = is_wrong(measured.floors[failing]), measured.floors
                reading = Reading(marked=group, survived=survived, floors=floors, shapes=measured.shapes)
            search = learn(search, reading)
            tell(f"{version}: marking {step_text(len(search.readings), reading)}")
    except KeyboardInterrupt:
        cut_short = f"{INTERRUPTED} after {len(search.readings)} markings"
    return describe(search, markable.nodes, version, cut_short)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs a model at one version with tensors marked, like any other, and one sample of it at a time."""

    context: Context
    options: ModelOptions
    entry: Entry
    calibration: Calibration
    session: Session
    markable: Markable
    inputs: Inputs

    @property
    def _names(self) -> dict[str, str]:
        return outputs_of(model_repro(self.context))

    def find_worst(self) -> tuple[int, Errors | str]:
        """Return the sample whose outputs are furthest off, and their errors; or why there are none.

        They are read from the record of the failure. Where it has none, as an output has another shape than
        its reference, each sample is run anew.
        """
        from trtmatrix.onnxmodel.preparing import mark_of

        found: list[Errors] = []
        record, count, own = self.entry.record, len(self.inputs.samples), frozenset(self._names.values())
        if record is None:
            return 0, "there is no record of it"
        for number in range(count):
            if other_shapes(record):
                errors = self.measure((), number)
            else:
                mark = mark_of(number, count)
                errors = errors_of(record, self.entry, self._names, self.calibration, own, mark)
            if isinstance(errors, str):
                return number, errors
            found.append(errors)
        worst = [max(map(_size, errors.floors.values()), default=-1.0) for errors in found]
        sample = max(range(count), key=worst.__getitem__)
        return sample, found[sample]

    def measure(self, tensors: tuple[str, ...], sample: int) -> Errors | str:
        """Return the errors of the outputs and of marked tensors, or why there are none."""
        outcome = self.entry.outcome
        every = outcome is None or outcome.failed >= outcome.builds
        try:
            marked = self._open_marked(tensors, sample)
            found = self.session.ask(model_repro(marked), builds=1 if every else 0)
        except (TrtMatrixError, OSError) as error:
            return " ".join(str(error).split())[:300]
        if found.record is None:
            return "it did not run"
        names, own = outputs_of(model_repro(marked)), frozenset(self._names.values())
        errors = errors_of(found.record, found, names, self.calibration, own)
        if isinstance(errors, str):
            return errors
        lacking = [tensor for tensor in tensors if tensor not in errors.floors]
        return f"no noise floor is known of {', '.join(lacking)}" if lacking else errors

    def _open_marked(self, tensors: tuple[str, ...], sample: int) -> Context:
        """Make the marked model a repro, of the one sample."""
        import numpy as np

        from trtmatrix.model.marking import write_marked

        root = self.context.project.cache / FOLDER
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".marking-") as name:
            folder = Path(name)
            marked = write_marked(self.markable, tensors, folder / "model")
            marked = marked.rename(marked.with_name("explained.onnx"))  # its cells are not the model's own
            np.savez(folder / "inputs.npz", **self.inputs.samples[sample])  # type: ignore[arg-type] # arrays alone
            options = ModelOptions(
                model=marked, inputs=folder / "inputs.npz", precision=self.options.precision,
                profile=profile_texts(self.inputs.profile),
            )  # fmt: skip
            return open_model(self.context, options)


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
    worst = max(builds, key=lambda found: max((_size(found[t]) for t in found if t in outputs), default=0.0))
    named = {tensor: shapes[name + mark] for name, tensor in names.items() if name + mark in shapes}
    return Errors(floors=worst, shapes=named)


def _size(floors: float) -> float:
    return math.inf if math.isnan(floors) else floors


def step_text(number: int, reading: Reading) -> str:
    """Say what one marking showed: ``3: marked a, b: it still fails; a is right (0.9), b is wrong (53)``."""
    marked = f"marked {_names(reading.marked)}" if reading.marked else "nothing marked"
    if reading.survived is None:
        return f"{number}: {marked}: it could not be run: {reading.trouble}"
    if not reading.survived:
        return f"{number}: {marked}: it does not fail" + (" any more" if reading.marked else "")
    found = []
    for tensor in reading.marked:
        floors, shape = reading.floors[tensor], reading.shapes.get(tensor, "")
        word = "wrong" if shape or is_wrong(floors) else "right"
        found.append(f"{tensor} is {word} ({shape or _floors(floors)})")
    return f"{number}: {marked}: it still fails" + (f"; {', '.join(found)}" if found else "")


def describe(search: Search, nodes: Mapping[str, Node], version: str, cut_short: str = "") -> WrongLayer:
    """Return what was found at a version; ``cut_short``: why the search ended before its time, or nothing."""
    found = conclude(search)
    steps = tuple(step_text(number, reading) for number, reading in enumerate(search.readings, 1))
    tensor, error, why_not = "", "", ""
    match found.ending:
        case Ending.LAYER:
            tensor, error = found.tensor, _layer(found, search)
        case Ending.FUSION if not cut_short:
            tensor, error = _fusion(found, search.graph, nodes)
        case Ending.GONE:
            why_not = GONE
        case Ending.TROUBLE:
            why_not = f"it could not be run again: {search.readings[-1].trouble}"
        case Ending.FUSION | Ending.UNFINISHED:
            cut = cut_short or f"after {len(steps)} markings no other is tried"
            first, last = _node(found.region[0], nodes), _node(found.tensor, nodes)
            where = f"in the {len(found.region)} nodes from {first} to {last}"
            why_not = f"{cut}: it lies {where}, whose output is wrong"
    node = nodes.get(tensor, NOBODY)
    return WrongLayer(
        version=version, tensor=tensor, node=node.name, operator=node.operator, error=error, steps=steps,
        why_not=why_not,
    )  # fmt: skip


def _layer(found: Found, search: Search) -> str:
    """Say how wrong the first wrong tensor is, and how right what it is computed from."""
    sources = [t for t in search.graph.inputs.get(found.tensor, ()) if t in search.floors]
    shown = ", ".join(f"{t} {_floors(search.floors[t])}" for t in sources[:SHOWN])
    shape = search.shapes.get(found.tensor, "")
    error = shape or f"{_floors(search.floors[found.tensor])} noise floors"
    right = f"what it is computed from is right: {shown}" if shown else "it is computed from inputs alone"
    doubt = " (not seen in one engine: marking them together changes what is fused)"
    return f"{error}; {right}" + ("" if found.together else doubt)


def _fusion(found: Found, graph: Graph, nodes: Mapping[str, Node]) -> tuple[str, str]:
    """Return the tensor whose marking cures the failure, and what that says."""
    group = min(found.cures, key=lambda group: (len(group), graph.place[group[0]]))
    others = [_names(other) for other in found.cures if other != group]
    also = f" (so does {' or '.join(others[:SHOWN])})" if others else ""
    operators = [_node(tensor, nodes) for tensor in found.region]
    shown = " → ".join(operators if len(operators) <= SHOWN else [*operators[:3], "…", *operators[-2:]])
    return group[0], (
        f"marking {_names(group)} as an output cures the failure{also}: it lies in the fusion around it, "
        f"in {len(found.region)} nodes up to {found.tensor}, whose output is wrong: {shown}"
    )


def _node(tensor: str, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(tensor, Node(name="", operator="?"))
    return f"{node.operator} {node.name or tensor}"


def _names(tensors: Sequence[str]) -> str:
    return ", ".join(tensors[:SHOWN]) + (f" and {len(tensors) - SHOWN} more" if len(tensors) > SHOWN else "")


def _floors(floors: float) -> str:
    return "NaN or infinite" if not math.isfinite(floors) else short(floors)
