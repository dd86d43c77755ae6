"""Runs changed cases of one cell at its version, and finds what is stored of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.changed_files import FOLDER, write_changed_repro
from trtmatrix.context import Context
from trtmatrix.core.bundle.changes import Change, changed_id
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.compare import make_entries
from trtmatrix.core.confirm import CONFIRMING_BUILDS, DECIDING_BUILDS
from trtmatrix.core.entry import Entry, Stored, are_comparable
from trtmatrix.core.errors import UsageError
from trtmatrix.core.expand import Cell, Selection, expand
from trtmatrix.core.model import Case, Gpu, Product, Verdict
from trtmatrix.core.plan import Excluded, Pull, make_plan
from trtmatrix.core.record import Record
from trtmatrix.core.table import one_line
from trtmatrix.digests import cell_digests
from trtmatrix.effects.repro_files import LoadedRepro

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.batching import Batched
    from trtmatrix.scene import Scene

BUDGET_SECONDS = 900.0
"""What all changes of a cell may take together, as far as the cell's own runs tell it beforehand."""


class ChangedRuns:
    """One cell that fails, and what is needed to run it changed."""

    def __init__(
        self, context: Context, entry: Entry, calibration: Calibration, args: argparse.Namespace
    ) -> None:  # fmt: skip
        """Take the cell's context and entry; ``args``: the options of a run, where there are any."""
        self.context, self.entry, self.calibration, self.args = context, entry, calibration, args
        self.cell = entry.cell
        self.loaded = context.repros[entry.cell.repro.id]

    @property
    def cache(self) -> Path:
        """Where all of it lies."""
        return self.context.project.cache

    @property
    def builds(self) -> int:
        """How many engines of each changed case are built: what fails now and then needs more."""
        outcome = self.entry.outcome
        flaky = outcome is not None and outcome.verdict is Verdict.FLAKY
        return DECIDING_BUILDS if flaky else max(CONFIRMING_BUILDS, self.cell.case.builds)

    def prepare(self) -> Path:
        """Return the folder of the cell's own case, prepared now if it is not there."""
        from trtmatrix.effects.cases import CaseCache

        return CaseCache(self.cache).prepare(self.loaded, self.cell.case)

    def of_cases(self, cases: Mapping[str, Case]) -> dict[str, Entry]:
        """Return the entries of cases of the repro's own, where they have comparable records."""
        from trtmatrix.effects.store import read_records

        if not cases:
            return {}
        stored = [item for item in read_records(self.context.project.results) if self._fits(item.record)]
        entries = self.entries(self.loaded, [case.id for case in cases.values()], stored)
        return {name: entries[case.id] for name, case in cases.items() if case.id in entries}

    def _fits(self, record: Record) -> bool:
        """Whether a record was made under the conditions of the cell's own."""
        ours, theirs = self.cell.id, record.cell
        if (theirs.repro, theirs.version, theirs.gpu) != (ours.repro, ours.version, ours.gpu):
            return False
        made = self.entry.record
        return made is not None and are_comparable(made, record, ("repro", "image", "runtime"))

    def selection(self, repro: str, cases: Iterable[str]) -> Selection:
        """Return cases of a repro at the cell's version."""
        gpus = (self.cell.gpu.slug,) if self.cell.version.product is Product.TENSORRT else ()
        return Selection(
            versions=(self.cell.version.name,), repros=(repro,), cases=tuple(cases), gpus=gpus,
            runtimes=self.context.selection.runtimes,
        )  # fmt: skip

    def entries(
        self, loaded: LoadedRepro, cases: Sequence[str], stored: Sequence[Stored]
    ) -> dict[str, Entry]:
        """Return what records say of cases of a repro at the cell's version and GPU, by the case's id."""
        cells = self.cells(loaded, cases, self.cell.gpu)
        made = make_entries(cells, stored, {}, [], calibration=self.calibration)
        return {entry.cell.case.id: entry for entry in made if entry.record is not None}

    def cells(self, loaded: LoadedRepro, cases: Sequence[str], gpu: Gpu) -> tuple[Cell, ...]:
        """Return cases of a repro as cells of the cell's version."""
        repro, names = loaded.repro, set(cases)
        chosen = replace(repro, cases=tuple(case for case in repro.cases if case.id in names))
        return expand(self.context.matrix, [chosen], (gpu,), self.selection(repro.id, ()))

    def open(self, changes: Sequence[Change], batched: Batched | None) -> Changed:
        """Write the repro of changed cases, if it is not there, and read it."""
        from trtmatrix.effects.code import digest_program
        from trtmatrix.effects.remembered import Remembered
        from trtmatrix.effects.repro_files import read_repros

        folder = write_changed_repro(self.cache, self.loaded, self.cell.case, changes, self.builds, batched)
        (loaded,) = read_repros(folder, Remembered(self.cache, digest_program()))
        return Changed(self, loaded, changes)


