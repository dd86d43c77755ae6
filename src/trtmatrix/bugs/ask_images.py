"""Asks what is no version of matrix.yaml: the user's images of a case, or a shell command of the user's."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from trtmatrix.bugs.ask_versions import BisectOptions, CaseRun, Versions, candidates_of, command_line
from trtmatrix.bugs.bisect_report import Candidate, Reply, Report, Subject
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.interrupts import undisturbed
from trtmatrix.common.paths import recall
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.launchers.containers import read_contents
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.launchers.images import pull_by_name
from trtmatrix.plan.context import read_matrix
from trtmatrix.suite.matrix import Fact, ImageOrigin, Source, Version
from trtmatrix.suite.model import Known, Product, is_release
from trtmatrix.suite.plan import HeldImage, find_image
from trtmatrix.upgrade.question import DOOR

FOLDER = "bisect"
"""Where in the cache the records of images lie that matrix.yaml does not name, a folder for each image."""

SOURCE = "image"


class UserImages:
    """Images in the order that they were given, the oldest first."""

    interrupted = Versions.interrupted

    def __init__(self, run: CaseRun, options: BisectOptions) -> None:
        self.run, self.options, self.names = run, options, (names := read_images(options))
        self.product = options.product
        self.candidates = tuple(Candidate(name=name, image=name) for name in names)
        self.subject = run.subject(self.product, "image")
        self.rests_on = f"a good answer rests on {run.rebuilds} builds" if run.rebuilds > 1 else ""
        self._held: dict[int, HeldImage] = {}
        self._cache = run.context.project.cache

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
                version = self._version(held)
                if isinstance(version, Reply):
                    replies[number] = version
                elif found := self._run_of(held, version).look([version])[0].get(version.name):
                    replies[number] = _of_image(found, held)
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
        held = self._held[number]
        version = self._version(held)
        if isinstance(version, Reply):
            return version
        return _of_image(self._run_of(held, version).ask(version), held)

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return what searches these images again; an image is named by its digest where it has one."""

        def name(number: int) -> str:
            held = self._held.get(number)
            return held.registry if held and held.registry else self.names[number]

        row = ["--image", *map(name, range(report.search.count))]
        words = [*self.run.words(self.options), *row, *self.options.ends(report, name)]
        return (command_line([DOOR, "bisect", "--", *words]),)

    def _version(self, held: HeldImage) -> Version | Reply:
        """Return the version of the product that an image has, or why it cannot say."""
        try:
            found = recall(self._cache, "contents", held.id, lambda: read_contents(held.id))
        except MachineryError as error:
            return _of_image(_silent("cannot be run", str(error)), held)
        library = found.get(self.product.value)
        if library is None:
            has = ", ".join(f"{name} {version}" for name, version in found.items()) or "nothing that is known"
            return _of_image(_silent(f"no {PRODUCT_NAMES[self.product]} in it", f"it has {has}"), held)
        if not is_release(library):
            return _of_image(_silent("unclear version", f"{library} is no release number"), held)
        return make_version(self.product, library, held.name, found)

    def _run_of(self, held: HeldImage, version: Version) -> CaseRun:
        """Return the run in one image: its own records, beside the versions that control TensorRT's cells."""
        context = self.run.context
        checks = [v for v in context.matrix.versions if v.product is Product.ONNXRUNTIME]
        versions = (version, *(checks if self.product is Product.TENSORRT else []))
        sources = {**context.matrix.sources, SOURCE: Source(title="what the image says of itself")}
        results = context.project.cache / FOLDER / held.id.removeprefix("sha256:")[:16]
        matrix = replace(context.matrix, versions=versions, sources=sources)
        project = replace(context.project, results=results)
        return replace(self.run, context=replace(context, matrix=matrix, project=project))


def _silent(what: str, reason: str) -> Reply:
    return Reply(answer=Answer.CANNOT_SAY, words=what, reason=reason, known="looked at")


def _of_image(reply: Reply, held: HeldImage) -> Reply:
    return replace(reply, image=held.registry, image_id=held.id)


