"""The command minimise: the smallest graph and shapes that still fail in the same way."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.core.errors import ExitCode, MachineryError
from trtmatrix.core.garbage import errors_agree
from trtmatrix.core.manner import Kind, Manner, same_manner
from trtmatrix.core.minimise import (
    Answer,
    Axis,
    Move,
    Search,
    Trial,
    how_many_ahead,
    learn,
    next_moves,
    next_round,
)
from trtmatrix.core.render_minimise import Minimised, minimised_data, render_minimised, step_line
from trtmatrix.effects.minimised import check_target, size_in, size_of, write_minimised
from trtmatrix.explain import own_interrupt
from trtmatrix.minimise_start import Start, find_start
from trtmatrix.minimise_trials import FOLDER, Ran, Trials, anonymous

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.subject import Subject

NUMBERS = frozenset({Kind.DEFECT, Kind.WRONG})
"""Ways of being wrong that a plain model, which has no known defects, cannot tell from each other."""

LEAST_NODES = 2
"""A single node is not reduced."""

STEADY_BUILDS = 3
"""Engines of the whole model that tell whether its failure is steady."""

UNSTEADY_BUILDS = 2
"""Engines of each trial where it is not: memory that nothing wrote may hold what is right."""

MOST_TROUBLES = 8
"""So many runs in a row that the machinery kept from running end the search."""

GOOD_TRIES = 3
"""Versions that are asked whether they are right, where none was named."""

SMALLEST_FOUND = "nothing else that was tried can be smaller"
INTERRUPTED = "it was interrupted; what is here is the smallest so far"

Check = Callable[["Subject"], tuple[Answer, str, bool]]
Tell = Callable[[str], None]


def minimise_command(args: argparse.Namespace) -> ExitCode:
    """Make the model of a failing cell smaller, as long as it fails in the same way."""
    target: Path = args.to or Path(f"minimised-{args.cell.partition('/')[2].partition('@')[0] or 'cell'}")
    deadline = time.monotonic() + args.seconds
    start = find_start(args)
    cell = str(start.found.entry.cell.id)
    check_target(target, cell)
    root = start.found.context.project.cache / FOLDER
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".scratch-") as scratch, own_interrupt():
        trials = Trials(start, Path(scratch))
        if time.monotonic() >= deadline:
            raise MachineryError(f"{cell}: its time was over before anything was run: more by --seconds")
        wanted, notes = find_baseline(start, trials)
        _tell(f"{cell}: {wanted.words}")
        notes += choose_good(start, trials, deadline)
        start = replace(start, good=trials.good, notes=(*start.notes, *notes))
        for note in notes:
            _tell(f"NOTE: {note}")
        shrinking = Shrinking(start, wanted, trials, target, args.steps, deadline, _tell)
        end, code = shrinking.run(polygraphy=not args.no_polygraphy)
    _show(args, end)
    return code


def find_baseline(start: Start, trials: Trials) -> tuple[Manner, list[str]]:
    """Return how the cell's model fails as a plain model, and what is to be told of it loudly.

    It is run with several engines, which tell whether it fails steadily: where it does not, each trial needs
    more than one. :class:`MachineryError` where it fails otherwise.
    """
    cell = start.found.entry.cell
    ran = trials.run(start.subject, cell.version.name, builds=STEADY_BUILDS if start.every else None)
    if ran.manner is None:
        raise MachineryError(
            f"{cell.id}: it fails ({start.manner.words}), but its graph run as a plain model does not: "
            f"{ran.said}\n  what fails is more than the graph (its run, a limit or a defect of its own), or "
            "the version cannot be run here: python -m trtmatrix doctor"
        )
    if differs := same_manner(_plainly(start.manner), _plainly(ran.manner)):
        raise MachineryError(f"{cell.id}: its graph run as a plain model: {differs}")
    if start.good and not (good := trials.run(start.subject, start.good)).right:
        raise MachineryError(
            f"--good {start.good}: it is not right there: {good.said}\n  name a version at which it passes"
        )
    wanted = ran.manner
    agreed = len(wanted.errors) > 1 and not ran.some and errors_agree(wanted.errors)
    if start.manner.unsteady and not (wanted.unsteady or agreed):  # by its records, and may be so again
        errors = (*start.manner.errors, *wanted.errors)
        wanted = replace(wanted, unsteady=True, errors=errors, words=start.manner.words)
    trials.builds = 0 if ran.some else UNSTEADY_BUILDS if wanted.unsteady else trials.builds
    return wanted, list(_warnings(start.manner, wanted))


def _plainly(manner: Manner) -> Manner:
    """Return a manner without what a plain model has no names for: known defects; outputs of the repro."""
    if manner.kind not in NUMBERS or manner.unsteady:
        return anonymous(manner)
    return replace(anonymous(manner), kind=Kind.WRONG, what="")


def _warnings(cell: Manner, wanted: Manner) -> Iterator[str]:
    if cell.kind is Kind.DEFECT and wanted.kind is not Kind.DEFECT:
        yield (
            f"the cell fails by a known defect ({cell.words}), and a plain model has none: a smaller one "
            "counts as the same by its relative error alone, and may be wrong for another reason. Look at "
            "what is left before it is called that defect"
        )
    if wanted.unsteady:
        yield "it is not steady: any garbage in its outputs counts as the same, whatever its size"


def choose_good(start: Start, trials: Trials, deadline: float = math.inf) -> list[str]:
    """Choose the nearest version that is right, where none was named; returns what is to be told of it."""
    if start.good:
        return []
    for name in start.nearby[:GOOD_TRIES]:
        if time.monotonic() >= deadline:
            break
        if trials.run(start.subject, name).right:
            trials.good = name
            return [f"what is left must be right at {name}, the nearest version that is (another: --good)"]
    return [
        "no other version is asked whether it is right there: what is left may fail at every version, as by "
        "a reference that is no longer exact, and says nothing of this one. Name a version by --good"
    ]


class Shrinking:
    """A search under way: the smallest model so far, which lies in the folder at any time."""

    def __init__(
        self, start: Start, wanted: Manner, trials: Trials, target: Path, steps: int, deadline: float,
        tell: Tell,
    ) -> None:  # fmt: skip
        """Take where it starts, what must stay, where the result goes, and how long it may take."""
        self.best, self.search = start.subject, Search(steps=steps)
        self._start, self._wanted, self._trials, self._target = start, wanted, trials, target
        self._deadline, self._tell = deadline, tell
        self._seen = {start.subject.digest}
        self._notes = list(start.notes)
        self._earlier = size_in(target)

    def run(self, *, polygraphy: bool) -> tuple[Minimised, ExitCode]:
        """Search until nothing is smaller, the budget is spent, or it is interrupted."""
        ended = ""
        try:
            self._pass(early=True)
            if polygraphy:
                self._by_polygraphy("bisect")
            self._pass(early=False)
            if polygraphy and self._by_polygraphy("linear"):
                self._pass(early=False)
        except KeyboardInterrupt:
            ended = INTERRUPTED
        except MachineryError as error:
            self._write(self._end(str(error).splitlines()[0]))
            raise
        try:
            end = self._end(ended or self._why_ended())
            self._write(end)
        except KeyboardInterrupt:
            end = self._end(ended := INTERRUPTED)
            self._write(end)
        if ended or not end.is_smaller:
            return end, ExitCode.INTERRUPTED if ended else ExitCode.SURPRISE
        if time.monotonic() >= self._deadline:
            said = "its time was over before it was run once more, as a cell of its own"
            return replace(end, last_said=said), ExitCode.AS_EXPECTED
        try:
            return self._last(end)
        except KeyboardInterrupt:
            return replace(
                end, last_said="it was interrupted before it was run once more"
            ), ExitCode.INTERRUPTED

    def _pass(self, *, early: bool) -> None:
        """Try one axis after another until nothing is smaller; early: only what makes the rest simple."""
        from trtmatrix.onnxmodel.shrink import EARLY, Shrinker

        shrinker, axes = None, list[Axis]()
        while self._has_time():
            if shrinker is None or shrinker.subject is not self.best:
                shrinker = Shrinker(self.best, self._trials.scratch, self._worst())
                axes = [axis for axis in shrinker.axes() if not early or axis.name in EARLY]
            moves = next_moves(self.search, axes, how_many_ahead(self.search))
            if moves:
                self._try_moves(shrinker.make, moves)
            elif early or (fresh := next_round(self.search)) is None:
                return
            else:
                self.search = fresh

    def _try_moves(self, make: Callable[[Move], Subject], moves: Sequence[Move]) -> None:
        """Try moves one after another until one is kept: all in one launch, as if each were tried alone."""
        made = {move: _made(make, move) for move in moves}
        fresh = {one.digest: one for one in made.values() if not isinstance(one, str)}
        self._trials.run_ahead([one for digest, one in fresh.items() if digest not in self._seen])
        for move, candidate in made.items():
            if not self._has_time():
                return
            if isinstance(candidate, str):
                trial = Trial(move=move, answer=Answer.CANNOT_SAY, said=candidate, ran=False)
                self._learn(trial, None)
            elif self.try_subject(move, candidate) is Answer.SAME:
                return

    def try_subject(self, move: Move, candidate: Subject) -> Answer:
        """Run a smaller model unless it was run before, and keep it where it fails in the same way."""
        if candidate.digest in self._seen:
            said = "it was tried before"
            trial = Trial(move=move, answer=Answer.NOT, said=said, ran=False)
        else:
            answer, said, ran = self._trials.check(self._wanted, candidate)
            if not self._trials.troubles:  # what the machinery kept from running may be run yet
                self._seen.add(candidate.digest)
            trial = Trial(move=move, answer=answer, said=said, ran=ran)
        self._learn(trial, candidate)
        if self._trials.troubles >= MOST_TROUBLES:
            raise MachineryError(self._troubled(said))
        return trial.answer

    def _troubled(self, said: str) -> str:
        """Return in words that nothing can be run any more; the best stays where it is."""
        cell = self._start.found.entry.cell.id
        is_kept = self.best is not self._start.subject
        kept = f"\n  the smallest so far stays in {self._target}" if is_kept or self._earlier else ""
        return (
            f"{cell}: {MOST_TROUBLES} runs in a row came to nothing by the machinery: {said}{kept}\n"
            "  what is wrong here: python -m trtmatrix doctor; then minimise again"
        )

    def _learn(self, trial: Trial, candidate: Subject | None) -> None:
        if trial.answer is Answer.SAME and candidate is not None:
            self.best = candidate  # before all else: an interrupt may come at any time
        self.search = learn(self.search, trial)
        if trial.answer is Answer.SAME and candidate is not None:
            self._write(self._end("it was ended before its end"))
        if trial.ran or trial.answer is Answer.SAME:
            self._tell(step_line(self.search.ran, trial, self.best.size.text))

    def _by_polygraphy(self, mode: str) -> bool:
        """Let Polygraphy's reducer look for fewer nodes: first by halving, at the end node by node.

        What it finds is checked and kept as all else is. Returns whether it is smaller now.
        """
        from trtmatrix.effects.polygraphy_reduce import reduce_nodes, why_not

        base = self.best
        if len(base.model.graph.node) < LEAST_NODES:
            return False
        reason = why_not(base) or ("" if self._has_time() else "the budget was spent before")
        if not reason:
            reason = reduce_nodes(base, mode, self._check_of(mode), self._has_time, self._trials.scratch)
        if reason:
            self._notes.append(f"Polygraphy's reducer ({mode}): {reason}")
        return self.best is not base

    def _check_of(self, mode: str) -> Callable[[Subject], bool]:
        def check(candidate: Subject) -> bool:
            if candidate.size.nodes >= self.best.size.nodes:  # it looks beside what it has found already
                return False
            level = f"to {candidate.size.nodes} nodes"
            return self.try_subject(Move(axis=f"Polygraphy {mode}", level=level), candidate) is Answer.SAME

        return check

    def _has_time(self) -> bool:
        return not self.search.is_spent and time.monotonic() < self._deadline

    def _why_ended(self) -> str:
        if self.search.is_spent:
            return f"all of its {self.search.steps} moves are judged: more by --steps"
        return SMALLEST_FOUND if time.monotonic() < self._deadline else "its time is over: more by --seconds"

    def _worst(self) -> int:
        """Return the number of the sample that is most wrong, of those that there are."""
        named = [output.rpartition(".s")[2] for output in self._wanted.outputs if ".s" in output]
        numbers = [int(number) for number in named if number.isdecimal()]
        return min(numbers, default=0) if min(numbers, default=0) < len(self.best.samples) else 0

    def _is_larger(self) -> bool:
        """Whether an earlier run left a smaller model in the folder."""
        return self._earlier is not None and size_of(asdict(self.best.size)) > self._earlier

    def _end(self, ended: str) -> Minimised:
        before, after = self._start.subject.size, self.best.size
        is_smaller = self.best is not self._start.subject
        is_written = is_smaller and not self._is_larger()
        stays = (f"{self._target} keeps a smaller model of an earlier run: name another folder by --to",)
        return Minimised(
            cell=str(self._start.found.entry.cell.id), manner=self._wanted.words, good=self._start.good,
            before=before.text, after=after.text, ended=ended, trials=self.search.trials,
            sizes={"before": asdict(before), "after": asdict(after)},
            notes=(*self._notes, *(stays if is_smaller and not is_written else ())),
            is_smaller=is_smaller, folder=str(self._target) if is_written else "",
            model_words=self._model_words() if is_written else "",
        )  # fmt: skip

    def _model_words(self) -> str:
        """Return the options that name the result on a command line; nothing where they cannot say all."""
        from trtmatrix.explain_steps import profile_texts

        asked = self._start.asked
        if asked["build"] or asked["bug_is"]:
            return ""
        inputs = self._target / ("inputs.npz" if len(self.best.samples) == 1 else "inputs")
        words = ["--model", str(self._target / "model.onnx"), "--inputs", str(inputs)]
        words += ["--precision", str(asked["precision"])]
        for name in ("atol", "rtol"):
            words += [f"--{name}", f"{asked[name]:g}"] if asked[name] is not None else []
        for text in profile_texts(self.best.profile):
            words += ["--profile", text]
        return shlex.join(words)

    def _write(self, end: Minimised) -> None:
        """Leave the best in the folder, if it is smaller than the model and than what an earlier run left."""
        if end.is_smaller and end.folder:
            write_minimised(self._target, self.best, minimised_data(end))

    def _last(self, end: Minimised) -> tuple[Minimised, ExitCode]:
        """Run the result once more, as a cell of its own whose record stays, so that it can be bundled.

        It must fail as the whole does there, too: it has more engines than a trial, and a default build.
        """
        version = self._start.found.entry.cell.version.name
        self._tell("run once more, as a cell of its own")
        ran = self._trials.run(self.best, version, keep=True)
        if differs := _differs(self._wanted, ran):
            end, code = replace(end, last_said=f"run once more, {differs}"), ExitCode.SURPRISE
        else:
            some = "in some of its engines only: " if ran.some else ""
            end, code = (
                replace(end, smallest=ran.cell, last_said=f"run once more: {some}{ran.said}"),
                ExitCode.AS_EXPECTED,
            )
        self._write(end)
        return end, code


def _differs(wanted: Manner, ran: Ran) -> str:
    """Say how the last run is not what is wanted; nothing where it is the same."""
    if ran.manner is None:
        return f"{'it does not fail' if ran.right else 'it cannot say'}: {ran.said}"
    return same_manner(anonymous(wanted), anonymous(ran.manner))


def _made(make: Callable[[Move], Subject], move: Move) -> Subject | str:
    """Return what a move makes, or why it cannot be made."""
    from trtmatrix.onnxmodel.subject import CannotShrinkError

    try:
        return make(move)
    except CannotShrinkError as error:
        return str(error)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(args: argparse.Namespace, end: Minimised) -> None:
    if args.json:
        from trtmatrix.core.jsontext import to_json

        print(to_json(minimised_data(end)), end="")
    else:
        print(render_minimised(end), end="")
