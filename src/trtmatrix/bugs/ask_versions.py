"""Asks matrix.yaml's versions of a case, or of a model of one's own: stored records first, then a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtmatrix.bugs.bisect_report import Candidate, Reply, Report, Subject
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.confirm import count_engines
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import PRODUCT_NAMES, full_words
from trtmatrix.launchers.gpu import find_gpus
from trtmatrix.model.own_model import ModelOptions, notes_of, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.stale import Why, find_reason
from trtmatrix.plan.survey import digests_now, entries_of, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.run.perform import Options, perform
from trtmatrix.suite.cells import CONTROLS, nearest_names
from trtmatrix.suite.matrix import ImageOrigin, Matrix, Version
from trtmatrix.suite.model import CPU, Cause, Evidence, Exclusion, Gpu, Outcome, Product, Verdict
from trtmatrix.suite.plan import Isolation, Pull, registry_name
from trtmatrix.suite.repros import Case, Repro
from trtmatrix.upgrade.move import choose_gpu
from trtmatrix.upgrade.question import DOOR, file_options, model_options

STORED = frozenset({Evidence.MEASURED, Evidence.RECORDED})
NOT_HERE = frozenset({Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE})


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """Those of ``bisect``; ``image``: as often as that was said, the images that were named."""

    project: ProjectOptions
    model: ModelOptions
    wanted_case: str | None
    shell_command: str | None
    wanted_gpu: str | None
    product: Product
    image: tuple[list[str], ...]
    good: str | None
    bad: str | None
    rebuilds: int | None
    no_run: bool
    pull: bool
    output: Path | None
    json: bool

    def ends(self, report: Report, name: Callable[[int], str]) -> list[str]:
        """Return the options that name the ends which a search found, and the product."""
        other = [] if self.product is Product.TENSORRT else ["--product", self.product.value]
        return [*report.ends(name), *other]


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """One case on one GPU: what is stored of it at versions, and a run at one of them."""

    context: Context
    repro: Repro
    case: Case
    gpu: Gpu
    rebuilds: int
    pull: Pull
    can_run: bool

    def narrowed(self, versions: Sequence[Version]) -> Context:
        """Return the context of the case at these versions."""
        selection = replace(
            self.context.selection, versions=tuple(v.name for v in versions), repros=(self.repro.id,),
            cases=(f"{self.repro.id}/{self.case.id}",), gpus=() if self.gpu == CPU else (self.gpu.slug,),
        )  # fmt: skip
        return replace(self.context, selection=selection)

    def look(self, versions: Sequence[Version]) -> tuple[dict[str, Reply], dict[str, Answer]]:
        """Return by version what records answer, and what reports and older records let expect."""
        context = self.narrowed(versions)
        survey = take_survey(context, self.pull)
        entries = self._mine(entries_of(context, survey, survey.stored))
        current, images = digests_now(context, survey), survey.host.engine.images
        replies: dict[str, Reply] = {}
        hints: dict[str, Answer] = {}
        for name, entry in entries.items():
            reply = stored_reply(
                entry, rebuilds=self.rebuilds, can_run=self.can_run and entry.excluded is None,
                current=current[entry.cell.id], images=images,
            )  # fmt: skip
            if reply is not None:
                replies[name] = reply
            if entry.outcome and (hint := answer_of(entry, entry.outcome)) is not Answer.CANNOT_SAY:
                hints[name] = hint
        return replies, hints

    def ask(self, version: Version) -> Reply:
        """Run the case at a version, with as many engines as a good answer needs, in one container.

        In a process of its own: what another cell left, or was remembered of one, is no build. Without the
        controls and the other products that go along with a run: they answer nothing here.
        """
        context = replace(self.narrowed([version]), controls=False)
        survey = take_survey(context, self.pull)
        result = perform(context, survey, Options(rebuilds=self.rebuilds, isolation=Isolation.PROCESS))
        entry = self._mine(result.entries).get(version.name)
        if entry is None or entry.outcome is None or entry.evidence is not Evidence.MEASURED:
            why = [item.detail or item.why.value for item in result.not_ready]
            why += [entry.excluded.detail if entry and entry.excluded else "it left no record"]
            silent = Reply(answer=Answer.CANNOT_SAY, words="not run", known="tried now", tried=True)
            return replace(silent, reason=why[0])
        images = survey.host.engine.images
        return reply_of(entry, entry.outcome, rebuilds=self.rebuilds, images=images, tried=True)

    def _mine(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        mine = (self.repro.id, self.case.id)
        return {
            entry.cell.version.name: entry for entry in entries
            if (entry.cell.repro.id, entry.cell.case.id) == mine and not entry.cell.companion
        }  # fmt: skip

    def subject(self, product: Product, what: str) -> Subject:
        """Return what is looked for, in words."""
        driver = f" (driver {self.gpu.driver})" if self.gpu.driver else ""
        place = self.gpu.name + driver if self.gpu != CPU else "the CPU"
        known = (self.repro.title, self.repro.upstream, f"{PRODUCT_NAMES[product]} on {place}")
        about = ", ".join(part for part in known if part)
        return Subject(title=f"{self.repro.id}/{self.case.id}", about=about, what=what)

    def words(self, options: BisectOptions) -> list[str]:
        """Return the options that name the case, the GPU, the builds and the files."""
        case = ["--case", f"{self.repro.id}/{self.case.id}"]
        what = model_options(options.model) if options.model.model else case
        gpu = ["--gpu", options.wanted_gpu] if options.wanted_gpu else []
        return [*what, *gpu, "--rebuilds", str(self.rebuilds), *file_options(options.project)]


class Versions:
    """matrix.yaml's versions of one product, the oldest first.

    One of which nothing is known yet is searched only where it can be run here, or is named as an end.
    """

    interrupted = "it was interrupted; the same command goes on from what is stored"

    def __init__(self, run: CaseRun, options: BisectOptions) -> None:
        self.run, self.options = run, options
        known = {cell.version.name for cell in take_survey(run.narrowed([]), run.pull).cells}
        known |= {end for end in (options.good, options.bad) if end}
        found = [each for each in candidates_of(run.context.matrix, options.product) if each[0].name in known]
        self.versions = [version for version, _ in found]
        self.candidates = tuple(candidate for _, candidate in found)
        self.subject = run.subject(options.product, "version")
        self.rests_on = f"a good answer rests on {run.rebuilds} builds" if run.rebuilds > 1 else ""

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what records answer, and what reports and older records say."""
        replies, hints = self.run.look(self.versions)
        numbers = {version.name: number for number, version in enumerate(self.versions)}
        answered = {numbers[name]: reply for name, reply in replies.items()}
        return answered, {numbers[name]: hint for name, hint in hints.items()}

    def ask(self, number: int) -> Reply:
        """Run the case at a version."""
        return self.run.ask(self.versions[number])

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return what runs the case at these versions, and what searches between them report."""
        names = ",".join(self.candidates[number].name for number in report.shown)
        case = self.run.words(self.options)
        row = [] if self.options.model.model else ["--repro", self.run.repro.id]
        ends = self.options.ends(report, report.name)
        search = command_line([DOOR, "bisect", "--", *case, *ends])
        return (command_line([DOOR, "matrix", "--", "--trt", names, *row, *case]), search)[not names :]


def answer_of(entry: Entry, outcome: Outcome) -> Answer:
    """Return what an outcome answers: one wrong engine is a failure; no numbers cannot say.

    What is only built is good where that it is not built is the bug.
    """
    match outcome.verdict:
        case Verdict.PASS:
            return Answer.GOOD
        case Verdict.FAIL | Verdict.FLAKY:
            return Answer.BAD
        case Verdict.BUILT if Cause.BUILD_FAILED in entry.cell.case.bug_is:
            return Answer.GOOD
        case Verdict.BUILT | Verdict.INVALID | Verdict.NO_VERDICT:
            return Answer.CANNOT_SAY


def stored_reply(
    entry: Entry, *, rebuilds: int, can_run: bool, current: Mapping[str, str], images: Mapping[str, str]
) -> Reply | None:
    """Return what a cell answers without running it, or None where it is to be run.

    A record answers where it would not be measured again: it is current, or was published and nothing has
    changed since; a PASS also needs as many engines as are asked for. Where the cell cannot run here, what is
    recorded answers, and without a record it cannot say. ``current``: the digests that a record must have.
    """
    outcome = entry.outcome if entry.evidence in STORED else None
    if outcome is None:
        if can_run:
            return None
        why = entry.excluded.why if entry.excluded else None
        detail = entry.excluded.detail if entry.excluded and why not in NOT_HERE else ""
        reason = "; ".join(part for part in ("no record", why.value if why else "", detail) if part)
        return Reply(answer=Answer.CANNOT_SAY, words="not run", reason=reason)
    answer = answer_of(entry, outcome)
    changed = find_reason(entry, rebuilds=rebuilds if answer is Answer.GOOD else 1, current=current)
    if can_run and changed is not None:
        enough = answer is Answer.BAD or count_engines(entry.records) >= rebuilds
        if changed.why is not Why.ELSEWHERE or answer is Answer.CANNOT_SAY or not enough:
            return None
    return reply_of(entry, outcome, rebuilds=rebuilds, images=images)


def reply_of(
    entry: Entry, outcome: Outcome, *, rebuilds: int, images: Mapping[str, str], tried: bool = False
) -> Reply:
    """Return what the records of a cell answer."""
    record, answer = entry.record, answer_of(entry, outcome)
    reason, engines = outcome.reason, count_engines(entry.records)
    if answer is Answer.GOOD and engines < rebuilds:
        few = f"{engines} engine{'' if engines == 1 else 's'} of the {rebuilds} asked for"
        reason = f"{few}; {reason}" if reason else few
    words = full_words(outcome)
    if answer is Answer.GOOD and not outcome.builds and engines > 1:  # products whose builds do not differ
        words = f"{words} ({engines} builds)"
    day = f" of {record.started[:10]}" if record else ""
    here = entry.evidence is Evidence.MEASURED
    known = f"stored record{day}, {'measured here' if here else 'recorded elsewhere or before a change'}"
    in_container = record is not None and record.digests.get("runtime", "container") == "container"
    image_id = str(record.digests.get("image", "")) if record and in_container else ""
    return Reply(
        answer=answer, words=words, figure=entry.figure, reason=reason, tried=tried,
        known="run now" if tried else known, image_id=image_id,
        image=registry_name(images, image_id) if image_id else "",
        library=str(record.observed.get("library") or "") if record else "",
        driver=str(record.gpu.get("driver") or "") if record else "",
    )  # fmt: skip


def candidates_of(matrix: Matrix, product: Product) -> list[tuple[Version, Candidate]]:
    """Return the versions of a product, the oldest first."""
    found = sorted((v for v in matrix.versions if v.product is product), key=lambda version: version.release)
    images = [v.origin.image if isinstance(v.origin, ImageOrigin) else "" for v in found]
    return [(v, Candidate(name=v.name, image=image)) for v, image in zip(found, images, strict=True)]


def command_line(parts: Sequence[str]) -> str:
    """Return a command line; the door's own two words stay as they are."""
    return " ".join([parts[0], shlex.join(parts[1:])])


