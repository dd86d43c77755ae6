"""The command bisect: finds the versions or images where a failure came in and where it was fixed.

Candidates are matrix.yaml's versions or images of a case, or are asked by a shell command of the user's.
Stored records answer first, then a run.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtmatrix.bugs.redact import Redactor
from trtmatrix.bugs.search import (
    Answer,
    Reply,
    Search,
    bisect_json,
    render_bisect_markdown,
    render_bisect_text,
)
from trtmatrix.bugs.verify import tell
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.options import flag, read_count, value
from trtmatrix.common.paths import check_outputs, recall, write_output
from trtmatrix.common.processes import run_to_end
from trtmatrix.common.text import counted
from trtmatrix.judge.compare import count_engines
from trtmatrix.judge.entry import PRODUCT_NAMES, Entry, full_words
from trtmatrix.launchers.containers import pull_by_name, read_contents
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.launchers.gpu import find_gpus
from trtmatrix.model.own_model import ModelOptions, notes_of, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context, read_matrix
from trtmatrix.plan.order import ELSEWHERE, find_reason
from trtmatrix.plan.survey import choose_gpu, digests_now, entries_of, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.run.perform import Options, perform
from trtmatrix.suite.cells import CONTROLS, Selection, select_cases, unlisted_version
from trtmatrix.suite.matrix import Fact, ImageOrigin, Matrix, Version
from trtmatrix.suite.model import (
    CPU,
    Cause,
    Evidence,
    Known,
    Outcome,
    Product,
    Verdict,
    is_release,
)
from trtmatrix.suite.plan import HeldImage, Isolation, Pull, find_image, registry_name
from trtmatrix.upgrade.question import DOOR, file_options, model_options

FOLDER = "bisect"
"""Where in the cache the records of images lie that matrix.yaml does not name, a folder for each image."""

CELL = 56
"""Letters of a cell of the table in a terminal; in a pipe or file there may be 300."""

SKIP, ABORT = 125, 128
"""Exit codes as ``git bisect run`` reads them: https://git-scm.com/docs/git-bisect#_bisect_run."""


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """Those of ``bisect``."""

    project: ProjectOptions
    model: ModelOptions
    wanted_case: str | None = value("--case CASE", "REPRO/CASE, or CASE if only one repro has it")
    shell_command: str | None = value("--exec COMMAND", "instead of a case: a shell command to run for each "
        "version ({version}, {image} are replaced); exit codes: 0 good, 1 to 124, 126 and 127 bad, 125 "
        "cannot say, 128 and above ends the search")  # fmt: skip
    good: str | None = value("--good VERSION", "a version that is right (default: found by search)")
    bad: str | None = value("--bad VERSION", "a version that fails (default: found by search)")
    wanted_gpu: str | None = value("--gpu GPU", "a GPU by name (default: the one in this host)")
    product: Product = value("--product", default=Product.TENSORRT)
    image: tuple[str, ...] = value("--image IMAGE", "images, oldest first, instead of matrix.yaml's versions",
        nargs="+", action="extend", default=())  # fmt: skip
    rebuilds: int | None = value("--rebuilds K", "engines to build before a version counts as good (default: "
        "3)", type=read_count)  # fmt: skip
    no_run: bool = flag("--no-run", "use stored records; run nothing")
    pull: bool = flag("--pull", "pull or build images that are not here")
    output: Path | None = value("--output -o FILE.md", "also write the report")
    json: bool = flag("--json", "print JSON")

    def named_images(self) -> tuple[str, ...]:
        """Return the images that were named, in order; :class:`UsageError` where these are not two."""
        if len(self.image) < 2 or len(self.image) > len(set(self.image)):
            raise UsageError("--image: to search between takes two images at least, each once, oldest first")
        return self.image

    def search_again(self, words: Sequence[str], search: Search) -> str:
        """Return the command that searches between the ends that were found, else named."""
        words = ["bisect", "--", *words]
        words += ["--image", *self.image] if self.image else []
        ends = next(iter(search.edges), search)
        for option, end in (("--good", ends.good), ("--bad", ends.bad)):
            words += [] if end is None else [option, search.name(end)]
        words += [] if self.product is Product.TENSORRT else ["--product", self.product.value]
        return f"{DOOR} {shlex.join(words)}"


