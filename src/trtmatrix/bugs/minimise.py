"""The command minimise: the smallest graph of a failing cell that still fails in the same way.

Samples are taken away here, nodes by Polygraphy's reducer: it cuts a graph by halving or node by node and
calls a command for each graph, a few lines that ask this process by a socket; their exit code says whether it
still fails (https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy/polygraphy/tools/debug). Each
smaller model is run at the cell's version as any model of one's own, its reference computed anew, and kept
only where it fails in the same way and, with ``--good``, where that version is right.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtmatrix.bugs.cell import find_cell, read_cell_id
from trtmatrix.bugs.manner import Kind, Manner, same_manner
from trtmatrix.bugs.trials import (
    FailingModel,
    Start,
    Trials,
    find_start,
    write_failing_model,
)
from trtmatrix.common.border import read_json, remove_tree
from trtmatrix.common.errors import ExitCode, MachineryError, UsageError, deferred, undisturbed
from trtmatrix.common.text import to_json
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.onnxmodel.sessions import NotComputedError, Session
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.suite.cells import unlisted_version

GARBAGE_BUILDS = 2
"""Engines of a trial whose first one is right where garbage is wanted: memory may hold what is right."""

REPORT = "minimised.json"
SAME, NOT, CANNOT_SAY = "same", "not", "cannot say"
NEEDED = {"polygraphy": "polygraphy", "onnx_graphsurgeon": "onnx-graphsurgeon"}
GRAPH = "polygraphy_debug.onnx"
"""Where Polygraphy writes the graph that is to be checked, in its working folder."""

FAILS, WELL = b"1", b"0"
FAIL_CODE = 3
"""Python's own exit code 1, of an asker that broke, is no failure of a graph."""

