"""The user's own model in an upgrade report, also where little of it is there.

Reference, noise floor, cases at both versions, errors by sample; how far the versions' outputs are apart,
what the deployer's own script says of them, the first wrong layer, and what repros know of its operators.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trtmatrix.common.text import counted, name_source, one_line, short
from trtmatrix.judge.differences import Difference, Samples, compare_outputs
from trtmatrix.judge.entry import Entry, Stored, full_words
from trtmatrix.judge.judge import computed_in, judge, read_floors, subject_of
from trtmatrix.judge.noise import NO_FLOOR, Calibration, Noise, noise_troubles, read_calibration, read_noise
from trtmatrix.judge.record import RAN, Record
from trtmatrix.model.outcomes import CheckOutcome, Integers, WrongLayer
from trtmatrix.model.own_model import ModelOptions, model_repro, outputs_of, read_about
from trtmatrix.model.static_check import StaticCheck, describe_versions, name_nodes, sum_up
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.records.store import kept_file, read_kept
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CPU, Product, Verdict
from trtmatrix.upgrade.decide import FLOORS
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import FactLine, ModelSection, SampleFigure, Source, Weight


def make_model_section(
    context: Context, entries: Entries, before: str, after: str, model: ModelOptions, *, run: bool = True
) -> ModelSection:
    """Return the section of a model over a context that ``open_model`` gave.

    ``entries``: those of the model's repro are taken; ``before`` and ``after`` are columns' names; ``run``:
    whether ``--explain`` may run the model.
    """
    loaded, about = model_repro(context), read_about(context)
    repro, cases = loaded.repro.id, loaded.repro.cases
    own = [entry for entry in entries.all if entry.cell.repro.id == repro]
    both = [e for name in dict.fromkeys((before, after)) for e in own if e.cell.version.name == name]
    cache = CaseCache(context.project.cache)
    prepared = [read_noise_file(cache.folder(loaded, case)) for case in cases]
    recorded = (dict(r.noise) for e in both for r in e.records if r.ended == RAN)
    noise: Mapping[str, Any] = next(filter(None, (*prepared, *recorded)), {})
    outputs = outputs_of(loaded)
    section = ModelSection(
        name=model.title, tags=model.tags, repro=repro,
        facts=(("file", str(model.model)), *((str(n), str(text)) for n, text in about["facts"])),
        reference=reference_words(noise),
        floor=floor_words(noise, outputs, context.matrix.version(after).product),
        cases=tuple(make_case_line(repro, case, entries, before, after, own=True) for case in cases),
        samples=tuple(make_samples(both, outputs, entries.calibration)),
        troubles=(*about["troubles"], *noise_troubles(noise)),
    )  # fmt: skip
    return add_extras(section, context, both, (before, after), model, run=run)


def reference_words(noise: Mapping[str, Any]) -> str:
    """Say who computed the reference, how exactly, and with which error of its own; or why nobody did."""
    told = noise.get("reference", {})
    if not told.get("by"):
        return f"none: {told.get('why_not') or 'nothing has run'}"
    errors = [float(error) for error in told.get("own_error", {}).values()]
    own = f"at most {short(max(errors))}" if errors else "not known"
    return f"{told['by']}, {told['precision']}; its own relative L2 error: {own}"


def floor_words(
    noise: Mapping[str, Any], outputs: Mapping[str, str], product: Product = Product.TENSORRT
) -> str:
    """Say what the noise floor of a product comes from and how large it is, or that there is none.

    ``outputs``: names in records → those of the graph.
    """
    known = read_noise(noise)
    if known is None:
        return NO_FLOOR
    precision = computed_in(known.precision, product)
    floors = {name: floor for name in known.outputs if (floor := known.floor(name, precision)) is not None}
    worst = short(max(floors.values(), default=0.0))
    words = f"the same graph computed in {precision} on the CPU: relative L2 error up to {worst}"
    lacking = sorted(set(outputs) - {_split_name(name)[0] for name in floors})
    return f"{words}; none of {', '.join(outputs[name] for name in lacking)}" if lacking else words


def _split_name(name: str) -> tuple[str, int]:
    """Return an output's name in records without its sample, and the sample's number."""
    mark = re.search(r"\.s(\d+)$", name)
    return (name[: mark.start()], int(mark.group(1))) if mark else (name, 0)


def make_samples(
    entries: Iterable[Entry], outputs: Mapping[str, str], calibration: Calibration
) -> Iterator[SampleFigure]:
    """Yield each output's error at each version over all samples: the worst of all engines of each.

    ``outputs``: names in records → those of the graph. In noise floors where every sample has one that is
    not above the case's useful limit, else as relative L2 error. What is NaN where it must not be is
    infinitely wrong.
    """
    for entry in (entry for entry in entries if entry.evidence.is_record):
        floors, errors = dict[str, dict[int, float]](), dict[str, dict[int, float]]()
        for record in (record for record in entry.records if record.ended == RAN):
            subject = subject_of(record, entry.cell, calibration)
            noise, useful = subject.noise or Noise(), subject.case.useful
            for build in record.builds:
                relative = {name: float(v["rel_l2"]) for name, v in build.outputs.items() if "rel_l2" in v}
                telling = {
                    name: value for name, value in read_floors(build, subject).items()
                    if (noise.floor(name, subject.precision) or 0.0) <= useful
                }  # fmt: skip
                for table, values in ((errors, relative), (floors, telling)):
                    for name, value in values.items():
                        spoilt = bool(build.outputs[name].get("nan_unexpected")) or math.isnan(value)
                        output, sample = _split_name(name)
                        known = table.setdefault(output, {})
                        known[sample] = max(known.get(sample, 0.0), math.inf if spoilt else value)
        for file, name in outputs.items():
            in_floors = floors.get(file, {}).keys() == errors.get(file, {}).keys()
            by_sample = (floors if in_floors else errors).get(file)
            if not by_sample:
                continue
            ordered = sorted(by_sample.values())
            worst = max(by_sample, key=lambda sample: (by_sample[sample], -sample))
            # The smallest that at least half, and 90%, of the samples do not exceed.
            median, p90 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9))
            yield SampleFigure(
                output=name, version=entry.cell.version.name, median=median, p90=p90, worst=by_sample[worst],
                unit=FLOORS if in_floors else "relative L2 error", worst_sample=worst, samples=len(ordered),
            )  # fmt: skip


def add_extras(
    section: ModelSection, context: Context, entries: Sequence[Entry], versions: tuple[str, str],
    options: ModelOptions, *, run: bool = True,
) -> ModelSection:  # fmt: skip
    """Return the section with differences, ``--check`` and ``--explain`` filled in; nothing is raised.

    What goes wrong becomes a sentence in ``troubles``, and the other parts are made all the same.
    ``entries``: the model's own at both versions.
    """
    kept = KeptOutputs(context, entries, versions)
    parts: dict[str, tuple[str, Callable[[], Any]]] = {}
    parts["differences"] = "the two versions' outputs could not be compared", kept.compare
    if any(entry.verdict is Verdict.INVALID for entry in entries):
        what = "integers could not be held against their reference"
        parts["integers"] = what, partial(kept.integers, entries)
    if (script := options.check) is not None:
        parts["check"] = f"--check {script} could not be run", lambda: kept.check(script)
    if options.explain and run:
        parts["wrong_layers"] = "--explain", lambda: tuple(explain_failing(context, options, entries))
    elif options.explain:
        kept.troubles.append("--explain was not done: it runs the model, which --no-run forbids")
    for name, (what, part) in parts.items():
        try:
            section = replace(section, **{name: part()})
        except Exception as error:  # noqa: BLE001 - a report is made of what there is
            kept.troubles.append(f"{what}: {one_line(str(error))}")
    return replace(section, troubles=(*section.troubles, *kept.troubles))


class KeptOutputs:
    """The outputs of the model that were kept at two versions; ``lacking``: why there are none."""

    def __init__(self, context: Context, entries: Sequence[Entry], versions: tuple[str, str]) -> None:
        self.cache, self.loaded, self.versions = context.project.cache, model_repro(context), versions
        self.troubles, self.lacking = list[str](), ""
        samples = int(self.loaded.module.SAMPLES)
        self.marks = [mark_of(sample, samples) for sample in range(samples)]
        outputs = outputs_of(self.loaded).items()
        self.named = [{name: f"{file}{mark}" for file, name in outputs} for mark in self.marks]
        """The model's outputs by sample, each with its name in records."""
        self.reference = CaseCache(self.cache).folder(self.loaded, self.loaded.repro.cases[0]) / "reference"
        self.kept: dict[str, Mapping[str, Mapping[str, str]]] = {}
        """What the newest record that kept any has of each version's outputs."""
        shown = {e.cell.version.name: e for e in entries if e.evidence.is_record}
        for version in versions:
            entry = shown.get(version)
            records = [entry.record, *entry.records] if entry and entry.record else []
            kept = [r.data["kept"] for r in records if r.ended == RAN and r.data.get("kept")]
            ended = records[0].ended if records else RAN
            if kept and ended == RAN:
                self.kept[version] = kept[0]
                continue
            why = "none were kept" if ended == RAN else f"it ended with: {ended}"
            again = f"python -m trtmatrix run --model … --trt {version} --rerun"
            self.lacking = self.lacking or f"at {version} {why}; {again}"

    def compare(self) -> tuple[Difference, ...]:
        """Return how far the outputs of both versions are apart."""
        if self.lacking:
            self.troubles.append(f"the two versions' outputs cannot be compared: {self.lacking}")
            return ()

        def tensors(kept: Mapping[str, Mapping[str, str]], own: str) -> Samples:
            names = (sample[own] for sample in self.named)
            return (read_kept(self.cache, kept[name]) if name in kept else None for name in names)

        sides = [self.kept[version] for version in self.versions]
        before, after = ({own: tensors(kept, own) for own in self.named[0]} for kept in sides)
        differences = compare_outputs(before, after, self.versions)
        silent = (item for item in differences if not item.samples)
        self.troubles += [f"the output {x.output} could not be compared: {x.note}" for x in silent]
        return differences

    def integers(self, entries: Sequence[Entry]) -> tuple[Integers, ...]:
        """Hold outputs of integers against their reference, those of every engine whose outputs were kept."""
        import numpy as np

        from trtmatrix.model.integers import compare_integers

        module, home = self.loaded.module, self.loaded.file.parent.parent
        records = ((e.cell.version.name, r.data) for e in entries for r in e.records if r.ended == RAN)
        found = [(version, kept) for version, data in records if (kept := data.get("kept"))]
        every = [facts for _, kept in found for facts in kept.values()]
        if not any(np.dtype(facts["dtype"]).kind in "biu" for facts in every):
            return ()
        if not self.reference.is_dir():
            raise FileNotFoundError("there is none in the cache")
        if not all(kept_file(self.cache, facts["sha256"]).is_file() for facts in every):
            raise FileNotFoundError("outputs that were kept are not in the cache any more")
        engines: dict[str, list[list[dict[str, Any]]]] = {}
        for version, kept in found:
            outputs = [{own: read_kept(self.cache, kept[n]) for own, n in s.items()} for s in self.named]
            engines.setdefault(version, []).append(outputs)
        reference = [{own: np.load(self.reference / f"{n}.npy") for own, n in s.items()} for s in self.named]
        inputs = [{own: f"{file}{mark}.npy" for file, own in module.INPUTS.items()} for mark in self.marks]
        feeds = [{own: np.load(home / "inputs" / n) for own, n in sample.items()} for sample in inputs]
        precision = computed_in(module.FLOOR, entries[0].cell.version.product)
        return compare_integers(home / "model" / "model.onnx", feeds, precision, reference, engines)

    def check(self, script: Path) -> CheckOutcome:
        """Hand the kept outputs, and the reference where there is one, to the deployer's script."""
        import numpy as np

        from trtmatrix.model.acceptance import run_check

        if self.lacking:
            error = f"{script.name} was not run: {self.lacking}"
            return CheckOutcome(script=str(script), passed=None, error=error)
        reference = [{own: self.reference / f"{n}.npy" for own, n in s.items()} for s in self.named]
        whole = all(file.is_file() for sample in reference for file in sample.values())
        root = self.cache / "checks"
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            sides: list[list[dict[str, Path]]] = []
            for version in self.versions:
                folder = Path(tempfile.mkdtemp(dir=scratch))
                sides.append([{own: folder / f"{n}.npy" for own, n in s.items()} for s in self.named])
                for name in (name for sample in self.named for name in sample.values()):
                    np.save(folder / f"{name}.npy", read_kept(self.cache, self.kept[version][name]))
            return run_check(script, sides[0], sides[1], reference if whole else None)