def bisect_command(options: BisectOptions) -> ExitCode:
    """Search, and print the report; the exit code says whether an edge was found."""
    command = options.shell_command
    sought = {"--case": options.wanted_case, "--exec": command, "--model": options.model.model}
    asked = [name for name, value in sought.items() if value is not None]
    if len(asked) != 1:
        what = f"{' and '.join(asked)} are two things" if asked else "nothing is looked for"
        raise UsageError(f"{what}: name one of --case CASE, --model FILE.onnx, --exec COMMAND")
    stored = (options.no_run, options.wanted_gpu, options.pull, options.rebuilds)
    if command is not None and any(stored):
        raise UsageError("--exec goes with neither --no-run, --gpu, --pull nor --rebuilds: nothing is stored")
    if options.good is not None and options.good == options.bad:
        raise UsageError(f"--good and --bad are both {options.good}: name two")
    check_outputs([options.output] if options.output else [], (".md",))
    kind = UserImages if options.image else Versions
    asker = kind(options) if command is None else ShellCommand(options)
    search = asker.search
    names = list(search.candidates)
    ends = {"--good": options.good, "--bad": options.bad}
    for option, name in ends.items():
        if name is not None and name not in names:
            raise UsageError(unlisted_version(option, name, names))
    search.good, search.bad = (None if name is None else names.index(name) for name in ends.values())
    code = run_search(asker, can_run=not options.no_run)
    if options.output is not None:  # it is meant for others: what is private here goes, and is told
        project, name = options.project, str(options.output)
        files = (project.matrix, project.repros, project.results, project.cache and project.cache / "x")
        kept = [*search.candidates, *(reply.library for reply in search.replies.values())]
        redactor = Redactor.of_host(files, kept)
        write_output(options.output, redactor.clean(name, render_bisect_markdown(search)))
        if redactor.taken:
            tell(f"bisect: {name}: taken out as private: {redactor.told(name)}")
    text = render_bisect_text(search, CELL) if sys.stdout.isatty() else render_bisect_text(search)
    text = bisect_json(search) if options.json else text
    print(text, end="", flush=True)
    return code


def run_search(asker: Versions | ShellCommand, *, can_run: bool) -> ExitCode:
    """Ask until nothing is to be learnt; an interrupt keeps what is known."""
    search, code, number = asker.search, ExitCode.SURPRISE, None
    try:
        known, search.hints = asker.known()
        search.replies.update(known)
        said = sum(reply.answer is not Answer.CANNOT_SAY for reply in known.values())
        tell(f"bisect: {len(search.candidates)} {search.what}s; {said} of them answered by what is stored")
        while (number := search.next_try()) is not None:
            reply = Reply(answer=Answer.CANNOT_SAY, words="no record", known="not run (--no-run)")
            if can_run:
                tell(f"bisect: {search.name(number)}: asked")
                reply = asker.ask(number)
                tell(f"bisect: {search.name(number)}: {reply.answer.value} ({reply.why})")
            search.replies[number] = reply
    except KeyboardInterrupt:
        search.cut_short, code = asker.interrupted, ExitCode.INTERRUPTED
    except MachineryError as error:
        search.cut_short, code = str(error), error.exit_code
    if not search.cut_short and search.is_found:
        code = ExitCode.AS_EXPECTED
    search.commands = asker.commands()
    return code


