"""The command minimise: the smallest graph of a failing cell that still fails in the same way.

Nodes are taken away by Polygraphy's reducer, samples here. Each smaller model is run at
the cell's version as any model of one's own, its reference computed anew, and kept only where it fails in the
same way and, with ``--good``, where that version is right. What is asked stays open over all of that.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trtmatrix.bugs.cell import find_cell, read_cell_id
from trtmatrix.bugs.manner import Kind, Manner, same_manner
from trtmatrix.bugs.reducer import check_installed, fold_to_static, reduce_nodes
from trtmatrix.bugs.trials import FailingModel, Start, Trials, find_start, size_text, write_failing_model
from trtmatrix.common.border import read_json, remove_tree
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError
from trtmatrix.common.interrupts import undisturbed
from trtmatrix.common.jsontext import to_json
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.onnxmodel.sessions import NotComputedError
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.cells import unlisted_version

FOLDER = "minimise"
"""Where in the cache the records of trials lie."""

GARBAGE_BUILDS = 2
"""Engines of a trial whose first one is right where garbage is wanted: memory may hold what is right."""

REPORT = "minimised.json"
SAME, NOT, CANNOT_SAY = "same", "not", "cannot say"
_WORDS = {SAME: "kept", NOT: "no", CANNOT_SAY: "cannot say"}


@dataclass(frozen=True, kw_only=True)
class MinimiseOptions:
    """Those of ``minimise``."""

    project: ProjectOptions
    model: ModelOptions
    cell: str
    good: str | None
    to: Path | None
    steps: int
    seconds: float
    json: bool


def minimise_command(options: MinimiseOptions) -> ExitCode:
    """Make the model of a failing cell smaller, as long as it fails in the same way."""
    check_installed()
    cell = read_cell_id(options.cell)
    start = find_start(find_cell(cell, options.project, options.model))
    target = options.to or Path(f"minimised-{cell.case}")
    check_target(target, start.cell)
    others = [entry.cell.version.name for entry in start.found.row if entry is not start.found.entry]
    if options.good not in {None, *others}:
        raise UsageError(unlisted_version("--good", options.good or "", others))
    with contextlib.ExitStack() as exits:
        trials = Trials(start, FOLDER, exits)
        search = Minimiser(start, trials, target, options.steps, options.seconds, options.good or "")
        end, code = search.run()
    print(to_json(end.data) if options.json else end.text(), end="")
    return code


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A smaller model that was tried: what was done to it, whether it fails in the same way, why not."""

    what: str
    answer: str
    said: str

    def line(self, number: int, size: str) -> str:
        """Return the step for a terminal, with the model's size where it was kept."""
        more = size if self.answer == SAME else self.said
        return f"  [{number}] {self.what} — {_WORDS[self.answer]}{f' ({more})' if more else ''}"


@dataclass(frozen=True, kw_only=True)
class Minimised:
    """How a search ended.

    ``manner``: in which way the cell fails. ``good``: the version at which what is left is right, if one was
    asked. ``ended``: why it ended. ``smallest``: the cell of the result, whose record stays; empty where it
    was not run again, and ``last_said`` tells why, or what came of it.
    """

    cell: str
    manner: str
    good: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    ended: str
    steps: tuple[Attempt, ...]
    notes: tuple[str, ...] = ()
    folder: str = ""
    smallest: str = ""
    last_said: str = ""

    @property
    def is_smaller(self) -> bool:
        """Whether anything was kept."""
        return any(step.answer == SAME for step in self.steps)

    @property
    def commands(self) -> list[str]:
        """The command that makes an archive of the result."""
        return [f"python -m trtmatrix bundle make {self.smallest}"] if self.smallest else []

    @property
    def data(self) -> dict[str, Any]:
        """All of it as JSON; the same search gives the same."""
        told = ("cell", "manner", "good", "ended", "before", "after", "smallest", "notes", "commands")
        trials = [vars(step) for step in self.steps]
        return {
            "schema": 2, **{name: getattr(self, name) for name in told}, "smaller": self.is_smaller,
            "notes": [*self.notes], "trials": trials,
        }  # fmt: skip

    def text(self) -> str:
        """Return it for a terminal."""
        count = Counter(step.answer for step in self.steps)
        right = [f"  right at {self.good}, as is what is left of it"] if self.good else []
        lines = [
            self.cell, f"  fails: {self.manner}", *right, f"  before: {size_text(self.before)}",
            f"  after:  {size_text(self.after)}", f"  {self.ended}",
            f"  {len(self.steps)} smaller models tried: {count[SAME]} kept, {count[NOT]} did not fail in the "
            f"same way, {count[CANNOT_SAY]} could not be made or run",
            *(f"  {note}" for note in self.notes),
        ]  # fmt: skip
        if self.is_smaller:
            lines.append(f"{self.folder}: model.onnx, its inputs, {REPORT} (what was tried)")
            lines += [f"  {self.last_said}"] if self.last_said else []
            lines += ["Next:", *(f"  {line}" for line in self.commands)] if self.commands else []
        else:
            lines.append("nothing smaller fails in the same way")
        return "\n".join(lines) + "\n"


