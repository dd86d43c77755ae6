"""Asks candidates of a bisect: matrix.yaml's versions or images of a case, or a shell command of the user's.

Stored records answer first, then a run.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from trtmatrix.bugs.bisect_report import Candidate, Reply, Report, Subject
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.paths import recall
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.text import counted
from trtmatrix.judge.compare import count_engines
from trtmatrix.judge.entry import PRODUCT_NAMES, Entry, full_words
from trtmatrix.launchers.containers import read_contents
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.launchers.gpu import find_gpus
from trtmatrix.launchers.images import pull_by_name
from trtmatrix.model.own_model import ModelOptions, notes_of, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context, read_matrix
from trtmatrix.plan.order import ELSEWHERE, find_reason
from trtmatrix.plan.survey import choose_gpu, digests_now, entries_of, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.run.perform import Options, perform
from trtmatrix.suite.cells import CONTROLS, nearest_names
from trtmatrix.suite.matrix import Fact, ImageOrigin, Matrix, Source, Version
from trtmatrix.suite.model import (
    CPU,
    Cause,
    Evidence,
    Exclusion,
    Known,
    Outcome,
    Product,
    Verdict,
    is_release,
)
from trtmatrix.suite.plan import HeldImage, Isolation, Pull, find_image, registry_name
from trtmatrix.upgrade.question import DOOR, file_options, model_options

NOT_HERE = frozenset({Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE})

FOLDER = "bisect"
"""Where in the cache the records of images lie that matrix.yaml does not name, a folder for each image."""

SOURCE = "image"

SKIP, ABORT = 125, 128
"""Exit codes as ``git bisect run`` reads them: https://git-scm.com/docs/git-bisect#_bisect_run."""


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

    def search_again(self, words: Sequence[str], report: Report, name: Callable[[int], str]) -> str:
        """Return the command that searches between the ends which a report found."""
        other = [] if self.product is Product.TENSORRT else ["--product", self.product.value]
        return f"{DOOR} {shlex.join(['bisect', '--', *words, *report.ends(name), *other])}"


class Asker(Protocol):
    """Knows a row of candidates, the oldest first, and asks one of them.

    ``rests_on``: what a good answer rests on. ``interrupted``: what is said of a search that was.
    """

    candidates: tuple[Candidate, ...]
    subject: Subject
    rests_on: str = ""
    interrupted: str = "it was interrupted; the same command goes on from what is stored"

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what is answered without running anything, and what is only reported."""
        return {}, {}

    def ask(self, number: int) -> Reply:
        """Run a candidate; :class:`MachineryError` where the search is to end."""

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return the commands that show a result again, one after another."""