class Versions:
    """A case on one GPU at matrix.yaml's versions of one product: what is stored, and a run.

    A version of which nothing is known yet is searched only where it can be run here, or is named as an end.
    ``interrupted``: what is said of a search that was.
    """

    interrupted = "it was interrupted; the same command goes on from what is stored"

    def __init__(self, options: BisectOptions) -> None:
        """Find the case that was named, the GPU that is meant and the versions."""
        self.options, self.rebuilds = options, 3 if options.rebuilds is None else options.rebuilds
        self.pull = Pull.NAMED if options.pull else Pull.NEVER
        product, wanted = options.product, options.wanted_case
        context = open_model(open_context(options.project), options.model)
        if options.model.model is not None:
            for told in notes_of(context):
                print(f"{options.model.model.name}: {told}", file=sys.stderr)
        repros = [repro for repro in context.plain_repros if wanted is not None or repro.id != CONTROLS]
        found = select_cases(repros, Selection(cases=(wanted,) if wanted else ()))
        names = [f"{repro.id}/{case.id}" for repro, case in found]
        if wanted and len(found) > 1:
            raise UsageError(f"--case {wanted}: name one of {', '.join(names)}")
        self.id, (repro, case) = names[0], found[0]
        if product not in case.products:
            able = " or ".join(f"--product {p.value}" for p in Product if p in case.products)
            raise UsageError(f"{self.id} is not run by {PRODUCT_NAMES[product]}: say {able}")
        gpu, named, place = CPU, [options.wanted_gpu] if options.wanted_gpu else [], "the CPU"
        if product is Product.TENSORRT:
            gpu = choose_gpu(named, find_gpus().gpus, read_records(context.project.results))
            place = gpu.name + (f" (driver {gpu.driver})" if gpu.driver else "")
        elif named:
            raise UsageError(f"--gpu {named[0]}: {PRODUCT_NAMES[product]} is run on the CPU here")
        gpus = () if gpu == CPU else (gpu.slug,)
        selection = replace(context.selection, versions=(), repros=(repro.id,), cases=(self.id,), gpus=gpus)
        self.context = replace(context, selection=selection)
        about = filter(None, (repro.title, repro.upstream, f"{PRODUCT_NAMES[product]} on {place}"))
        self.search = Search(
            candidates=self._candidates(), title=self.id, about=", ".join(about),
            what="image" if options.image else "version",
            rests_on=f"a good answer rests on {self.rebuilds} builds" * (self.rebuilds > 1),
        )  # fmt: skip

    def _candidates(self) -> tuple[str, ...]:
        known = {cell.version.name for cell in take_survey(self.context, self.pull).cells}
        known |= {end for end in (self.options.good, self.options.bad) if end}
        return tuple(name for name in images_of(self.context.matrix, self.options.product) if name in known)

    def known(self) -> tuple[dict[int, Reply], dict[int, Answer]]:
        """Return what records answer, and what reports and older records let expect."""
        return self._look(self.context, self.search.candidates)

    def ask(self, number: int) -> Reply:
        """Run the case at a version."""
        return self._run(self.context, self.search.name(number))

    def commands(self) -> tuple[str, ...]:
        """Return what runs the case at the ends of the edges, else at all that were run; what searches again.

        The search's options name the case, the GPU, the builds and the files.
        """
        options, edges = self.options, self.search.edges
        words = model_options(options.model) if options.model.model else ["--case", self.id]
        words += ["--gpu", options.wanted_gpu] if options.wanted_gpu else []
        words += ["--rebuilds", str(self.rebuilds), *file_options(options.project)]
        again = options.search_again(words, self.search)
        shown = sorted({end for edge in edges for end in (edge.good, edge.bad)}) or self.search.tried
        if options.image or not shown:
            return (again,)
        row = [] if options.model.model else ["--repro", self.id.partition("/")[0]]
        names = ",".join(map(self.search.name, shown))
        return (f"{DOOR} {shlex.join(['matrix', '--', '--trt', names, *row, *words])}", again)

    def _look(self, context: Context, versions: Sequence[str]) -> tuple[dict[int, Reply], dict[int, Answer]]:
        """Return by place what records of versions answer, and what is only reported."""
        context = replace(context, selection=replace(context.selection, versions=tuple(versions)))
        survey = take_survey(context, self.pull)
        current, images = digests_now(context, survey), survey.host.engine.images
        entries = self._mine(entries_of(context, survey, survey.stored))
        replies, hints = dict[int, Reply](), dict[int, Answer]()
        for place, entry in enumerate(map(entries.get, versions)):
            if entry is None:
                continue
            can_run, now = not self.options.no_run and entry.excluded is None, current[entry.cell.id]
            if reply := stored_reply(entry, self.rebuilds, can_run=can_run, current=now, images=images):
                replies[place] = reply
            if entry.outcome and (hint := answer_of(entry, entry.outcome)) is not Answer.CANNOT_SAY:
                hints[place] = hint
        return replies, hints

    def _run(self, context: Context, version: str) -> Reply:
        """Run the case at a version, with as many engines as a good answer needs, in one container.

        In a process of its own: what another cell left, or was remembered of one, is no build. Without the
        controls and the other products that go along with a run: they answer nothing here.
        """
        selection = replace(context.selection, versions=(version,))
        context = replace(context, selection=selection, controls=False)
        survey = take_survey(context, self.pull)
        result = perform(context, survey, Options(rebuilds=self.rebuilds, isolation=Isolation.PROCESS))
        entry = self._mine(result.entries).get(version)
        if entry is None or entry.outcome is None or entry.evidence is not Evidence.MEASURED:
            why = [item.detail or item.why.value for item in result.not_ready]
            why += [entry.excluded.detail if entry and entry.excluded else "it left no record"]
            return _not_run(why[0])
        images = survey.host.engine.images
        return reply_of(entry, entry.outcome, self.rebuilds, images=images, tried=True)

    def _mine(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        return {
            entry.cell.version.name: entry for entry in entries
            if f"{entry.cell.repro.id}/{entry.cell.case.id}" == self.id and not entry.cell.companion
        }  # fmt: skip


def _not_run(reason: str, *, tried: bool = True) -> Reply:
    known = "tried now" if tried else ""
    return Reply(answer=Answer.CANNOT_SAY, words="not run", reason=reason, known=known, tried=tried)


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
    entry: Entry, rebuilds: int, *, can_run: bool, current: Mapping[str, str], images: Mapping[str, str]
) -> Reply | None:
    """Return what a cell answers without running it, or None where it is to be run.

    A record answers where it would not be measured again: it is current, or was published and nothing has
    changed since; a PASS also needs as many engines as are asked for. Where the cell cannot run here, what is
    recorded answers, and without a record it cannot say. ``current``: the digests that a record must have.
    """
    outcome = entry.outcome if entry.evidence.is_record else None
    if outcome is None:
        why = f"; {entry.excluded.why.value}" if entry.excluded else ""
        return None if can_run else _not_run(f"no record{why}", tried=False)
    answer = answer_of(entry, outcome)
    changed = find_reason(entry, rebuilds=rebuilds if answer is Answer.GOOD else 1, current=current)
    if can_run and changed is not None:
        enough = answer is Answer.BAD or count_engines(entry.records) >= rebuilds
        if changed != ELSEWHERE or answer is Answer.CANNOT_SAY or not enough:
            return None
    return reply_of(entry, outcome, rebuilds, images=images)