class Changed:
    """A cell's changed cases."""

    def __init__(self, runs: ChangedRuns, loaded: LoadedRepro, changes: Sequence[Change]) -> None:
        """Take the repro that they are cases of."""
        self._runs, self._loaded, self._changes = runs, loaded, changes
        self._names = {change.id: changed_id(runs.cell.case, change) for change in changes}

    @cached_property
    def _context(self) -> Context:
        project = replace(
            self._runs.context.project, repros=self._loaded.file.parent,
            results=self._runs.cache / FOLDER / "results",
        )  # fmt: skip
        return replace(
            self._runs.context, controls=False, repros={self._loaded.repro.id: self._loaded}, project=project
        )

    def stored(self) -> dict[str, Entry]:
        """Return the entries of changes that were measured before, as the repro has them now."""
        from trtmatrix.effects.store import read_records

        cells = self._runs.cells(self._loaded, list(self._names.values()), self._runs.cell.gpu)
        wanted = {cell.id: cell_digests(cell, self._loaded) for cell in cells}
        stored = [
            item for item in read_records(self._context.project.results)
            if _has(item.record.digests, wanted.get(item.record.cell))
        ]  # fmt: skip
        entries = self._runs.entries(self._loaded, list(self._names.values()), stored)
        return self._by_change({name: entry for name, entry in entries.items() if not _may_pass(entry)})

    def _by_change(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        return {change: entries[name] for change, name in self._names.items() if name in entries}

    def run(self, changes: Sequence[Change]) -> tuple[dict[str, Entry], dict[str, str]]:
        """Run changes by the version's own launcher, and say why others did not run."""
        scene = self._look(changes)[0]
        able = {cell.case.id for launch in scene.plan.launches for cell in launch.cells}
        why = {item.cell.case.id: _words(item) for item in scene.plan.excluded}
        chosen, late = self._within_budget([c for c in changes if self._names[c.id] in able])
        ready, broken = self._prepared(chosen)
        entries: dict[str, Entry] = {}
        if ready:
            entries, not_ready = self._perform(*self._look(ready))
            why.update(not_ready)
        not_run = {change: why[name] for change, name in self._names.items() if name in why}
        return self._by_change(entries), {**not_run, **late, **broken}

    def _look(self, changes: Sequence[Change]) -> tuple[Scene, Context]:
        """Return the plan of changed cases on this host."""
        from trtmatrix.effects.gpu import find_gpus
        from trtmatrix.scene import Scene, find_host

        names = [self._names[change.id] for change in changes]
        selection = self._runs.selection(self._loaded.repro.id, names)
        context, scan, own = replace(self._context, selection=selection), find_gpus(), self._runs.cell.gpu
        host = find_host(context, scan)
        gpu = next((gpu for gpu in scan.gpus if gpu.slug == own.slug), own)
        cells = self._runs.cells(self._loaded, names, gpu)
        plan = make_plan(cells, host, selection, Pull.NEVER)
        return Scene(host=host, scan=scan, cells=cells, plan=plan, stored=()), context

    def _perform(self, scene: Scene, context: Context) -> tuple[dict[str, Entry], dict[str, str]]:
        from trtmatrix.perform import Options, perform

        options = replace(Options(), confirm=False)
        if hasattr(self._runs.args, "memory"):
            from trtmatrix.commands import options_of

            options = replace(options_of(self._runs.args), confirm=False, rebuilds=1, rerun=False)
        result = perform(context, scene, options)
        why = {item.cell.case.id: _words(item) for item in result.performed.not_ready}
        return {e.cell.case.id: e for e in result.entries if e.record is not None}, why

    def _within_budget(self, changes: Sequence[Change]) -> tuple[list[Change], dict[str, str]]:
        """Return the changes that the time allows, by what the cell's own engines took, and the others."""
        each = seconds_of(self._runs.entry.record) * self._runs.builds
        count = len(changes) if not each else max(1, int(BUDGET_SECONDS / each))
        why = f"not measured: a change takes some {each:.0f} s, of {BUDGET_SECONDS:.0f} s for all"
        return list(changes[:count]), {change.id: why for change in changes[count:]}

    def _prepared(self, changes: Sequence[Change]) -> tuple[list[Change], dict[str, str]]:
        """Return the changes whose case can be prepared, and why others cannot.

        They are prepared as of the file of the original: what emulates is its code, so that the calibration's
        noise is theirs as well, and figures can be compared.
        """
        from trtmatrix.effects.cases import CaseCache

        cases = {case.id: case for case in self._loaded.repro.cases}
        cache = CaseCache(self._runs.cache, tag=f"{os.urandom(6).hex()}-")
        original = replace(self._loaded, file=self._runs.loaded.file)
        ready: list[Change] = []
        troubles: dict[str, str] = {}
        try:
            for change in changes:
                try:
                    cache.prepare(original, cases[self._names[change.id]])
                except UsageError as error:
                    reason = str(error).partition(" failed: ")[2].partition("\n")[0]
                    troubles[change.id] = one_line(f"not measured: the graph cannot be made so: {reason}")
                else:
                    ready.append(change)
        finally:
            cache.remove_partial()
        return ready, troubles


def _words(item: Excluded) -> str:
    """Return why a changed case was not run."""
    return one_line(f"not measured: {item.why.value}: {item.detail}".rstrip(": "))


def _has(digests: Mapping[str, Any], wanted: Mapping[str, str] | None) -> bool:
    return wanted is not None and all(digests.get(name) == digest for name, digest in wanted.items())


def _may_pass(entry: Entry) -> bool:
    """Whether a record says nothing because of the machinery or the moment: it is tried again."""
    return entry.outcome is None or (entry.outcome.cause is not None and entry.outcome.cause.may_pass)


def seconds_of(record: Record | None) -> float:
    """Return what building and running one engine took, by a record; 0 where it does not say."""
    engine: Mapping[str, Any] = record.data.get("engine", {}) if record is not None else {}
    return float(engine.get("run_seconds") or engine.get("build_seconds") or 0.0)