POLL_SECONDS = 0.1
POLYGRAPHY = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
ASK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    f"sys.exit({FAIL_CODE} if s.recv(1) == {FAILS!r} else 0)"
)
LOADER = """\
import numpy as np


def load_data():
    with np.load("sample.npz") as arrays:
        yield dict(arrays)
"""
"""What branches that are cut off are frozen to comes from the sample."""


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
    lacking = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} not installed: minimise reduces graphs by NVIDIA's Polygraphy\n"
            f"  pip install {' '.join(NEEDED.values())}, or run nox -s minimise, which installs them"
        )
    cell = read_cell_id(options.cell)
    start = find_start(find_cell(cell, options.project, options.model))
    target = options.to or Path(f"minimised-{cell.case}")
    if target.exists():
        try:
            known = str(read_json(target / REPORT)["cell"])
        except (OSError, ValueError, TypeError, KeyError):
            known = ""
        if known != start.cell:
            raise UsageError(
                f"{target} is there already, and is not of this cell: name another folder by --to"
            )
    others = [entry.cell.version.name for entry in start.found.row if entry is not start.found.entry]
    if options.good not in {None, *others}:
        raise UsageError(unlisted_version("--good", options.good or "", others))
    with contextlib.ExitStack() as exits:
        trials = Trials(start, exits)
        search = Minimiser(start, trials, target, options.steps, options.seconds, options.good or "")
        code = search.run()
    print(to_json(search.data) if options.json else search.text(), end="")
    return code


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A smaller model that was tried: what was done to it, whether it fails in the same way, why not."""

    what: str
    answer: str
    said: str


class Minimiser:
    """A search, and what came of it. ``best``: the smallest model so far, in the folder at any time.

    ``wanted``: in which way the cell fails. ``ended``: why it ended. ``smallest``: the cell of the result,
    whose record stays; empty where it was not run again, and ``last_said`` tells why, or what came of it.
    """

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
        self.ended, self.smallest, self.last_said = "it was ended before its end", "", ""
        self._seen = {start.model.digest}

    @property
    def is_smaller(self) -> bool:
        """Whether anything was kept."""
        return any(step.answer == SAME for step in self.tried)

    @property
    def data(self) -> dict[str, Any]:
        """All of it as JSON; the same search gives the same."""
        return {
            "schema": 2, "cell": self.start.cell, "manner": self.wanted.words, "good": self.good,
            "ended": self.ended, "before": self.start.model.size, "after": self.best.size,
            "smallest": self.smallest, "smaller": self.is_smaller, "notes": self.notes,
            "commands": self._commands, "trials": [vars(step) for step in self.tried],
        }  # fmt: skip

    @property
    def _commands(self) -> list[str]:
        return [f"python -m trtmatrix bundle make {self.smallest}"] if self.smallest else []

    def text(self) -> str:
        """Return it for a terminal."""
        count = Counter(step.answer for step in self.tried)
        right = [f"  right at {self.good}, as is what is left of it"] if self.good else []
        lines = [
            self.start.cell, f"  fails: {self.wanted.words}", *right,
            f"  before: {_size_text(self.start.model)}", f"  after:  {_size_text(self.best)}",
            f"  {self.ended}",
            f"  {len(self.tried)} smaller models tried: {count[SAME]} kept, {count[NOT]} did not fail in the "
            f"same way, {count[CANNOT_SAY]} could not be made or run",
            *(f"  {note}" for note in self.notes),
        ]  # fmt: skip
        if self.is_smaller:
            lines.append(f"{self.target}: model.onnx, its inputs, {REPORT} (what was tried)")
            lines += [f"  {self.last_said}"] if self.last_said else []
            lines += ["Next:", *(f"  {line}" for line in self._commands)] if self.smallest else []
        else:
            lines.append("nothing smaller fails in the same way")
        return "\n".join(lines) + "\n"

    def run(self) -> ExitCode:
        """Search until nothing is smaller, the budget is spent, or it is interrupted."""
        self._find_baseline()
        try:
            self._reduce()
        except KeyboardInterrupt:
            self.ended = "it was interrupted; what is here is the smallest so far"
            self._write()
            return ExitCode.INTERRUPTED
        if len(self.tried) >= self.steps:
            self.ended = f"all of its {self.steps} steps are used: more by --steps"
        elif time.monotonic() >= self.deadline:
            self.ended = "its time is over: more by --seconds"
        else:
            self.ended = "nothing else that was tried can be smaller"
        self._write()
        return self._run_once_more() if self.is_smaller else ExitCode.SURPRISE

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
            if ended := reduce_nodes(before, mode, partial(self._try_fewer_nodes, mode), self._has_time):
                self._note(f"Polygraphy's reducer ({mode}): {ended}")
            if mode == "linear" and self.best is before:
                return

    def _try_fewer_nodes(self, mode: str, model: FailingModel) -> bool:
        """Try a graph of Polygraphy's, unless it has as many nodes as what was found already."""
        nodes = model.size["nodes"]
        what = f"Polygraphy, by {mode}: {nodes} nodes"
        return nodes < self.best.size["nodes"] and self._try(what, lambda: model)

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
        self.tried.append(Attempt(what=what, answer=answer, said=said))
        told = {SAME: "kept", NOT: "no"}.get(answer, answer)
        if answer == SAME:
            self.best, said = model, _size_text(model)
            self._write()
        _tell(f"  [{len(self.tried)}] {what} — {told}{f' ({said})' if said else ''}")
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
        if found.kind is Kind.SHAPE and self.wanted.kind is Kind.WRONG:
            return ""  # a tensor before them may have had that shape, and was stretched to theirs
        return same_manner(self.wanted, found)

    def _has_time(self) -> bool:
        return len(self.tried) < self.steps and time.monotonic() < self.deadline

    def _note(self, text: str) -> None:
        self.notes.append(text)
        _tell(f"NOTE: {text}")

    def _run_once_more(self) -> ExitCode:
        """Run the result as a cell of its own whose record stays, so that it can be bundled.

        It must fail as the whole does there, too: it has more engines than a trial, in a fresh process.
        """
        _tell("run once more, as a cell of its own")
        try:
            ran = self.trials.run(self.best, self.start.version, lasting=True)
        except KeyboardInterrupt:
            self.last_said = "it was interrupted before it was run once more"
            return ExitCode.INTERRUPTED
        differs = self._differs(ran.manner) if ran.manner else ran.said
        some = "in some of its engines only: " * (ran.some and not differs)
        self.smallest = "" if differs else ran.cell
        self.last_said = f"run once more: {some}{differs or ran.said}"
        self._write()
        return ExitCode.SURPRISE if differs else ExitCode.AS_EXPECTED

    def _write(self) -> None:
        """Write the smallest model so far, if any, its inputs and the report, in place of those of before."""
        if not self.is_smaller:
            return
        self.target.mkdir(parents=True, exist_ok=True)
        with undisturbed():  # all of it is replaced, or none
            remove_tree(self.target / "inputs")
            (self.target / "inputs.npz").unlink(missing_ok=True)
            write_failing_model(self.best, self.target)
            text = json.dumps(self.data, indent=1, sort_keys=True, allow_nan=False)
            (self.target / REPORT).write_text(text + "\n", encoding="utf-8")