def make_version(product: Product, library: str, image: str, found: Mapping[str, str]) -> Version:
    """Return the column that an image is; its name is that of the release inside."""
    release = re.sub(r"[^a-z0-9.]+", ".", library.lower()).strip(".")
    prefix = "" if product is Product.TENSORRT else f"{product.value}-"

    def fact(value: str | None) -> Fact | None:
        return Fact(value=value, known=Known.INFERRED, source=SOURCE) if value else None

    return Version(
        version=prefix + release, product=product, origin=ImageOrigin(image=image),
        torch=fact(found.get("torch")), torch_tensorrt=fact(found.get("torch_tensorrt")),
        library=Fact(value=library, known=Known.INFERRED, source=SOURCE),
    )  # fmt: skip


def read_images(options: BisectOptions) -> tuple[str, ...]:
    """Return the images that were named, in order; :class:`UsageError` where that is not two at least."""
    names = [name for several in options.image for name in several]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--image: {twice} stands twice: a row has each image once")
    if len(names) < 2:
        raise UsageError("--image: 1 image; to search between takes two at least, oldest first")
    return tuple(names)


PATIENCE_SECONDS = 10.0
"""How long a command may clean up when the search is interrupted."""

SKIP, ABORT = 125, 128
"""Exit codes as ``git bisect run`` reads them: https://git-scm.com/docs/git-bisect#_bisect_run."""

STDERR = 2


class Command:
    """Runs one command for each candidate."""

    interrupted = "it was interrupted; nothing is stored of a command, so that the same one starts anew"

    def __init__(self, options: BisectOptions, candidates: tuple[Candidate, ...]) -> None:
        self.options, self.candidates, self.command = options, candidates, options.shell_command or ""
        about = "" if options.image else PRODUCT_NAMES[options.product]
        what = "image" if options.image else "version"
        self.subject = Subject(title=self.command, about=about, what=what)
        self.rests_on = ""

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return nothing: no answer of a command is stored."""
        return {}, {}

    def ask(self, number: int) -> Reply:
        """Run the command."""
        candidate = self.candidates[number]
        code = run_shell(fill(self.command, candidate), candidate)
        answer = read_exit_code(code, candidate.name)
        return Reply(answer=answer, words=f"exit code {code}", known="run now", tried=True)

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return the command itself for each of these, and what searches report."""
        shown = [self.candidates[number] for number in report.shown]
        lines = [shlex.join(["env", *_variables(c), "sh", "-c", fill(self.command, c)]) for c in shown]
        images = ["--image", *(c.name for c in self.candidates)] if self.options.image else []
        words = ["--exec", self.command, *images, *self.options.ends(report, report.name)]
        return (*lines, command_line([DOOR, "bisect", "--", *words]))


def fill(command: str, candidate: Candidate) -> str:
    """Put a candidate's name and image in place of ``{version}`` and ``{image}``, quoted for the shell."""
    shown = command.replace("{version}", shlex.quote(candidate.name))
    return shown.replace("{image}", shlex.quote(candidate.image))


def _variables(candidate: Candidate) -> list[str]:
    return [f"TRTMATRIX_VERSION={candidate.name}", f"TRTMATRIX_IMAGE={candidate.image}"]


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
    """Run a shell command to its end; returns its exit code, negative where a signal ended it.

    It has a session of its own: an interrupt ends all that it started, first by the signal that lets it clean
    up. What it prints goes to standard error.
    """
    ours = dict(word.split("=", 1) for word in _variables(candidate))
    inherited = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    child = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=STDERR, env={**inherited, **ours},
        start_new_session=True,
    )  # fmt: skip
    try:
        return child.wait()
    except BaseException:
        with undisturbed():
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=PATIENCE_SECONDS)
        raise


def open_command(options: BisectOptions) -> Command:
    """Return the row that the command is run for: the images that were named, else matrix.yaml's versions.

    A version that is of no image is none for a command that names ``{image}``.
    """
    if not (options.shell_command or "").strip():
        raise UsageError("--exec: the command is empty")
    if options.image:
        return Command(options, tuple(Candidate(name=name, image=name) for name in read_images(options)))
    found = candidates_of(read_matrix(options.project.matrix), options.product)
    by_image = "{image}" in (options.shell_command or "")
    return Command(options, tuple(each for _, each in found if each.image or not by_image))
