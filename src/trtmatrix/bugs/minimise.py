"""The command minimise: the smallest graph of a failing cell that still fails in the same way.

Nodes are taken away by Polygraphy's reducer, samples and rows of the batch here. Each smaller model is run at
the cell's version as any model of one's own, its reference computed anew, and kept only where it fails in the
same way and where another version is right. Both versions stay open over all of that.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from trtmatrix.bugs.failing_model import FailingModel, batch_of, size_text, with_batch
from trtmatrix.bugs.minimise_report import (
    CANNOT_SAY,
    NOT,
    SAME,
    Minimised,
    Step,
    check_target,
    write_minimised,
)
from trtmatrix.bugs.reducer import check_installed, fold_to_static, reduce_nodes
from trtmatrix.bugs.trials import Start, Trials, find_start, nearby_versions
from trtmatrix.core.errors import ExitCode, MachineryError, UsageError
from trtmatrix.core.expand import nearest_names
from trtmatrix.core.garbage import describe_garbage, errors_agree, is_unsteady
from trtmatrix.core.manner import Kind, Manner, same_manner
from trtmatrix.onnxmodel.sessions import NotComputedError

FOLDER = "minimise"
"""Where in the cache the records of trials lie."""

NO_GOOD = "none"
"""What --good calls that no version must be right."""

STEADY_BUILDS, UNSTEADY_BUILDS = 3, 2
"""Engines of the whole model, which tell whether it fails steadily; of each trial where it does not: memory
that nothing wrote may hold what is right."""

GOOD_TRIES = 3
"""Versions that are asked whether they are right, where none was named."""

INTERRUPTED = "it was interrupted; what is here is the smallest so far"


def minimise_command(args: argparse.Namespace) -> ExitCode:
    """Make the model of a failing cell smaller, as long as it fails in the same way."""
    check_installed()
    start = find_start(args)
    target = args.to or Path(f"minimised-{args.cell.partition('/')[2].partition('@')[0] or 'cell'}")
    check_target(target, start.cell)
    others = [entry.cell.version.name for entry in start.found.row if entry is not start.found.entry]
    if args.good not in {None, NO_GOOD, *others}:
        raise UsageError("--good: " + nearest_names("version", args.good, others))
    with Trials(start, FOLDER) as trials:
        search = Minimiser(start, trials, target, args.steps, args.seconds)
        end, code = search.run(args.good)
    if args.json:
        from trtmatrix.core.jsontext import to_json

        print(to_json(end.data), end="")
    else:
        print(end.text(), end="")
    return code


class Minimiser:
    """A search under way. ``best``: the smallest model so far, which lies in the folder at any time."""

    def __init__(self, start: Start, trials: Trials, target: Path, steps: int, seconds: float) -> None:
        """Take where it starts, where the result goes, and how long it may take."""
        self.start, self.trials, self.target, self.steps = start, trials, target, steps
        self.deadline = time.monotonic() + seconds
        self.best, self.wanted, self.good = start.model, start.manner, ""
        self.builds = 1 if start.every else 0
        self.tried: list[Step] = []
        self.notes: list[str] = []
        self._seen = {start.model.digest}

    def run(self, good: str | None) -> tuple[Minimised, ExitCode]:
        """Search until nothing is smaller, the budget is spent, or it is interrupted."""
        ended = ""
        self._find_baseline()
        self._choose_good(good)
        try:
            self._reduce()
        except KeyboardInterrupt:
            ended = INTERRUPTED
        end = self._end(ended or self._why_ended())
        if end.is_smaller:
            write_minimised(self.target, self.best, end)
        if ended or not end.is_smaller:
            return end, ExitCode.INTERRUPTED if ended else ExitCode.SURPRISE
        return self._run_once_more(end)

    def _find_baseline(self) -> None:
        """Learn how the cell's model fails as a plain model, and whether it does so steadily.

        :class:`MachineryError` where it does not fail, or otherwise.
        """
        start, builds = self.start, STEADY_BUILDS if self.start.every else 0
        ran = self.trials.run(start.model, start.version, builds=builds)
        if ran.manner is None:
            raise MachineryError(
                f"{start.cell}: its graph run as a plain model does not fail: {ran.said}\n  what fails is "
                "more than the graph: its run, or a limit or a defect of its own"
            )
        wanted, both = ran.manner, [replace(one, outputs=("y",)) for one in (start.manner, ran.manner)]
        varies = is_unsteady(both)  # from one run to the next, though a single engine cannot tell
        differs = same_manner(_plain(start.manner), _plain(wanted))
        if differs and not varies:
            raise MachineryError(f"{start.cell}: its graph run as a plain model: {differs}")
        agreed = len(wanted.errors) > 1 and not ran.some and errors_agree(wanted.errors)
        if varies or (start.manner.unsteady and not (wanted.unsteady or agreed)):
            words = start.manner.words if start.manner.unsteady else describe_garbage(both)
            errors = (*start.manner.errors, *wanted.errors)
            wanted = replace(wanted, unsteady=True, errors=errors, words=words)
        self.wanted = wanted
        self.builds = 0 if ran.some else UNSTEADY_BUILDS if wanted.unsteady else self.builds
        _tell(f"{start.cell}: {wanted.words}")
        if start.manner.kind is Kind.DEFECT and wanted.kind is not Kind.DEFECT:
            self._note(
                f"the cell fails by a known defect ({start.manner.words}); a smaller model counts as the "
                "same by its relative error alone: look at what is left before it is called that defect"
            )
        if wanted.unsteady:
            self._note("it is not steady: any garbage in its outputs counts as the same, whatever its size")

    def _choose_good(self, named: str | None) -> None:
        """Choose the version at which what is left must be right: the named one, or the nearest that is."""
        names = () if named == NO_GOOD else (named,) if named else nearby_versions(self.start.found)
        for name in names[:GOOD_TRIES]:
            ran = self.trials.run(self.start.model, name)
            if ran.right:
                self.good = name
                break
            if named == name:
                raise MachineryError(
                    f"--good {name}: it is not right there: {ran.said}\n  name a version at which it passes"
                )
        if self.good and named is None:
            self._note(f"what is left must be right at {self.good}, the nearest version that is (see --good)")
        if not self.good:
            self._note("no other version is asked whether what is left is right there: name one by --good")

    def _reduce(self) -> None:
        """Make it smaller: first what makes each further trial cheap, then the nodes, then the rest."""
        for number in range(len(self.best.samples)):
            if len(self.best.samples) > 1:
                one = (self.best.samples[number],)
                self._try(f"sample {number} alone", partial(replace, self.best, samples=one))
        if len(self.best.samples) == 1:
            self._try("shapes fixed, constants folded", lambda: fold_to_static(self.best))
            self._reduce_batch()
            self._reduce_nodes()
            self._reduce_batch()

    def _reduce_nodes(self) -> None:
        """Let Polygraphy take nodes away: by halving, then node by node until nothing more goes."""
        if self.best.is_dynamic:
            self._note("it fails with dynamic shapes only, which Polygraphy's reducer would fix: nodes stay")
            return
        for mode in ("bisect", "linear", "linear", "linear"):
            before = self.best
            if before.nodes == 1 or not self._has_time():
                return
            if ended := reduce_nodes(before, mode, partial(self._is_kept, mode), self._has_time):
                self._note(f"Polygraphy's reducer ({mode}): {ended}")
            if mode == "linear" and self.best is before:
                return

    def _is_kept(self, mode: str, model: FailingModel) -> bool:
        """Try a graph of Polygraphy's, unless it has as many nodes as what was found already."""
        if model.nodes >= self.best.nodes:
            return False
        return self._try(f"Polygraphy, by {mode}: {model.nodes} nodes", lambda: model)

    def _reduce_batch(self) -> None:
        for rows in (1 << bits for bits in range(max(0, batch_of(self.best) - 1).bit_length())):
            if self._try(f"batch of {rows}", partial(with_batch, self.best, rows)):
                return

    def _try(self, what: str, make: Callable[[], FailingModel]) -> bool:
        """Make a smaller model, run it, and keep it where it fails in the same way; whether it does."""
        if not self._has_time():
            return False
        try:
            model = make()
        except NotComputedError as error:
            self._learn(Step(what=what, answer=CANNOT_SAY, said=str(error)[:300]), None)
            return False
        if model.digest in self._seen:
            return False
        answer, said = self._check(model)
        self._learn(Step(what=what, answer=answer, said=said), model)
        return answer == SAME

    def _check(self, model: FailingModel) -> tuple[str, str]:
        """Say whether a model fails in the way that is wanted, and why not."""
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
        return same_manner(_unnamed(self.wanted), _unnamed(found))

    def _learn(self, step: Step, model: FailingModel | None) -> None:
        self.tried.append(step)
        if model is not None:
            self._seen.add(model.digest)
        if step.answer == SAME and model is not None:
            self.best = model
            write_minimised(self.target, model, self._end("it was ended before its end"))
        _tell(step.line(len(self.tried), size_text(self.best.size)))

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
            end = replace(end, last_said="it was interrupted before it was run once more")
            return end, ExitCode.INTERRUPTED
        differs = self._differs(ran.manner) if ran.manner else ran.said
        if differs:
            end, code = replace(end, last_said=f"run once more: {differs}"), ExitCode.SURPRISE
        else:
            some = "in some of its engines only: " if ran.some else ""
            said = f"run once more: {some}{ran.said}"
            end, code = replace(end, smallest=ran.cell, last_said=said), ExitCode.AS_EXPECTED
        write_minimised(self.target, self.best, end)
        return end, code


def _plain(manner: Manner) -> Manner:
    """Return a manner without what a plain model has no names for: known defects, outputs of the repro."""
    if manner.unsteady or manner.kind not in {Kind.DEFECT, Kind.WRONG}:
        return _unnamed(manner)
    return replace(_unnamed(manner), kind=Kind.WRONG, what="")


def _unnamed(manner: Manner) -> Manner:
    """Return a manner without the outputs' names: a smaller graph has others."""
    return replace(manner, outputs=())


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