def _size_text(model: FailingModel) -> str:
    nodes, values, weights = (f"{model.size[name]:,}" for name in ("nodes", "values", "weights"))
    return f"{nodes} node{'' if nodes == '1' else 's'}, {values} numbers fed, {weights} in weights"


def _plain(manner: Manner) -> Manner:
    """Return a manner without what a plain model has no names for: known defects."""
    is_wrong = manner.kind in {Kind.DEFECT, Kind.WRONG}
    return replace(manner, kind=Kind.WRONG, what="") if is_wrong else manner


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fold_to_static(failing: FailingModel) -> FailingModel:
    """Return the model for the shapes of its one sample alone, with what depends on shapes computed.

    :class:`NotComputedError` where Polygraphy cannot do it.
    """
    shapes = [f"{name}:[{','.join(map(str, array.shape))}]" for name, array in failing.samples[0].items()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(failing.model, str(folder / "model.onnx"))
        words = ["surgeon", "sanitize", "model.onnx", "-o", "folded.onnx", "--fold-constants"]
        done = subprocess.run(
            [*POLYGRAPHY, *words, "--override-input-shapes", *shapes], cwd=folder, capture_output=True,
            text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise NotComputedError(f"polygraphy surgeon sanitize: {_last_line(done.stdout + done.stderr)}")
        model = onnx.load(str(folder / "folded.onnx"))
    folded = failing.fed_with(model, failing.samples)
    return FailingModel(model=model, samples=folded.samples)


def reduce_nodes(
    failing: FailingModel, mode: str, fails: Callable[[FailingModel], bool], goes_on: Callable[[], bool]
) -> str:
    """Reduce the nodes of a model of one sample; returns why it ended before its end, if it did.

    ``mode``: bisect or linear. ``fails`` is asked of each graph, fed with what the whole model has there; it
    keeps what it likes. ``goes_on``: False ends it. An interrupt goes through; nothing is left running.
    """
    known = dict(failing.samples[0])

    def answer(folder: Path) -> bytes:
        try:
            model = onnx.load(str(folder / GRAPH))
            weights = {tensor.name for tensor in model.graph.initializer}
            if missing := {info.name for info in model.graph.input} - weights - set(known):
                whole = onnx.ModelProto()
                whole.CopyFrom(failing.model)
                del whole.graph.output[:]
                whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(missing))
                known.update(Session(bytes(whole.SerializeToString())).run(failing.samples[0]))
            candidate = failing.fed_with(model, [known])
        except (NotComputedError, ValueError, KeyError):
            return WELL
        return FAILS if candidate.inputs and fails(candidate) else WELL

    with tempfile.TemporaryDirectory(prefix="trtmatrix-") as name:
        folder = Path(name)  # in the system's own: the path of a socket is 107 bytes at most
        onnx.save(failing.model, str(folder / "model.onnx"))
        np.savez(folder / "sample.npz", **dict(failing.samples[0]))  # type: ignore[arg-type] # arrays alone
        (folder / "load.py").write_text(LOADER, encoding="utf-8")
        words = ["debug", "reduce", "model.onnx", "-o", "reduced.onnx", "--mode", mode]
        words += ["--data-loader-script", "load.py", "--fail-code", str(FAIL_CODE)]
        words += ["--check", sys.executable, "-S", "-c", ASK, "ask"]
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            log = stack.enter_context((folder / "log").open("w+b"))
            listener.bind(str(folder / "ask"))
            listener.listen()
            listener.settimeout(POLL_SECONDS)
            with deferred():
                process = subprocess.Popen(
                    [*POLYGRAPHY, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
                stack.callback(process.wait)
                stack.callback(_kill_group, process.pid)
            while process.poll() is None:
                if not goes_on():
                    return "the budget is spent"
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(answer(folder))
            log.seek(0)
            said = _last_line(log.read().decode(errors="replace"))
            return f"exit code {process.returncode}: {said}" if process.returncode else ""


def _kill_group(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no word"
