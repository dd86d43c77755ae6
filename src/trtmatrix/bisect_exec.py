"""Asks versions or images by a shell command of the user's, whose exit code answers, as for git bisect."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from trtmatrix.bisect_versions import words
from trtmatrix.bisecting import SearchEnd
from trtmatrix.core.bisect import Answer
from trtmatrix.core.bisect_report import Again, Candidate, Reply, Subject
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.image_names import HeldImage, find_image
from trtmatrix.core.model import Product
from trtmatrix.core.upgrade.question import DOOR
from trtmatrix.core.words import PRODUCT_NAMES

PATIENCE_SECONDS = 10.0
"""How long a command may clean up when the search is interrupted."""

SKIP, ABORT = 125, 128
"""Exit codes as ``git bisect run`` reads them: https://git-scm.com/docs/git-bisect#_bisect_run."""

_SHELL_CODES = {126: "the shell could not execute it", 127: "the shell did not find it"}
"""What those mean of a shell: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html."""


_STDERR = 2

INTERRUPTED = "it was interrupted; nothing is stored of a command, so that the same one starts anew"


class Commands:
    """Runs one command for each candidate."""

    interrupted = INTERRUPTED

    def __init__(self, args: argparse.Namespace, candidates: tuple[Candidate, ...], what: str) -> None:
        """Keep the command, and the row that it is run for."""
        self.args, self.candidates = args, candidates
        self.command: str = args.shell_command
        product = PRODUCT_NAMES[Product(args.product)] if what == "version" else ""
        self.subject = Subject(title=self.command, product=product, what=what)
        self.times = 1 if args.rebuilds is None else args.rebuilds
        self.rests_on = f"a good answer rests on {self.times} runs" if self.times > 1 else ""
        self._held: dict[int, HeldImage] = {}

    def known(self) -> tuple[Mapping[int, Reply], Mapping[int, Answer]]:
        """Return those that the command cannot be run for: it names an image, and there is none."""
        self._look()
        why = "the command names {image}, and this version is of no image"
        return {
            number: Reply(answer=Answer.CANNOT_SAY, words="not run", reason=why, known="looked at")
            for number, candidate in enumerate(self.candidates)
            if not candidate.image and "{image}" in self.command
        }, {}

    def _look(self) -> None:
        """Find the images that are here; without an engine the command has to do without."""
        from trtmatrix.effects.engine import find_engine

        images = find_engine(gpu_here=False).images
        found = {n: find_image(images, c.image) for n, c in enumerate(self.candidates) if c.image}
        self._held = {number: held for number, held in found.items() if held is not None}

    def here(self) -> frozenset[int]:
        """Return those whose image is here."""
        return frozenset(self._held)

    def ask(self, number: int) -> Reply:
        """Run the command, again until it has been right as often as is asked for."""
        candidate = self.candidates[number]
        if self.args.pull and candidate.image and number not in self._held:
            from trtmatrix.bisect_images import pull_image

            try:
                self._held[number] = pull_image(candidate.image)
            except MachineryError as error:
                return self._reply(number, Answer.CANNOT_SAY, "not pulled", str(error).splitlines()[0])
        return self._judge(number)

    def _judge(self, number: int) -> Reply:
        for time in range(1, self.times + 1):
            code = run_shell(fill(self.command, self.candidates[number]), self.candidates[number])
            answer = read_exit_code(code, self.candidates[number].name)
            if answer is not Answer.GOOD:
                of = f" in run {time} of {self.times}" if self.times > 1 else ""
                return self._reply(number, answer, f"exit code {code}{of}", _SHELL_CODES.get(code, ""))
        return self._reply(number, Answer.GOOD, "exit code 0" + (f" {time} times" if time > 1 else ""))

    def _reply(self, number: int, answer: Answer, said: str, reason: str = "") -> Reply:
        self._look()  # the command may have pulled it
        held = self._held.get(number)
        return Reply(
            answer=answer, words=said, reason=reason, known="run now", tried=True,
            image=held.registry if held else "", image_id=held.id if held else "",
        )  # fmt: skip

    def commands(self, again: Again) -> tuple[str, ...]:
        """Return the command itself for each of these, and what searches again."""
        shown = [self.candidates[number] for number in again.shown]
        lines = [shlex.join(["env", *_variables(c), "sh", "-c", fill(self.command, c)]) for c in shown]
        names = [self.candidates[number].name for number in again.row]
        by_image = self.subject.what == "image"
        row = [word for name in names for word in ("--image", name) if by_image]
        ends = again.ends(lambda number: self.candidates[number].name)
        times = [] if self.times == 1 else ["--rebuilds", str(self.times)]
        product = [] if by_image or self.args.product == "tensorrt" else ["--product", self.args.product]
        search = [DOOR, "bisect", "--", "--exec", self.command, *row, *ends, *product, *times]
        return (*lines, words(search))


def fill(command: str, candidate: Candidate) -> str:
    """Put a candidate's name and image in place of ``{version}`` and ``{image}``, quoted for the shell."""
    shown = command.replace("{version}", shlex.quote(candidate.name))
    return shown.replace("{image}", shlex.quote(candidate.image))


def _variables(candidate: Candidate) -> list[str]:
    return [f"TRTMATRIX_VERSION={candidate.name}", f"TRTMATRIX_IMAGE={candidate.image}"]


def read_exit_code(code: int, name: str) -> Answer:
    """Return what an exit code says; :class:`SearchEnd` for one that ends the search."""
    if code < 0 or code >= ABORT:
        words = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise SearchEnd(f"{name}: the command ended with {words}, which ends the search (128 and above do)")
    if code == SKIP:
        return Answer.CANNOT_SAY
    return Answer.BAD if code else Answer.GOOD


def run_shell(command: str, candidate: Candidate) -> int:
    """Run a shell command to its end; returns its exit code, negative where a signal ended it.

    It has a session of its own: an interrupt ends all that it started. What it prints goes to standard error.
    """
    ours = dict(word.split("=", 1) for word in _variables(candidate))
    inherited = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    child = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=_STDERR, env={**inherited, **ours},
        start_new_session=True,
    )  # fmt: skip
    try:
        return child.wait()
    except BaseException:
        _end_group(child)
        raise


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End a session: first by the signal that lets it clean up, then by the one that does not.

    No second interrupt cuts that short.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=PATIENCE_SECONDS)


def open_commands(args: argparse.Namespace) -> Commands:
    """Return the row that the command is run for: the images that were named, else matrix.yaml's versions."""
    if not args.shell_command.strip():
        raise UsageError("--exec: the command is empty")
    if args.image or args.images:
        from trtmatrix.bisect_images import read_images

        named = tuple(Candidate(name=name, image=name) for name in read_images(args))
        return Commands(args, named, "image")
    versions = _read_versions(args.matrix, Product(args.product))
    return Commands(args, versions, "version")


def _read_versions(matrix: Path, product: Product) -> tuple[Candidate, ...]:
    from trtmatrix.bisect_versions import candidates_of
    from trtmatrix.context import read_matrix

    candidates = tuple(candidate for _, candidate in candidates_of(read_matrix(matrix), product))
    if len(candidates) < 2:
        count = "1 version" if candidates else "no version"
        raise UsageError(
            f"--product {product.value}: {matrix} has {count} of it, and to search takes two at least: "
            "name --image"
        )
    return candidates