class Minimiser:
    """A search under way. ``best``: the smallest model so far, which lies in the folder at any time."""

    def __init__(
        self, start: Start, trials: Trials, target: Path, steps: int, seconds: float, good: str = ""
    ) -> None:  # fmt: skip
        """Take where it starts, where the result goes, how long it may take, which version must be right."""
        self.start, self.trials, self.target, self.steps = start, trials, target, steps
        self.deadline = time.monotonic() + seconds
        self.best, self.wanted, self.good = start.model, start.manner, good
        self.builds = 1 if start.every else 0
        self.tried: list[Attempt] = []
        self.notes: list[str] = []
        self._seen = {start.model.digest}

    def run(self) -> tuple[Minimised, ExitCode]:
        """Search until nothing is smaller, the budget is spent, or it is interrupted."""
        ended = ""
        self._find_baseline()
        try:
            self._reduce()
        except KeyboardInterrupt:
            ended = "it was interrupted; what is here is the smallest so far"
        end = self._end(ended or self._why_ended())
        if end.is_smaller:
            write_minimised(self.target, self.best, end)
        if ended or not end.is_smaller:
            return end, ExitCode.INTERRUPTED if ended else ExitCode.SURPRISE
        return self._run_once_more(end)

    def _find_baseline(self) -> None:
        """Learn how the cell's model fails as a plain model; :class:`MachineryError` where it does not so."""
        start = self.start
        ran = self.trials.run(start.model, start.version, builds=0)
        if ran.manner is None:
            raise MachineryError(
                f"{start.cell}: its graph run as a plain model does not fail: {ran.said}\n  what fails is "
                "more than the graph: its run, or a limit or a defect of its own"
            )
        if differs := same_manner(_plain(start.manner), _plain(ran.manner)):
            raise MachineryError(f"{start.cell}: its graph run as a plain model: {differs}")
        self.wanted = ran.manner
        self.builds = 0 if ran.some else GARBAGE_BUILDS if ran.manner.is_garbage else self.builds
        _tell(f"{start.cell}: {self.wanted.words}")
        if start.manner.kind is Kind.DEFECT and self.wanted.kind is not Kind.DEFECT:
            self._note(
                f"the cell fails by a known defect ({start.manner.words}); a smaller model counts as the "
                "same by its relative error alone: look at what is left before it is called that defect"
            )
        if self.wanted.is_garbage:
            self._note("its numbers are absurd: any garbage in its outputs counts as the same")
        if self.good and not (ran := self.trials.run(start.model, self.good)).right:
            raise MachineryError(
                f"--good {self.good}: it is not right there: {ran.said}\n  name a version at which it passes"
            )

    def _reduce(self) -> None:
        """Make it smaller: first what makes each further trial cheap, then the nodes."""
        samples = self.best.samples if len(self.best.samples) > 1 else ()
        for number, sample in enumerate(samples):
            self._try(f"sample {number} alone", partial(replace, self.best, samples=(sample,)))
        if len(self.best.samples) > 1:
            return
        self._try("shapes fixed, constants folded", lambda: fold_to_static(self.best))
        if self.best.is_dynamic:
            self._note("it fails with dynamic shapes only, which Polygraphy's reducer would fix: nodes stay")
            return
        for mode in ("bisect", "linear", "linear", "linear"):
            before = self.best
            if before.size["nodes"] == 1 or not self._has_time():
                return
            if ended := reduce_nodes(before, mode, partial(self._is_kept, mode), self._has_time):
                self._note(f"Polygraphy's reducer ({mode}): {ended}")
            if mode == "linear" and self.best is before:
                return

    def _is_kept(self, mode: str, model: FailingModel) -> bool:
        """Try a graph of Polygraphy's, unless it has as many nodes as what was found already."""
        nodes = model.size["nodes"]
        if nodes >= self.best.size["nodes"]:
            return False
        return self._try(f"Polygraphy, by {mode}: {nodes} nodes", lambda: model)

    def _try(self, what: str, make: Callable[[], FailingModel]) -> bool:
        """Make a smaller model, run it, and keep it where it fails in the same way; whether it does."""
        if not self._has_time():
            return False
        try:
            model = make()
            if model.digest in self._seen:
                return False
            self._seen.add(model.digest)
            answer, said = self._check(model)
        except NotComputedError as error:
            answer, said = CANNOT_SAY, str(error)[:300]
        step = Attempt(what=what, answer=answer, said=said)
        self.tried.append(step)
        if answer == SAME:
            self.best = model
            write_minimised(self.target, model, self._end("it was ended before its end"))
        _tell(step.line(len(self.tried), size_text(self.best.size)))
        return answer == SAME

    def _check(self, model: FailingModel) -> tuple[str, str]:
        """Say whether a model fails in the way that is wanted, and why not."""
        bad = self.trials.run(model, self.start.version, builds=min(self.builds, 1))
        if bad.manner is None and self.builds > 1:  # garbage may happen to be right in one engine
            bad = self.trials.run(model, self.start.version, builds=self.builds)
        if bad.manner is None:
            return (NOT if bad.right else CANNOT_SAY), bad.said
        if differs := self._differs(bad.manner):
            return NOT, differs
        if not self.good:
            return SAME, bad.said
        good = self.trials.run(model, self.good, builds=self.builds)
        if good.right:
            return SAME, bad.said
        return (NOT if good.manner else CANNOT_SAY), f"{self.good} is not right: {good.said}"

    def _differs(self, found: Manner) -> str:
        """Say how a failure is not the one that is wanted; nothing where it is.

        Numbers may be wrong because a tensor before them has another shape, and was stretched to theirs.
        """
        if found.kind is Kind.SHAPE and self.wanted.kind is Kind.WRONG:
            return ""
        return same_manner(self.wanted, found)

    def _has_time(self) -> bool:
        return len(self.tried) < self.steps and time.monotonic() < self.deadline

    def _why_ended(self) -> str:
        if len(self.tried) >= self.steps:
            return f"all of its {self.steps} steps are used: more by --steps"
        if time.monotonic() >= self.deadline:
            return "its time is over: more by --seconds"
        return "nothing else that was tried can be smaller"

    def _note(self, text: str) -> None:
        self.notes.append(text)
        _tell(f"NOTE: {text}")

    def _end(self, ended: str) -> Minimised:
        return Minimised(
            cell=self.start.cell, manner=self.wanted.words, good=self.good, before=self.start.model.size,
            after=self.best.size, ended=ended, steps=tuple(self.tried), notes=tuple(self.notes),
            folder=str(self.target),
        )  # fmt: skip

    def _run_once_more(self, end: Minimised) -> tuple[Minimised, ExitCode]:
        """Run the result as a cell of its own whose record stays, so that it can be bundled.

        It must fail as the whole does there, too: it has more engines than a trial, in a fresh process.
        """
        _tell("run once more, as a cell of its own")
        try:
            ran = self.trials.run(self.best, self.start.version, lasting=True)
        except KeyboardInterrupt:
            said = "it was interrupted before it was run once more"
            return replace(end, last_said=said), ExitCode.INTERRUPTED
        differs = self._differs(ran.manner) if ran.manner else ran.said
        some = "in some of its engines only: " * (ran.some and not differs)
        smallest = "" if differs else ran.cell
        end = replace(end, smallest=smallest, last_said=f"run once more: {some}{differs or ran.said}")
        write_minimised(self.target, self.best, end)
        return end, ExitCode.SURPRISE if differs else ExitCode.AS_EXPECTED


def check_target(target: Path, cell: str) -> None:
    """Raise :class:`UsageError` where a folder holds something else than this cell's earlier result."""
    if not target.exists():
        return
    try:
        known = str(read_json(target / REPORT)["cell"])
    except (OSError, ValueError, TypeError, KeyError):
        known = ""
    if known != cell:
        raise UsageError(f"{target} is there already, and is not of this cell: name another folder by --to")


def write_minimised(target: Path, model: FailingModel, end: Minimised) -> None:
    """Write the smallest model so far with its inputs and the report, in place of those of before."""
    target.mkdir(parents=True, exist_ok=True)
    with undisturbed():  # all of it is replaced, or none
        remove_tree(target / "inputs")
        (target / "inputs.npz").unlink(missing_ok=True)
        write_failing_model(model, target)
        text = json.dumps(end.data, indent=1, sort_keys=True, allow_nan=False)
        (target / REPORT).write_text(text + "\n", encoding="utf-8")


def _plain(manner: Manner) -> Manner:
    """Return a manner without what a plain model has no names for: known defects."""
    is_wrong = manner.kind in {Kind.DEFECT, Kind.WRONG}
    return replace(manner, kind=Kind.WRONG, what="") if is_wrong else manner


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