class CaseAsker(Asker):
    """One case on one GPU: what is stored of it at versions, and a run at one of them."""

    def __init__(self, options: BisectOptions, what: str) -> None:
        """Find the case that was named and the GPU that is meant; ``what``: what its candidates are."""
        self.options, self.rebuilds = options, 3 if options.rebuilds is None else options.rebuilds
        self.pull = Pull.NAMED if options.pull else Pull.NEVER
        product, wanted = options.product, options.wanted_case
        self.rests_on = f"a good answer rests on {self.rebuilds} builds" * (self.rebuilds > 1)
        context = open_model(open_context(options.project), options.model)
        if options.model.model is not None:
            for told in notes_of(context):
                print(f"{options.model.model.name}: {told}", file=sys.stderr)
        repros = [repro for repro in context.plain_repros if wanted is not None or repro.id != CONTROLS]
        rows = {f"{repro.id}/{case.id}": (repro, case) for repro in repros for case in repro.cases}
        found = [name for name in rows if wanted in {None, name, name.partition("/")[2]}]
        if wanted and len(found) > 1:
            raise UsageError(f"--case {wanted}: several repros have it; name one: {', '.join(found)}")
        if not found:
            names = [*(case.id for _, case in rows.values()), *rows]
            raise UsageError(nearest_names("--case", wanted or "", names))
        self.id, (self.repro, self.case) = found[0], rows[found[0]]
        if product not in self.case.products:
            able = " or ".join(f"--product {p.value}" for p in Product if p in self.case.products)
            raise UsageError(f"{self.id} is not run by {PRODUCT_NAMES[product]}: say {able}")
        gpu, named, place = CPU, [options.wanted_gpu] if options.wanted_gpu else [], "the CPU"
        if product is Product.TENSORRT:
            gpu = choose_gpu(named, find_gpus().gpus, read_records(context.project.results))
            place = gpu.name + (f" (driver {gpu.driver})" if gpu.driver else "")
        elif named:
            raise UsageError(f"--gpu {named[0]}: {PRODUCT_NAMES[product]} is run on the CPU here")
        known = (self.repro.title, self.repro.upstream, f"{PRODUCT_NAMES[product]} on {place}")
        self.subject = Subject(title=self.id, about=", ".join(filter(None, known)), what=what)
        selection = replace(
            context.selection, versions=(), repros=(self.repro.id,), cases=(self.id,),
            gpus=() if gpu == CPU else (gpu.slug,),
        )  # fmt: skip
        self.context = replace(context, selection=selection)

    def look(
        self, context: Context, versions: Sequence[Version]
    ) -> tuple[dict[int, Reply], dict[int, Answer]]:
        """Return by place what records answer, and what reports and older records let expect."""
        context = _at(context, versions)
        survey = take_survey(context, self.pull)
        current, images = digests_now(context, survey), survey.host.engine.images
        entries = self._mine(entries_of(context, survey, survey.stored))
        replies, hints = dict[int, Reply](), dict[int, Answer]()
        for place, entry in enumerate(map(entries.get, [version.name for version in versions])):
            if entry is None:
                continue
            reply = stored_reply(
                entry, rebuilds=self.rebuilds, can_run=not self.options.no_run and entry.excluded is None,
                current=current[entry.cell.id], images=images,
            )  # fmt: skip
            replies |= {place: reply} if reply else {}
            if entry.outcome and (hint := answer_of(entry, entry.outcome)) is not Answer.CANNOT_SAY:
                hints[place] = hint
        return replies, hints

    def run_at(self, context: Context, version: Version) -> Reply:
        """Run the case at a version, with as many engines as a good answer needs, in one container.

        In a process of its own: what another cell left, or was remembered of one, is no build. Without the
        controls and the other products that go along with a run: they answer nothing here.
        """
        context = replace(_at(context, [version]), controls=False)
        survey = take_survey(context, self.pull)
        result = perform(context, survey, Options(rebuilds=self.rebuilds, isolation=Isolation.PROCESS))
        entry = self._mine(result.entries).get(version.name)
        if entry is None or entry.outcome is None or entry.evidence is not Evidence.MEASURED:
            why = [item.detail or item.why.value for item in result.not_ready]
            why += [entry.excluded.detail if entry and entry.excluded else "it left no record"]
            return replace(_silent("not run", why[0]), known="tried now", tried=True)
        images = survey.host.engine.images
        return reply_of(entry, entry.outcome, rebuilds=self.rebuilds, images=images, tried=True)

    def _mine(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        mine = (self.repro.id, self.case.id)
        return {
            entry.cell.version.name: entry for entry in entries
            if (entry.cell.repro.id, entry.cell.case.id) == mine and not entry.cell.companion
        }  # fmt: skip

    def words(self) -> list[str]:
        """Return the options that name the case, the GPU, the builds and the files."""
        options = self.options
        what = model_options(options.model) if options.model.model else ["--case", self.id]
        gpu = ["--gpu", options.wanted_gpu] if options.wanted_gpu else []
        return [*what, *gpu, "--rebuilds", str(self.rebuilds), *file_options(options.project)]


def _at(context: Context, versions: Sequence[Version]) -> Context:
    names = tuple(version.name for version in versions)
    return replace(context, selection=replace(context.selection, versions=names))


class Versions(CaseAsker):
    """matrix.yaml's versions of one product, the oldest first.

    One of which nothing is known yet is searched only where it can be run here, or is named as an end.
    """

    def __init__(self, options: BisectOptions) -> None:
        super().__init__(options, "version")
        known = {cell.version.name for cell in take_survey(self.context, self.pull).cells}
        known |= {end for end in (options.good, options.bad) if end}
        found = [
            each for each in candidates_of(self.context.matrix, options.product) if each[0].name in known
        ]
        self.versions = [version for version, _ in found]
        self.candidates = tuple(candidate for _, candidate in found)

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what records answer, and what reports and older records say."""
        return self.look(self.context, self.versions)

    def ask(self, number: int) -> Reply:
        """Run the case at a version."""
        return self.run_at(self.context, self.versions[number])

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return what runs the case at these versions, and what searches between them report."""
        names = ",".join(self.candidates[number].name for number in report.shown)
        row = [] if self.options.model.model else ["--repro", self.repro.id]
        search = self.options.search_again(self.words(), report, report.name)
        run = f"{DOOR} {shlex.join(['matrix', '--', '--trt', names, *row, *self.words()])}"
        return (run, search) if names else (search,)


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
    outcome = entry.outcome if entry.evidence.is_record else None
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
        if changed != ELSEWHERE or answer is Answer.CANNOT_SAY or not enough:
            return None
    return reply_of(entry, outcome, rebuilds=rebuilds, images=images)


def reply_of(
    entry: Entry, outcome: Outcome, *, rebuilds: int, images: Mapping[str, str], tried: bool = False
) -> Reply:
    """Return what the records of a cell answer."""
    record, answer = entry.record, answer_of(entry, outcome)
    reason, engines, words = outcome.reason, count_engines(entry.records), full_words(outcome)
    if answer is Answer.GOOD and engines < rebuilds:
        few = f"{counted(engines, 'engine')} of the {rebuilds} asked for"
        reason = f"{few}; {reason}" if reason else few
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
        digest=registry_name(images, image_id) if image_id else "",
        library=str(record.observed.get("library") or "") if record else "",
        driver=str(record.gpu.get("driver") or "") if record else "",
    )  # fmt: skip