def reply_of(
    entry: Entry, outcome: Outcome, rebuilds: int, *, images: Mapping[str, str], tried: bool = False
) -> Reply:
    """Return what the records of a cell answer."""
    record, answer = entry.records[0], answer_of(entry, outcome)
    reason, engines = outcome.reason, count_engines(entry.records)
    if answer is Answer.GOOD and engines < rebuilds:
        few = f"{counted(engines, 'engine')} of the {rebuilds} asked for"
        reason = f"{few}; {reason}" if reason else few
    here = entry.evidence is Evidence.MEASURED
    where = "measured here" if here else "recorded elsewhere or before a change"
    in_container = record.digests.get("runtime", "container") == "container"
    image = str(record.digests.get("image", "")) if in_container else ""
    return Reply(
        answer=answer, words=full_words(outcome), figure=entry.figure, reason=reason, tried=tried,
        known="run now" if tried else f"stored record of {record.started[:10]}, {where}",
        image=registry_name(images, image) or image, library=str(record.observed.get("library") or ""),
        driver=str(record.gpu.get("driver") or ""),
    )  # fmt: skip


def images_of(matrix: Matrix, product: Product) -> dict[str, str]:
    """Return the versions of a product, the oldest first, with the image of each, or nothing."""
    found = sorted((v for v in matrix.versions if v.product is product), key=lambda version: version.release)
    return {v.name: v.origin.image if isinstance(v.origin, ImageOrigin) else "" for v in found}


