"""What an upgrade report tells of the user's own model, also where little of it is there.

Facts, reference, floor, the cases at both versions, errors by sample; how far the versions' outputs are
apart, what the deployer's own script says of them, and the first wrong layer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.compare import Entry
from trtmatrix.judge.noise import noise_troubles
from trtmatrix.judge.record import RAN
from trtmatrix.model.outcomes import CheckOutcome, WrongLayer
from trtmatrix.model.own_model import ModelOptions, model_repro, outputs_of, read_about
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.suite.model import Evidence, Verdict
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import ModelSection
from trtmatrix.upgrade.samples import floor_words, make_samples, reference_words

if TYPE_CHECKING:
    from trtmatrix.judge.differences import Samples

SHOWN = (Evidence.MEASURED, Evidence.RECORDED)
Pair = tuple[Entry | None, Entry | None]


def make_model_section(
    context: Context, entries: Sequence[Entry], before: str, after: str, args: argparse.Namespace,
    calibration: Calibration,
) -> ModelSection:  # fmt: skip
    """Return the section of a model over a context that ``open_model`` gave.

    ``entries``: those of the model's repro are taken; ``before`` and ``after`` are columns' names. What
    ``--check`` and ``--explain`` say, and how far the versions' outputs are apart, is in it too.
    """
    loaded, about = model_repro(context), read_about(context)
    own = [entry for entry in entries if entry.cell.repro.id == loaded.repro.id]
    both = [e for name in dict.fromkeys((before, after)) for e in own if e.cell.version.name == name]
    noise, outputs, sides = _noise(context, both), outputs_of(loaded), Entries(entries, calibration)
    section = ModelSection(
        name=Path(args.model).name, repro=loaded.repro.id,
        facts=(("file", str(args.model)), *((str(name), str(text)) for name, text in about["facts"])),
        reference=reference_words(noise),
        floor=floor_words(noise, outputs, context.matrix.version(after).product),
        cases=tuple(
            make_case_line(loaded.repro.id, case, sides, before, after, own=True)
            for case in loaded.repro.cases
        ),
        samples=make_samples(both, outputs, calibration),
        troubles=(*about["troubles"], *noise_troubles(noise)),
    )  # fmt: skip
    return add_extras(section, context, own, before, after, args)


def _noise(context: Context, entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Return the noise of the model's case as it is prepared here, or as a record tells of it."""
    loaded, cache = model_repro(context), CaseCache(context.project.cache)
    known = [read_noise_file(cache.folder(loaded, case)) for case in loaded.repro.cases]
    known += [dict(r.noise) for e in entries for r in e.records if r.ended == RAN]
    return next(filter(None, known), {})


def add_extras(
    section: ModelSection, context: Context, entries: Sequence[Entry], before: str, after: str,
    args: argparse.Namespace,
) -> ModelSection:  # fmt: skip
    """Return the section with differences, ``--check`` and ``--explain`` filled in; nothing is raised.

    What goes wrong becomes a sentence in ``troubles``, and the other parts are made all the same.
    """
    troubles: list[str] = []

    def attempt(what: str, part: Callable[[], dict[str, Any]]) -> None:
        nonlocal section
        try:
            section = replace(section, **part())
        except Exception as error:  # noqa: BLE001 - a report is made of what there is
            troubles.append(f"{what}: {_words(error)}")

    own = [entry for entry in entries if entry.cell.repro.id == section.repro]
    shown = {entry.cell.version.name: entry for entry in own if entry.evidence in SHOWN}
    pair = (shown.get(before), shown.get(after))
    outputs = KeptOutputs(context, pair, (before, after), troubles)
    attempt("the two versions' outputs could not be compared", outputs.compare)
    if getattr(args, "check", None) is not None:
        attempt(f"--check {args.check} could not be run", lambda: outputs.check(Path(args.check)))
    if getattr(args, "explain", False):
        both = [e for e in own if e.cell.version.name in {before, after}]
        if getattr(args, "no_run", False):
            troubles.append("--explain was not done: it runs the model, which --no-run forbids")
        else:
            attempt(
                "--explain could not be done",
                lambda: {"wrong_layers": explain_failing(context, args, both)},
            )
    return replace(section, troubles=(*section.troubles, *troubles))


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _kept(entry: Entry) -> Mapping[str, Mapping[str, str]]:
    """Return the outputs that were kept of the newest record that has any."""
    for record in (entry.record, *entry.records):
        if record is not None and record.ended == RAN and (kept := record.data.get("kept")):
            return dict(kept)
    return {}


