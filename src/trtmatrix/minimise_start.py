"""What minimise starts from: the cell that fails, its model and inputs, and how its build was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.bugs.cell import Found, find_cell
from trtmatrix.bugs.recipe import Recipe, read_recipe
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import nearest_names
from trtmatrix.core.manner import Manner, manner_of
from trtmatrix.core.model import Control, Verdict

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.subject import Subject

PRECISIONS: Mapping[str, str] = {"fp16-flag": "fp16"}
"""The probe's precision → what --precision calls it, where that differs."""

NO_GOOD = "none"
"""What --good calls that no version must be right."""

EITHER = frozenset({"tf32", "fp32", "fp16"})


@dataclass(frozen=True, kw_only=True)
class Start:
    """The failing cell as a plain model. ``manner``: in which way the cell itself fails.

    ``asked``: what opens a model as this one was: precision, tolerance, what else is asked of a build.
    ``every``: each engine of the cell fails, so that a single one tells. ``good``: the version that was named
    as right; where none was, ``nearby`` are those that can be run here and may be, the likeliest first.
    """

    found: Found
    manner: Manner
    subject: Subject
    asked: Mapping[str, Any]
    every: bool
    good: str = ""
    nearby: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)


def find_start(args: argparse.Namespace) -> Start:
    """Return what to minimise; :class:`UsageError` says why there is nothing, and what to do instead."""
    found = find_cell(args)
    cell, case = found.entry.cell.id, found.case
    if case.control is Control.NEGATIVE:
        raise UsageError(
            f"{cell}: the defect of this control was put into its graph, not into the version: whatever is "
            "smaller would be compared with itself and be right\n  name a cell that fails by its version"
        )
    manner = manner_of(found.entry, found.calibration)
    outcome = found.entry.outcome
    if manner is None or outcome is None:
        raise UsageError(f"{cell}: its records do not say in which way it fails: run it again by --rerun")
    good = _good_version(found, args.good)
    recipe, folder = _recipe(found)
    return Start(
        found=found, manner=manner, subject=_subject(found, recipe, folder), good=good,
        asked=_asked(found, recipe), every=outcome.failed >= outcome.builds,
        nearby=find_nearby(found) if args.good is None else (),
        notes=_notes(recipe, case.precision),
    )  # fmt: skip


def _good_version(found: Found, name: str | None) -> str:
    """Return the version that must be right; :class:`UsageError` where it cannot be compared with."""
    if name in {None, NO_GOOD}:
        return ""
    version = next((v for v in found.context.matrix.versions if v.name == name), None)
    if version is None:
        known = [v.name for v in found.context.matrix.versions]
        raise UsageError(f"--good {name}: " + nearest_names("version", name, known))
    own = found.entry.cell.version
    if version.product is not own.product or version.name == own.name:
        raise UsageError(f"--good {name}: name another version of {own.product.value} than {own.name}")
    return name


def find_nearby(found: Found) -> tuple[str, ...]:
    """Return the versions of the cell's product that can be run here, those with a record of a PASS first.

    Of either kind the nearest come first, the older of two. Those that fail by what is known are left out.
    """
    from trtmatrix.perform import here

    is_here, gpu = here(found.context.project), found.entry.cell.gpu.slug
    launches = [launch for launch in found.scene.plan.launches if is_here(launch)]
    able = {cell.version.name for launch in launches for cell in launch.cells if cell.gpu.slug == gpu}
    place = found.row.index(found.entry)
    fit = [
        (entry.outcome is None or entry.record is None, abs(number - place), number, entry)
        for number, entry in enumerate(found.row)
        if number != place and entry.cell.version.name in able
        and (entry.outcome is None or entry.outcome.verdict is Verdict.PASS)
    ]  # fmt: skip
    return tuple(item[3].cell.version.name for item in sorted(fit, key=lambda item: item[:3]))


def _recipe(found: Found) -> tuple[Recipe, Path]:
    """Return what the case asks of its build, and the folder of its files, prepared now if need be."""
    from trtmatrix.effects.cases import CaseCache

    folder = CaseCache(found.context.project.cache).prepare(found.loaded, found.case)
    recipe = read_recipe(found.loaded.file, found.case.params, folder, found.entry.cell.version.product)
    if recipe is None:
        raise UsageError(
            f"{found.entry.cell.id}: its run builds no engine of its own graph by itself, so that no smaller "
            f"graph can stand for it\n  cut {found.loaded.file.name} down by hand: python -m trtmatrix "
            f"prepare {found.loaded.repro.id}/{found.case.id} writes its files"
        )
    if recipe.marked:
        raise UsageError(
            f"{found.entry.cell.id}: its run marks inner tensors ({', '.join(recipe.marked)}) of the graph, "
            "which a smaller graph may not have\n  name a cell whose run does not"
        )
    return recipe, folder


def _subject(found: Found, recipe: Recipe, folder: Path) -> Subject:
    """Return the model with its samples by the graph's names."""
    import numpy as np

    from trtmatrix.onnxmodel.preparing import mark_of
    from trtmatrix.onnxmodel.subject import read_subject

    samples = [
        {
            graph: np.load(folder / "inputs" / f"{name}{mark_of(number, recipe.samples)}.npy")
            for name, graph in recipe.inputs.items()
        }
        for number in range(recipe.samples)
    ]
    subject = read_subject(folder / "model.onnx", samples, recipe.profile)
    if lacking := [name for name in subject.inputs if name not in subject.samples[0]]:
        raise UsageError(
            f"{found.entry.cell.id}: its run makes the input {lacking[0]} itself: nothing is known to feed a "
            "smaller graph with\n  name a cell of a model of your own: --model with --inputs"
        )
    return subject


def _asked(found: Found, recipe: Recipe) -> dict[str, Any]:
    """Return the options that open a smaller model in the same way."""
    case = found.case
    precision = PRECISIONS.get(recipe.precision, recipe.precision)
    build = {
        name: value
        for name, value in (
            ("level", recipe.level), ("plugins", recipe.plugins), ("keep_fp32", recipe.keep_fp32)
        )
        if value not in (None, False, ())
    }  # fmt: skip
    tolerance = {name: case.tolerance.get(name) for name in ("atol", "rtol")} if case.tolerance else {}
    return {
        "atol": None, "rtol": None, **tolerance, "check": None, "explain": False, "build": build,
        "precision": precision if precision in EITHER else "tf32",
        "bug_is": sorted(cause.value for cause in case.bug_is),
    }  # fmt: skip


def _notes(recipe: Recipe, precision: str) -> tuple[str, ...]:
    if PRECISIONS.get(recipe.precision, recipe.precision) in EITHER:
        return ()
    return (f"{precision}: a model of its own is built as its graph is typed",)
