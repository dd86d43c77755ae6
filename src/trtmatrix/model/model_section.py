"""What a report tells of the user's own model: facts, reference, floor, cases at both versions, samples."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.compare import Entry
from trtmatrix.judge.noise import noise_troubles
from trtmatrix.judge.record import RAN
from trtmatrix.model.model_extras import add_extras
from trtmatrix.model.own_model import model_repro, read_about
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import ModelSection
from trtmatrix.upgrade.samples import floor_words, make_samples, reference_words


def make_model_section(
    context: Context, entries: Sequence[Entry], before: str, after: str, args: argparse.Namespace,
    calibration: Calibration,
) -> ModelSection:  # fmt: skip
    """Return the section of a model over a context that ``open_model`` gave.

    ``entries``: those of the model's repro are taken; ``before`` and ``after`` are columns' names. What
    ``--check`` and ``--explain`` say, and how far the versions' outputs are apart, is in it too.
    """
    repro, about = model_repro(context).repro, read_about(context)
    own = [entry for entry in entries if entry.cell.repro.id == repro.id]
    both = [e for name in (before, after) for e in own if e.cell.version.name == name]
    noise, outputs = _noise(context, both), _outputs(context)
    sides = Entries(entries, calibration)
    product = context.matrix.version(after).product
    section = ModelSection(
        name=Path(args.model).name, repro=repro.id,
        facts=(("file", str(args.model)), *((str(name), str(text)) for name, text in about["facts"])),
        reference=reference_words(noise), floor=floor_words(noise, outputs, product),
        cases=tuple(
            make_case_line(repro.id, case, sides, before, after, own=True) for case in repro.cases
        ),
        samples=make_samples(both, outputs, calibration),
        troubles=(*about["troubles"], *noise_troubles(noise)),
    )  # fmt: skip
    return add_extras(section, context, entries, before, after, args)


def _noise(context: Context, entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Return the noise of the model's case as it is prepared here, or as a record tells of it."""
    loaded = model_repro(context)
    for case in loaded.repro.cases:
        if known := read_noise_file(CaseCache(context.project.cache).folder(loaded, case)):
            return known
    found = [r.noise for e in entries for r in e.records if r.noise and r.ended == RAN]
    return found[0] if found else {}


def _outputs(context: Context) -> Mapping[str, str]:
    """Return the names of outputs in records → those of the graph."""
    names: Mapping[str, str] = model_repro(context).module.OUTPUTS
    return names