def explain_failing(
    context: Context, options: ModelOptions, entries: Sequence[Entry]
) -> Iterator[WrongLayer]:
    """Yield the first wrong layer at each version where the model fails; after an interrupt no other."""
    from trtmatrix.model.explain import explain
    from trtmatrix.model.explain_search import INTERRUPTED

    for entry in entries:
        if entry.verdict in {Verdict.FAIL, Verdict.FLAKY} and entry.evidence.is_record:
            found = explain(context, options, entry, read_calibration(), partial(print, file=sys.stderr))
            yield found
            if found.why_not.startswith(INTERRUPTED):
                return


def tell_cpu(
    context: Context, stored: Iterable[Stored], calibration: Calibration
) -> Iterator[tuple[str, str]]:
    """Yield what the newest record of each ONNX Runtime says of a model, on the CPU: it never decides."""
    repro, newest = model_repro(context).repro, dict[str, Record]()
    for record in sorted((item.record for item in stored), key=lambda record: record.started):
        if record.cell.repro == repro.id and record.product is Product.ONNXRUNTIME:
            newest[record.cell.version] = record
    for version in (version for version in context.matrix.versions if version.name in newest):
        cell = Cell(repro=repro, case=repro.cases[0], version=version, gpu=CPU)
        outcome = judge([newest[version.name]], cell, calibration)
        words = full_words(outcome)
        if outcome.verdict is Verdict.PASS:
            words += ": the graph is sound, which says nothing of TensorRT"
        yield f"{version.name} on the CPU", f"{words}: {one_line(outcome.reason)}".removesuffix(": ")


def with_nodes(section: ModelSection, check: StaticCheck, before: str, after: str) -> ModelSection:
    """Return a section with what is known of the model's nodes; what fails anew counts against the move."""
    lines = []
    for group in check.groups:
        was, will = group.at.get(before), group.at.get(after)
        failed, fails = was is not None and was.is_sure, will is not None and will.is_sure
        change = f"nothing known at {after}" if will is None else f"feared at {after}"
        if fails:
            change = f"broken in both {before} and {after}" if failed else f"new at {after}"
        parts = [group.what, change, describe_versions(group.at)]
        parts += [f"instead: {group.instead}"] if group.instead else []
        shown, addresses = will or was, dict.fromkeys(item.source for item in group.at.values())
        lines.append(FactLine(
            topic=name_nodes(group), text="; ".join(parts), known=shown.known if shown else "none",
            weight=Weight.AGAINST if fails and not failed else Weight.NOTE,
            sources=tuple(Source(title=name_source(address), url=address) for address in addresses),
        ))  # fmt: skip
    told = f"{counted(check.nodes, 'node')} held against {counted(check.rules, 'rule')}: {sum_up(check)}"
    return replace(section, facts=(*section.facts, ("nodes", told)), nodes=tuple(lines))
