"""Asks versions or images by a shell command of the user's, whose exit code answers, as for git bisect."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping

from trtmatrix.bugs.ask_images import read_images
from trtmatrix.bugs.ask_versions import candidates_of, command_line
from trtmatrix.bugs.bisect_report import Candidate, Reply, Report, Subject
from trtmatrix.bugs.search import Answer
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.interrupts import undisturbed
from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.plan.context import read_matrix
from trtmatrix.suite.model import Product
from trtmatrix.upgrade.question import DOOR

PATIENCE_SECONDS = 10.0
"""How long a command may clean up when the search is interrupted."""

SKIP, ABORT = 125, 128
"""Exit codes as ``git bisect run`` reads them: https://git-scm.com/docs/git-bisect#_bisect_run."""

SHELL_CODES = {126: "the shell could not execute it", 127: "the shell did not find it"}
"""What those mean of a shell: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html."""

STDERR = 2


class Command:
    """Runs one command for each candidate."""

    interrupted = "it was interrupted; nothing is stored of a command, so that the same one starts anew"

    def __init__(self, args: argparse.Namespace, candidates: tuple[Candidate, ...], what: str) -> None:
        self.args, self.candidates, self.command = args, candidates, str(args.shell_command)
        about = PRODUCT_NAMES[Product(args.product)] if what == "version" else ""
        self.subject = Subject(title=self.command, about=about, what=what)
        self.times = 1 if args.rebuilds is None else args.rebuilds
        self.rests_on = f"a good answer rests on {self.times} runs" if self.times > 1 else ""

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return those that the command cannot be run for: it names an image, and there is none."""
        why = "the command names {image}, and this version is of no image"
        silent = Reply(answer=Answer.CANNOT_SAY, words="not run", reason=why, known="looked at")
        lacking = [n for n, c in enumerate(self.candidates) if not c.image and "{image}" in self.command]
        return dict.fromkeys(lacking, silent), {}

    def ask(self, number: int) -> Reply:
        """Run the command, again until it has been right as often as is asked for."""
        candidate = self.candidates[number]
        for time in range(1, self.times + 1):
            code = run_shell(fill(self.command, candidate), candidate)
            answer = read_exit_code(code, candidate.name)
            if answer is not Answer.GOOD:
                of = f" in run {time} of {self.times}" if self.times > 1 else ""
                return _reply(answer, f"exit code {code}{of}", SHELL_CODES.get(code, ""))
        return _reply(Answer.GOOD, "exit code 0" + (f" {time} times" if time > 1 else ""))

    def commands(self, report: Report) -> tuple[str, ...]:
        """Return the command itself for each of these, and what searches report."""
        shown = [self.candidates[number] for number in report.shown]
        lines = [shlex.join(["env", *_variables(c), "sh", "-c", fill(self.command, c)]) for c in shown]
        by_image = self.subject.what == "image"
        words = ["--exec", self.command, *(["--image", *(c.name for c in self.candidates)] * by_image)]
        words += report.ends(lambda number: self.candidates[number].name)
        words += [] if by_image or self.args.product == "tensorrt" else ["--product", self.args.product]
        words += [] if self.times == 1 else ["--rebuilds", str(self.times)]
        return (*lines, command_line([DOOR, "bisect", "--", *words]))


def _reply(answer: Answer, said: str, reason: str = "") -> Reply:
    return Reply(answer=answer, words=said, reason=reason, known="run now", tried=True)


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


def open_command(args: argparse.Namespace) -> Command:
    """Return the row that the command is run for: the images that were named, else matrix.yaml's versions."""
    if not args.shell_command.strip():
        raise UsageError("--exec: the command is empty")
    if args.image:
        return Command(args, tuple(Candidate(name=name, image=name) for name in read_images(args)), "image")
    product = Product(args.product)
    versions = tuple(candidate for _, candidate in candidates_of(read_matrix(args.matrix), product))
    if len(versions) < 2:
        count = "1 version" if versions else "no version"
        raise UsageError(
            f"--product {product.value}: {args.matrix} has {count} of it, and to search takes two at least: "
            "name --image"
        )
    return Command(args, versions, "version")