def open_case(options: BisectOptions) -> CaseRun:
    """Return the case that was named, with the GPU that is meant."""
    product = options.product
    context = open_model(open_context(options.project), options.model)
    if options.model.model is not None:
        for told in notes_of(context):
            print(f"{options.model.model.name}: {told}", file=sys.stderr)
    repro, case = _find_case(context, options.wanted_case)
    if product not in case.products:
        able = " or ".join(f"--product {p.value}" for p in Product if p in case.products)
        raise UsageError(f"{repro.id}/{case.id} is not run by {PRODUCT_NAMES[product]}: say {able}")
    return CaseRun(
        context=context, repro=repro, case=case, gpu=_find_gpu(context, options.wanted_gpu, product),
        rebuilds=3 if options.rebuilds is None else options.rebuilds,
        pull=Pull.NAMED if options.pull else Pull.NEVER, can_run=not options.no_run,
    )  # fmt: skip


def _find_gpu(context: Context, wanted: str | None, product: Product) -> Gpu:
    if product is not Product.TENSORRT:
        if wanted:
            raise UsageError(f"--gpu {wanted}: {PRODUCT_NAMES[product]} is run on the CPU here")
        return CPU
    stored = read_records(context.project.results)
    return choose_gpu([wanted] if wanted else [], find_gpus().gpus, stored)


def _find_case(context: Context, wanted: str | None) -> tuple[Repro, Case]:
    """Return the one case of a name; of a model's context the model's own."""
    repros = [repro for repro in context.plain_repros if wanted is not None or repro.id != CONTROLS]
    rows = {f"{repro.id}/{case.id}": (repro, case) for repro in repros for case in repro.cases}
    if wanted is None:
        return next(iter(rows.values()))
    found = [name for name in rows if wanted in {name, name.partition("/")[2]}]
    if len(found) > 1:
        raise UsageError(f"--case {wanted}: several repros have it; name one: {', '.join(found)}")
    if not found:
        raise UsageError(nearest_names("--case", wanted, [case.id for _, case in rows.values()] + [*rows]))
    return rows[found[0]]
