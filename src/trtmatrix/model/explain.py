"""Names the first layer of a user's model that goes wrong at a version: ``--explain``.

The model runs with a few inner tensors as further outputs, as any other model does, against ONNX Runtime's
result of the same graph, in multiples of its noise floors; one warm process of the version runs all of them
(:mod:`trtmatrix.run.session`). Which tensors come next is decided in :mod:`.explain_search`. Records of
these runs lie in the cache: the same search is served from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.factors import FAIL_FACTOR
from trtmatrix.model.explain_search import (
    Errors,
    Reading,
    begin_search,
    is_wrong,
    learn,
    next_group,
    step_budget,
)
from trtmatrix.model.explain_text import describe, step_text
from trtmatrix.plan.context import Context
from trtmatrix.suite.model import Product
from trtmatrix.upgrade.report import WrongLayer

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.marking import Markable

Measure = Callable[[tuple[str, ...]], Errors | str]
"""Runs the model with tensors marked: the errors of its outputs and of those, or the trouble."""

INTERRUPTED = "it was interrupted"

Tell = Callable[[str], None]


def explain(
    context: Context, args: argparse.Namespace, entry: Entry, calibration: Calibration, tell: Tell
) -> WrongLayer:
    """Return the first layer of the user's model that goes wrong in an entry that fails.

    ``context``: as :func:`.open_model` gave it. What cannot be done is said in the answer.
    """
    from trtmatrix.model.explain_steps import FOLDER, Steps, find_worst
    from trtmatrix.onnxmodel.marking import lean_copy, read_markable
    from trtmatrix.run.session import Session

    version = entry.cell.version
    made = context.project.repros.parent
    lean = lean_copy(made / "model" / "model.onnx", context.project.cache / FOLDER / "lean" / made.name)
    markable = read_markable(lean)
    gpu = entry.cell.gpu.slug if version.product is Product.TENSORRT else ""
    results = context.project.cache / FOLDER / "results"
    kept = replace(context, project=replace(context.project, results=results))
    started = time.monotonic()
    with Session(kept, version.name, gpu) as session:
        steps = Steps(context, args, entry, calibration, session)
        errors = find_worst(steps, markable)
        if isinstance(errors, str):
            return WrongLayer(version=version.name, why_not=errors)
        found = search_for_layer(markable, errors, version.name, partial(steps.measure, markable), tell)
    markings, seconds = len(found.steps), time.monotonic() - started
    tell(f"{version.name}: {markings} marking{'s' * (markings != 1)} in {seconds:.1f} s")
    hint = polygraphy_hint(args.model)
    return replace(found, steps=(*found.steps, hint)) if hint else found


def search_for_layer(
    markable: Markable, errors: Errors, version: str, measure: Measure, tell: Tell
) -> WrongLayer:
    """Return the first layer that goes wrong at a version, or as much as could be found.

    ``errors``: those of the model's outputs there. The failure is that of the first output that is wrong: it
    survives a marking where that output is still wrong. An interrupt ends the search, and what is known so
    far is returned.
    """
    search = begin_search(markable.graph, errors)
    nodes = {tensor: (node.name, node.operator) for tensor, node in markable.nodes.items()}
    if search is None:
        return WrongLayer(version=version, why_not=_NOT_WRONG if errors.floors else _NO_FLOORS)
    failing, budget, cut_short = search.wrong, step_budget(len(markable.inner)), ""
    try:
        while (group := next_group(search, budget)) is not None:
            reading = _read(group, failing, measure(group))
            search = learn(search, reading)
            tell(f"{version}: marking {step_text(len(search.readings), reading)}")
    except KeyboardInterrupt:
        cut_short = f"{INTERRUPTED} after {len(search.readings)} markings"
    return describe(search, nodes, version, cut_short)


def _read(marked: tuple[str, ...], failing: str, measured: Errors | str) -> Reading:
    if not isinstance(measured, str) and failing not in measured.floors:
        measured = f"no noise floor is known of {failing}"
    if isinstance(measured, str):
        return Reading(marked=marked, survived=None, floors={}, trouble=measured)
    survived = is_wrong(measured.floors[failing])
    return Reading(marked=marked, survived=survived, floors=measured.floors, shapes=measured.shapes)


_NOT_WRONG = (
    f"no output is {FAIL_FACTOR:g} noise floors off or more: what fails is a limit of your own, "
    "which says nothing about inner tensors"
)
_NO_FLOORS = "no noise floor is known of its outputs: nothing tells a wrong inner tensor from a rounded one"


def polygraphy_hint(model: Path) -> str:
    """Return the command by which Polygraphy, where it is here, reduces the model itself; nothing elsewhere.

    Source: https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy/polygraphy/tools/debug.
    """
    if shutil.which("polygraphy") is None:
        return ""
    lacks = [name for name in ("tensorrt", "onnxruntime") if importlib.util.find_spec(name) is None]
    needs = f" (it needs {' and '.join(lacks)} in this Python, which are not here)" if lacks else ""
    return (
        "Polygraphy is installed here, and may reduce the model to fewer nodes by the TensorRT of this host"
        f"{needs}: polygraphy debug reduce {model} -o reduced.onnx --mode=bisect "
        "--check polygraphy run polygraphy_debug.onnx --onnxrt --trt"
    )
