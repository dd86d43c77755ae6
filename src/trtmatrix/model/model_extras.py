"""What a report tells of a user's model beside its verdicts: differences, acceptance, the wrong layer."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.judge.compare import Entry
from trtmatrix.judge.record import RAN, Record
from trtmatrix.plan.context import Context
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.outcome import Evidence
from trtmatrix.upgrade.report import CheckOutcome, ModelSection, WrongLayer

if TYPE_CHECKING:
    from trtmatrix.judge.differences import Samples
    from trtmatrix.suite.repro_files import LoadedRepro

SHOWN = (Evidence.MEASURED, Evidence.RECORDED)


def add_extras(
    section: ModelSection,
    context: Context,
    entries: Sequence[Entry],
    before: str,
    after: str,
    args: argparse.Namespace,
) -> ModelSection:
    """Return the section with differences, ``--check`` and ``--explain`` filled in; nothing is raised.

    ``context``: as :func:`.open_model` gave it; ``entries``: of any repros, those of the
    model's are taken. ``before`` and ``after`` are columns' names. What goes wrong becomes a sentence in
    ``troubles``, and the other parts are made all the same.
    """
    troubles: list[str] = []

    def attempt(what: str, part: Callable[[], ModelSection]) -> ModelSection:
        try:
            return part()
        except Exception as error:  # noqa: BLE001 - a report is made of what there is
            said = " ".join(str(error).split())[:300] or type(error).__name__
            troubles.append(f"{what}: {said}")
            return section

    own = [entry for entry in entries if entry.cell.repro.id == section.repro]
    extras = _Extras(context=context, args=args, troubles=troubles, before=before, after=after)
    pair = _pair(own, before, after)
    section = attempt(
        "the two versions' outputs could not be compared", lambda: extras.compare(section, pair)
    )
    if getattr(args, "check", None) is not None:
        section = attempt(f"--check {args.check} could not be run", lambda: extras.check(section, pair))
    if getattr(args, "explain", False):
        section = attempt("--explain could not be done", lambda: extras.explain(section, own))
    return replace(section, troubles=(*section.troubles, *troubles))


Pair = tuple[Entry | None, Entry | None]


def _pair(entries: Sequence[Entry], before: str, after: str) -> Pair:
    """Return the model's entries at both versions, of one case and, where there is, of one GPU.

    Those with kept outputs come first, then those that were measured here.
    """

    def worth(entry: Entry | None) -> tuple[bool, bool]:
        return bool(entry and _kept(entry)), bool(entry and entry.evidence is Evidence.MEASURED)

    groups: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in entries:
        if entry.cell.version.name in {before, after} and entry.evidence in SHOWN:
            place = (entry.cell.case.id, entry.cell.gpu.slug)
            groups.setdefault(place, {})[entry.cell.version.name] = entry
    pairs: list[Pair] = [(group.get(before), group.get(after)) for group in groups.values()]
    return max(pairs, key=lambda pair: tuple(map(worth, pair)), default=(None, None))


def _kept(entry: Entry) -> Mapping[str, Mapping[str, str]]:
    """Return the outputs that were kept of the newest record that has any."""
    for record in (entry.record, *entry.records):
        if record is not None and record.ended == RAN and (kept := record.data.get("kept")):
            return dict(kept)
    return {}


@dataclass(frozen=True, kw_only=True)
class _Extras:
    """The parts, each of which returns the section with its own fields filled in."""

    context: Context
    args: argparse.Namespace
    troubles: list[str]
    before: str
    after: str

    def compare(self, section: ModelSection, pair: Pair) -> ModelSection:
        """Compare the outputs that were kept at both versions."""
        from trtmatrix.judge.differences import compare_outputs

        if reason := self._lacking(pair):
            self.troubles.append(f"the two versions' outputs cannot be compared: {reason}")
            return section
        sides = [self._tensors(entry) for entry in pair if entry is not None]
        differences = compare_outputs(sides[0], sides[1], (self.before, self.after))
        self.troubles.extend(
            f"the output {item.output} could not be compared: {item.note}"
            for item in differences
            if not item.samples
        )
        return replace(section, differences=differences)

    def _lacking(self, pair: Pair) -> str:
        """Say which outputs are not there and what would supply them, or nothing."""
        for name, entry in zip((self.before, self.after), pair, strict=True):
            if entry is None or entry.record is None:
                return f"the model has no record at {name}: it must be run there first"
            if entry.record.ended != RAN:
                return f"at {name} it ended with: {entry.record.ended}"
            if not _kept(entry):
                return f"none were kept at {name}: python -m trtmatrix run --model … --trt {name} --rerun"
        return ""

    @property
    def _loaded(self) -> LoadedRepro:
        from trtmatrix.model.own_model import model_repro

        return model_repro(self.context)

    def _names(self) -> dict[str, list[str]]:
        """Return the model's outputs, each with its names in records, by sample."""
        from trtmatrix.model.explain_steps import outputs_of, samples_of
        from trtmatrix.onnxmodel.preparing import mark_of

        count = samples_of(self._loaded)
        return {
            own: [f"{name}{mark_of(sample, count)}" for sample in range(count)]
            for name, own in outputs_of(self._loaded).items()
        }

    def _tensors(self, entry: Entry) -> dict[str, Samples]:
        from trtmatrix.records.kept_outputs import open_kept

        kept, cache = _kept(entry), self.context.project.cache
        return {
            own: [open_kept(cache, kept[name]) if name in kept else None for name in names]
            for own, names in self._names().items()
        }

    def check(self, section: ModelSection, pair: Pair) -> ModelSection:
        """Hand the kept outputs to the deployer's script."""
        from trtmatrix.model.acceptance import run_check

        script = Path(self.args.check)
        if reason := self._lacking(pair):
            error = f"{script.name} was not run: {reason}"
            return replace(section, check=CheckOutcome(script=str(script), passed=None, error=error))
        root = self.context.project.cache / "checks"
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as name:
            sides = [
                self._files(entry, Path(name) / str(number))
                for number, entry in enumerate(pair)
                if entry is not None
            ]
            return replace(section, check=run_check(script, sides[0], sides[1], self._reference(pair)))

    def _files(self, entry: Entry, folder: Path) -> list[dict[str, Path]]:
        """Unpack the kept outputs of each sample; one that cannot be is left out, and told of."""
        from trtmatrix.records.kept_outputs import unpack_kept

        kept, names = _kept(entry), self._names()
        folder.mkdir()
        samples: list[dict[str, Path]] = [{} for _ in range(max(map(len, names.values()), default=0))]
        for number, (own, by_sample) in enumerate(names.items()):
            for sample, name in enumerate(by_sample):
                file = folder / f"{number}-{sample}.npy"
                try:
                    unpack_kept(self.context.project.cache, str(kept[name]["sha256"]), file)
                    samples[sample][own] = file
                except (KeyError, OSError, ValueError) as error:
                    at = entry.cell.version.name
                    self.troubles.append(
                        f"{self.args.check}: is not given {own} of sample {sample} at {at}: {error}"
                    )
        return samples

    def _reference(self, pair: Pair) -> list[dict[str, Path]] | None:
        """Return the reference's files of each sample; None where there is none."""
        from trtmatrix.prepare.cases import CaseCache

        entry = pair[1] or pair[0]
        if entry is None:
            return None
        folder = CaseCache(self.context.project.cache).folder(self._loaded, entry.cell.case) / "reference"
        samples: list[dict[str, Path]] = []
        for own, names in self._names().items():
            for sample, name in enumerate(names):
                samples += [{}] if sample == len(samples) else []
                if (file := folder / f"{name}.npy").is_file():
                    samples[sample][own] = file
        return samples if all(samples) else None

    def explain(self, section: ModelSection, entries: Sequence[Entry]) -> ModelSection:
        """Look for the first wrong layer at each of the two versions where the model fails."""
        both = [e for e in entries if e.cell.version.name in {self.before, self.after}]
        if getattr(self.args, "no_run", False):
            self.troubles.append("--explain was not done: it runs the model, which --no-run forbids")
            return section
        return replace(section, wrong_layers=explain_failing(self.context, self.args, both))


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
        version = entry.cell.version.name
        if version in found or not _fails(entry):
            continue
        try:
            found[version] = explain(context, args, entry, read_calibration(), _tell)
        except Exception as error:  # noqa: BLE001 - the other versions are explained all the same
            said = " ".join(str(error).split())[:300] or type(error).__name__
            found[version] = WrongLayer(version=version, why_not=f"it could not be explained: {said}")
        if found[version].why_not.startswith(INTERRUPTED):
            break  # whoever ended this search wants no other
    return tuple(found.values())


def _fails(entry: Entry) -> bool:
    verdict = entry.outcome.verdict if entry.outcome else None
    ran: Record | None = entry.record
    return entry.evidence in SHOWN and verdict in {Verdict.FAIL, Verdict.FLAKY} and ran is not None


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