class UserImages(Versions):
    """A case in images in the order that they were given, the oldest first."""

    def _candidates(self) -> tuple[str, ...]:
        return self.options.named_images()

    def known(self) -> tuple[dict[int, Reply], dict[int, Answer]]:
        """Return what records of these very images answer; those that are here are looked into first."""
        engine = find_engine(gpu_here=False)
        if not engine.available:
            raise MachineryError(f"no image can be looked into: {engine.reason}")
        replies = dict[int, Reply]()
        for number, name in enumerate(self.search.candidates):
            held = find_image(engine.images, name)
            try:
                if held is not None:
                    context, version = self._open(held)
                    if reply := self._look(context, [version])[0].get(0):
                        replies[number] = reply
                elif not self.options.pull:
                    replies[number] = _not_run("it is not here: pull it, or say --pull", tried=False)
            except MachineryError as error:
                replies[number] = _not_run(str(error), tried=False)
        return replies, {}

    def ask(self, number: int) -> Reply:
        """Run the case in an image, which is pulled first where it is not here."""
        name = self.search.name(number)
        try:
            held = find_image(find_engine(gpu_here=False).images, name) or pull_by_name(name)
            context, version = self._open(held)
        except MachineryError as error:
            return _not_run(str(error).splitlines()[0])
        return self._run(context, version)

    def _open(self, held: HeldImage) -> tuple[Context, str]:
        """Return the context whose only version is an image, and its name: the release of the product inside.

        Its records lie apart. :class:`MachineryError` says why it is none.
        """
        product, project = self.options.product, self.context.project
        found = recall(project.cache, "contents", held.id, lambda: read_contents(held.id))
        library = found.get(product.value, "")
        if not is_release(library):
            has = ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing that is known"
            raise MachineryError(f"no release of {PRODUCT_NAMES[product]} in it: it has {has}")
        release = re.sub(r"[^a-z0-9.]+", ".", library.lower()).strip(".")
        facts = {n: Fact(value=v, known=Known.INFERRED, source="the image") for n, v in found.items() if v}
        version = Version(
            version=release if product is Product.TENSORRT else f"{product.value}-{release}", product=product,
            origin=ImageOrigin(image=held.name), library=facts[product.value], torch=facts.get("torch"),
            torch_tensorrt=facts.get("torch_tensorrt"),
        )  # fmt: skip
        results = project.cache / FOLDER / held.id.removeprefix("sha256:")[:16]
        matrix = replace(self.context.matrix, versions=(version,))
        return replace(self.context, matrix=matrix, project=replace(project, results=results)), version.name


class ShellCommand:
    """Runs one command for each candidate: the images that were named, else matrix.yaml's versions.

    A version that is of no image is none for a command that names ``{image}``.
    """

    interrupted = "it was interrupted; nothing is stored of a command, so that the same one starts anew"

    def __init__(self, options: BisectOptions) -> None:
        self.options, self.command = options, options.shell_command or ""
        if options.image:
            self.images = {name: name for name in options.named_images()}
        else:
            found = images_of(read_matrix(options.project.matrix), options.product)
            self.images = {n: image for n, image in found.items() if image or "{image}" not in self.command}
        about, what = ("", "image") if options.image else (PRODUCT_NAMES[options.product], "version")
        self.search = Search(candidates=tuple(self.images), title=self.command, about=about, what=what)

    def known(self) -> tuple[dict[int, Reply], dict[int, Answer]]:
        """Return nothing: no answer of a command is stored."""
        return {}, {}

    def ask(self, number: int) -> Reply:
        """Run the command; :class:`MachineryError` where its exit code ends the search.

        ``{version}`` and ``{image}`` in it are replaced, quoted for the shell; they are variables, too. What
        it prints goes to standard error.
        """
        name, shown = self.search.name(number), self.command
        variables = {key: text for key, text in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
        for word, text in (("version", name), ("image", self.images[name])):
            shown = shown.replace(f"{{{word}}}", shlex.quote(text))
            variables[f"TRTMATRIX_{word.upper()}"] = text
        code, _ = run_to_end(["sh", "-c", shown], variables, shown=True)
        if not 0 <= code < ABORT:
            said = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise MachineryError(
                f"{name}: the command ended with {said}, which ends the search (128 and above do)"
            )
        answer = Answer.CANNOT_SAY if code == SKIP else Answer.BAD if code else Answer.GOOD
        return Reply(answer=answer, words=f"exit code {code}", known="run now", tried=True)

    def commands(self) -> tuple[str, ...]:
        """Return what searches again between these ends."""
        return (self.options.search_again(["--exec", self.command], self.search),)