def candidates_of(matrix: Matrix, product: Product) -> list[tuple[Version, Candidate]]:
    """Return the versions of a product, the oldest first."""
    found = sorted((v for v in matrix.versions if v.product is product), key=lambda version: version.release)
    images = [v.origin.image if isinstance(v.origin, ImageOrigin) else "" for v in found]
    return [(v, Candidate(name=v.name, image=image)) for v, image in zip(found, images, strict=True)]


class UserImages(CaseAsker):
    """Images in the order that they were given, the oldest first."""

    def __init__(self, options: BisectOptions) -> None:
        super().__init__(options, "image")
        self.names = read_images(options)
        self.candidates = tuple(Candidate(name=name, image=name) for name in self.names)
        self._held: dict[int, HeldImage] = {}

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return what records of these very images answer; those that are here are looked into first."""
        engine = find_engine(gpu_here=False)
        if not engine.available:
            raise MachineryError(f"no image can be looked into: {engine.reason}")
        replies: dict[int, Reply] = {}
        for number, name in enumerate(self.names):
            held = find_image(engine.images, name)
            if held is not None:
                self._held[number] = held
                reply = self._of(held, lambda context, version: self.look(context, [version])[0].get(0))
                replies |= {number: reply} if reply else {}
            elif not self.options.pull:
                replies[number] = _silent("not here", "pull it, or say --pull")
        return replies, {}

    def ask(self, number: int) -> Reply:
        """Run the case in an image, which is pulled first where it is not here."""
        if number not in self._held:
            try:
                self._held[number] = pull_by_name(self.names[number])
            except MachineryError as error:
                return replace(_silent("not pulled", str(error).splitlines()[0]), tried=True)
        return self._of(self._held[number], self.run_at) or _silent("not run", "")

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return what searches these images again; an image is named by its digest where it has one."""

        def name(number: int) -> str:
            held = self._held.get(number)
            return held.registry if held and held.registry else self.names[number]

        row = ["--image", *map(name, range(report.search.count))]
        return (self.options.search_again([*self.words(), *row], report, name),)

    def _of(self, held: HeldImage, ask: Callable[[Context, Version], Reply | None]) -> Reply | None:
        """Return what a run in an image answers; its records lie apart, and the CPU checks TensorRT's."""
        context, product = self.context, self.options.product
        version = _version_of(held, product, context.project.cache)
        if isinstance(version, Reply):
            reply: Reply | None = version
        else:
            checks = [v for v in context.matrix.versions if v.product is Product.ONNXRUNTIME]
            versions = (version, *(checks if product is Product.TENSORRT else []))
            sources = {**context.matrix.sources, SOURCE: Source(title="what the image says of itself")}
            results = context.project.cache / FOLDER / held.id.removeprefix("sha256:")[:16]
            matrix = replace(context.matrix, versions=versions, sources=sources)
            project = replace(context.project, results=results)
            reply = ask(replace(context, matrix=matrix, project=project), version)
        return replace(reply, digest=held.registry, image_id=held.id) if reply else None