class KeptOutputs:
    """The outputs of the model that were kept at two versions."""

    def __init__(self, context: Context, pair: Pair, versions: tuple[str, str], troubles: list[str]) -> None:
        from trtmatrix.onnxmodel.preparing import mark_of

        self.cache, self.loaded, self.troubles = context.project.cache, model_repro(context), troubles
        self.versions, self.entries = versions, [entry for entry in pair if entry is not None]
        samples = int(self.loaded.module.SAMPLES)
        self.names = {
            own: [f"{name}{mark_of(sample, samples)}" for sample in range(samples)]
            for name, own in outputs_of(self.loaded).items()
        }
        """The model's outputs, each with its names in records by sample."""
        self.lacking = next(filter(None, map(_why_lacking, versions, pair)), "")

    def compare(self) -> dict[str, Any]:
        """Compare the outputs that were kept at both versions."""
        from trtmatrix.judge.differences import compare_outputs

        if self.lacking:
            self.troubles.append(f"the two versions' outputs cannot be compared: {self.lacking}")
            return {}
        before, after = map(self._tensors, self.entries)
        differences = compare_outputs(before, after, self.versions)
        self.troubles.extend(
            f"the output {item.output} could not be compared: {item.note}"
            for item in differences
            if not item.samples
        )
        return {"differences": differences}

    def _tensors(self, entry: Entry) -> dict[str, Samples]:
        from trtmatrix.records.store import open_kept

        kept = _kept(entry)
        return {
            own: [open_kept(self.cache, kept[name]) if name in kept else None for name in names]
            for own, names in self.names.items()
        }

    def check(self, script: Path) -> dict[str, Any]:
        """Hand the kept outputs to the deployer's script."""
        from trtmatrix.model.acceptance import run_check

        if self.lacking:
            error = f"{script.name} was not run: {self.lacking}"
            return {"check": CheckOutcome(script=str(script), passed=None, error=error)}
        root = self.cache / "checks"
        root.mkdir(parents=True, exist_ok=True)
        case = self.entries[-1].cell.case
        reference = self._by_sample(CaseCache(self.cache).folder(self.loaded, case) / "reference")
        with tempfile.TemporaryDirectory(dir=root) as folder:
            sides = [self._unpack(script, e, Path(folder, str(n))) for n, e in enumerate(self.entries)]
            whole = reference if all(reference) else None
            return {"check": run_check(script, sides[0], sides[1], whole)}

    def _unpack(self, script: Path, entry: Entry, folder: Path) -> list[dict[str, Path]]:
        """Unpack the kept outputs of each sample; one that cannot be is left out, and told of."""
        from trtmatrix.records.store import unpack_kept

        kept, at = _kept(entry), entry.cell.version.name
        folder.mkdir()
        for own, names in self.names.items():
            for sample, name in enumerate(names):
                try:
                    unpack_kept(self.cache, str(kept[name]["sha256"]), folder / f"{name}.npy")
                except (KeyError, OSError, ValueError) as error:
                    (folder / f"{name}.npy").unlink(missing_ok=True)
                    self.troubles.append(f"{script}: is not given {own} of sample {sample} at {at}: {error}")
        return self._by_sample(folder)

    def _by_sample(self, folder: Path) -> list[dict[str, Path]]:
        """Return the files that a folder has of each sample, by the outputs' own names."""
        files = [
            {own: folder / f"{name}.npy" for own, name in zip(self.names, names, strict=True)}
            for names in zip(*self.names.values(), strict=True)
        ]
        return [{own: file for own, file in sample.items() if file.is_file()} for sample in files]


def _why_lacking(version: str, entry: Entry | None) -> str:
    """Say which outputs are not there and what would supply them, or nothing."""
    if entry is None or entry.record is None:
        return f"the model has no record at {version}: it must be run there first"
    if entry.record.ended != RAN:
        return f"at {version} it ended with: {entry.record.ended}"
    if not _kept(entry):
        return f"none were kept at {version}: python -m trtmatrix run --model … --trt {version} --rerun"
    return ""


def explain_failing(
    context: Context, args: argparse.Namespace, entries: Sequence[Entry]
) -> tuple[WrongLayer, ...]:
    """Return the first wrong layer at each version where the user's model fails; nothing is raised.

    ``entries``: of the model's repro. After an interrupt no other version is looked at.
    """
    from trtmatrix.judge.calibration import read_calibration
    from trtmatrix.model.explain import INTERRUPTED, explain

    found: dict[str, WrongLayer] = {}
    for entry in entries:
        version, verdict = entry.cell.version.name, entry.outcome.verdict if entry.outcome else None
        fails = verdict in {Verdict.FAIL, Verdict.FLAKY} and entry.evidence in SHOWN
        if version in found or not fails or entry.record is None:
            continue
        try:
            found[version] = explain(context, ModelOptions.of(vars(args)), entry, read_calibration(), _tell)
        except Exception as error:  # noqa: BLE001 - the other versions are explained all the same
            why_not = f"it could not be explained: {_words(error)}"
            found[version] = WrongLayer(version=version, why_not=why_not)
        if found[version].why_not.startswith(INTERRUPTED):
            break  # whoever ended this search wants no other
    return tuple(found.values())


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