def _silent(what: str, reason: str) -> Reply:
    return Reply(answer=Answer.CANNOT_SAY, words=what, reason=reason, known="looked at")


def _version_of(held: HeldImage, product: Product, cache: Path) -> Version | Reply:
    """Return the column that an image is, named as the release of the product inside; or why it is none."""
    try:
        found = recall(cache, "contents", held.id, lambda: read_contents(held.id))
    except MachineryError as error:
        return _silent("cannot be run", str(error))
    library = found.get(product.value)
    if library is None:
        has = ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing that is known"
        return _silent(f"no {PRODUCT_NAMES[product]} in it", f"it has {has}")
    if not is_release(library):
        return _silent("unclear version", f"{library} is no release number")
    release = re.sub(r"[^a-z0-9.]+", ".", library.lower()).strip(".")
    facts = {
        name: Fact(value=value, known=Known.INFERRED, source=SOURCE) for name, value in found.items() if value
    }
    return Version(
        version=release if product is Product.TENSORRT else f"{product.value}-{release}", product=product,
        origin=ImageOrigin(image=held.name), library=facts[product.value], torch=facts.get("torch"),
        torch_tensorrt=facts.get("torch_tensorrt"),
    )  # fmt: skip


def read_images(options: BisectOptions) -> tuple[str, ...]:
    """Return the images that were named, in order; :class:`UsageError` where that is not two at least."""
    names = [name for several in options.image for name in several]
    if len(names) < 2 or len(names) > len(set(names)):
        raise UsageError(
            f"--image: {counted(len(set(names)), 'image')}; to search between takes two at least, each once, "
            "the oldest first"
        )
    return tuple(names)


class ShellCommand(Asker):
    """Runs one command for each candidate: the images that were named, else matrix.yaml's versions.

    A version that is of no image is none for a command that names ``{image}``.
    """

    interrupted = "it was interrupted; nothing is stored of a command, so that the same one starts anew"

    def __init__(self, options: BisectOptions) -> None:
        self.options, self.command = options, options.shell_command or ""
        if not self.command.strip():
            raise UsageError("--exec: the command is empty")
        if options.image:
            self.candidates = tuple(Candidate(name=name, image=name) for name in read_images(options))
        else:
            found = candidates_of(read_matrix(options.project.matrix), options.product)
            by_image = "{image}" in self.command
            self.candidates = tuple(each for _, each in found if each.image or not by_image)
        about = "" if options.image else PRODUCT_NAMES[options.product]
        what = "image" if options.image else "version"
        self.subject = Subject(title=self.command, about=about, what=what)

    def ask(self, number: int) -> Reply:
        """Run the command."""
        candidate = self.candidates[number]
        code = run_shell(self.command, candidate)
        answer = read_exit_code(code, candidate.name)
        return Reply(answer=answer, words=f"exit code {code}", known="run now", tried=True)

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return the command itself for each of these, and what searches report."""
        lines = [shlex.join(_words(self.command, self.candidates[number])) for number in report.shown]
        images = ["--image", *(c.name for c in self.candidates)] if self.options.image else []
        words = ["--exec", self.command, *images]
        return (*lines, self.options.search_again(words, report, report.name))


def _words(command: str, candidate: Candidate) -> list[str]:
    """Return what runs a command: it has the name and image, quoted for the shell and as variables."""
    shown = command.replace("{version}", shlex.quote(candidate.name))
    shown = shown.replace("{image}", shlex.quote(candidate.image))
    variables = (f"TRTMATRIX_VERSION={candidate.name}", f"TRTMATRIX_IMAGE={candidate.image}")
    return ["env", *variables, "sh", "-c", shown]


def read_exit_code(code: int, name: str) -> Answer:
    """Return what an exit code says; :class:`MachineryError` for one that ends the search."""
    if code < 0 or code >= ABORT:
        said = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise MachineryError(
            f"{name}: the command ended with {said}, which ends the search (128 and above do)"
        )
    if code == SKIP:
        return Answer.CANNOT_SAY
    return Answer.BAD if code else Answer.GOOD


def run_shell(command: str, candidate: Candidate) -> int:
    """Run a shell command for a candidate to its end; returns its exit code, negative for a signal.

    ``{version}`` and ``{image}`` in it are the candidate's. What it prints goes to standard error.
    """
    inherited = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    return run_to_end(_words(command, candidate), inherited, shown=True)[0]
