"""The command minimise: the smallest graph of a failing cell that still fails in the same way.

Of several samples the worst is taken. Nodes are taken away by Polygraphy's reducer: it cuts a graph by
halving or node by node, and asks of each graph whether it still fails
(https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy/polygraphy/tools/debug). Each smaller model is
run at the cell's version as any model of one's own, its reference computed anew, and kept only where it fails
in the same way and, with ``--good``, where that version is right. Both versions stay open.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto

from trtmatrix.bugs.cell import Found, find_cell
from trtmatrix.bugs.manner import Kind, Manner, manner_of, same_manner
from trtmatrix.bugs.script import read_recipe, worst_sample
from trtmatrix.bugs.verify import tell
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import (
    ExitCode,
    MachineryError,
    TrtMatrixError,
    UsageError,
    deferred,
    undisturbed,
)
from trtmatrix.common.options import flag, read_count, read_seconds, value
from trtmatrix.common.text import to_json
from trtmatrix.judge.entry import full_words
from trtmatrix.judge.noise import read_calibration
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.onnxmodel.graphs import find_external, load_whole
from trtmatrix.onnxmodel.inputs import Range, digest_samples, profile_texts
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.onnxmodel.sessions import NotComputedError
from trtmatrix.onnxmodel.sessions import Session as OnnxSession
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run.session import Session
from trtmatrix.suite.cells import unlisted_version
from trtmatrix.suite.model import Control, Product, Verdict

Sample = Mapping[str, NDArray[Any]]

LARGEST = 1 << 30
"""Bytes of a model that is still copied for each step of a search; protobuf itself ends at twice that."""

GARBAGE_BUILDS = 2
"""Engines of a trial whose first one is right where garbage is wanted: memory may hold what is right."""

REPORT = "minimised.json"
SAME, NOT, CANNOT_SAY = "same", "not", "cannot say"
GRAPH = "polygraphy_debug.onnx"
"""Where Polygraphy writes the graph that is to be checked, in its working folder."""
QUESTION = b"[f]ail? "
"""The end of what Polygraphy asks of each graph where it has no command that checks it."""

POLYGRAPHY = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]


@dataclass(frozen=True, kw_only=True)
class MinimiseOptions:
    """Those of ``minimise``."""

    project: ProjectOptions
    model: ModelOptions
    cell: str = value("CELL", "a cell as the page (report) and --json show it: REPRO/CASE@VERSION#GPU")
    good: str | None = value("--good VERSION", "a version that is right; smaller models must also be right "
        "there")  # fmt: skip
    to: Path | None = value("--to DIR", "where to write (default: ./minimised-CASE-VERSION)")
    steps: int = value("--steps N", "try at most N smaller models", type=read_count, default=200)
    seconds: float = value("--seconds S", "stop after S seconds", type=read_seconds, default=3600)
    json: bool = flag("--json", "print JSON")


def minimise_command(options: MinimiseOptions) -> ExitCode:
    """Make the model of a failing cell smaller, as long as it fails in the same way."""
    if not all(map(importlib.util.find_spec, ("polygraphy", "onnx_graphsurgeon"))):
        raise UsageError(
            "minimise needs NVIDIA's Polygraphy: pip install polygraphy onnx-graphsurgeon, or run "
            "nox -s minimise, which installs them"
        )
    found = find_cell(options.cell, options.project, options.model)
    model, asked = find_start(found)
    target = options.to or Path(f"minimised-{found.case.id}-{found.entry.cell.version}")
    if target.exists() and not (target / REPORT).is_file():
        raise UsageError(f"{target} is there already, and is no result of minimise: name another by --to")
    others = [entry.cell.version.name for entry in found.row if entry is not found.entry]
    if options.good not in {None, *others}:
        raise UsageError(unlisted_version("--good", options.good or "", others))
    with contextlib.ExitStack() as exits:
        trials = Trials(found, asked, exits)
        search = Minimiser(found, model, trials, target, options.steps, options.seconds, options.good or "")
        code = search.run()
    print(to_json(search.data) if options.json else search.text(), end="")
    return code


@dataclass(frozen=True, kw_only=True)
class FailingModel:
    """A model, its sample by the names of its inputs, and the profile of dynamic inputs. Never changed."""

    model: ModelProto
    sample: Sample
    profile: Mapping[str, Range] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what is fed."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return tuple(info.name for info in self.model.graph.input if info.name not in weights)

    @property
    def is_dynamic(self) -> bool:
        """Whether an input takes several shapes."""
        fed = [info for info in self.model.graph.input if info.name in self.sample]
        return any(not d.HasField("dim_value") for info in fed for d in info.type.tensor_type.shape.dim)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of model, sample and profile (hexadecimal)."""
        total = sha256(self.model.SerializeToString(deterministic=True))
        total.update(f"{digest_samples([self.sample])} {sorted(self.profile.items())}".encode())
        return total.hexdigest()

    @property
    def size(self) -> dict[str, int]:
        """What a reader counts."""
        return {
            "nodes": len(self.model.graph.node), "inputs": len(self.inputs),
            "values": sum(array.size for array in self.sample.values()),
            "weights": sum(prod(tensor.dims) for tensor in self.model.graph.initializer),
        }  # fmt: skip

    def fed_with(self, model: ModelProto, values: Sample) -> FailingModel:
        """Return another model, which is fed with those of these values that it takes."""
        after = replace(self, model=model)
        profile = {name: shapes for name, shapes in self.profile.items() if name in after.inputs}
        return replace(after, sample={name: values[name] for name in after.inputs}, profile=profile)

    def write(self, folder: Path) -> None:
        """Write ``model.onnx`` and ``inputs.npz``."""
        (folder / "model.onnx").write_bytes(self.model.SerializeToString(deterministic=True))
        np.savez(folder / "inputs.npz", **dict(self.sample))  # type: ignore[arg-type] # arrays alone


def find_start(found: Found) -> tuple[FailingModel, ModelOptions]:
    """Return a failing cell as a plain model with the sample that is furthest off, and how it was built.

    :class:`UsageError` says why there is nothing, and what to do instead.
    """
    case, cell = found.case, found.entry.cell.id
    if case.control is Control.NEGATIVE:
        raise UsageError(
            f"{cell}: the defect of this control was put into its graph, not into the version: whatever is "
            "smaller would be compared with itself and be right\n  name a cell that fails by its version"
        )
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, found.product)
    refused = UsageError(
        f"{cell}: its run builds no engine of its own graph alone, marks inner tensors or makes inputs: no "
        f"smaller graph can stand for it\n  cut {found.loaded.file.name} down by hand: python -m trtmatrix "
        f"prepare {found.loaded.repro.id}/{case.id} writes its files"
    )
    if recipe is None or recipe.marked:
        raise refused
    file = folder / "model.onnx"
    size = sum(path.stat().st_size for path in [file, *find_external(file).values()])
    if size > LARGEST:
        raise UsageError(f"the model has {size >> 20} MiB: every step of the search would write them again")
    mark, whole = mark_of(worst_sample(found, recipe)[0], recipe.samples), load_whole(file)
    sample = {
        graph: np.load(folder / "inputs" / f"{name}{mark}.npy") for name, graph in recipe.inputs.items()
    }
    profile = {name: (low, best, high) for name, (low, best, high) in recipe.profile.items()}
    try:
        model = FailingModel(model=whole, sample={}, profile=profile).fed_with(whole, sample)
    except KeyError as error:
        raise refused from error
    build = {"level": recipe.level, "plugins": recipe.plugins, "keep_fp32": recipe.keep_fp32}
    asked = ModelOptions(
        atol=case.tolerance.get("atol"), rtol=case.tolerance.get("rtol"),
        precision=recipe.precision.removesuffix("-flag"),  # a typed graph is built as it is
        build={name: value for name, value in build.items() if value not in (None, False, ())},
        bug_is=tuple(sorted(cause.value for cause in case.bug_is)),
    )  # fmt: skip
    return model, asked


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a model did at a version. ``manner``: how it fails; None where it is right or cannot tell.

    ``right``: it passed. ``said``: in words. ``cell``: the cell's id. ``some``: not all of its engines fail.
    """

    manner: Manner | None
    right: bool
    said: str
    cell: str = ""
    some: bool = False


class Trials:
    """Runs models at versions, each of which is opened once; ``exits`` closes them.

    Records of trials lie in the cache, and are found again there.
    """

    def __init__(self, found: Found, asked: ModelOptions, exits: contextlib.ExitStack) -> None:
        self._found, self._asked, self._exits = found, asked, exits
        project = found.context.project
        self._scratch = project.cache / "minimise"
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._context = replace(found.context, project=replace(project, results=self._scratch / "results"))
        self._sessions: dict[str, Session] = {}

    def run(self, model: FailingModel, version: str, *, builds: int = 0, lasting: bool = False) -> Ran:
        """Run a model and say what it did; an interrupt goes through.

        ``builds``: engines, if not as many as a model of one's own has. ``lasting``: as a cell of its own,
        whose record and files stay, measured in a fresh process.
        """
        found, results = self._found, self._found.context.project.results if lasting else None
        cases, texts = CaseCache(self._context.project.cache), profile_texts(model.profile)
        try:
            with contextlib.ExitStack() as stack:
                name = stack.enter_context(tempfile.TemporaryDirectory(dir=self._scratch, prefix=".opening-"))
                model.write(Path(name))
                file = Path(name) / "model.onnx"
                if not lasting:  # no other model has this name; ids do not tell the inputs
                    file = file.rename(file.with_name(f"small-{model.digest[:8]}.onnx"))
                asked = replace(self._asked, model=file, inputs=Path(name) / "inputs.npz", profile=texts)
                context = open_model(self._context, asked)
                loaded = model_repro(context)
                if not lasting:  # its files would fill the disk
                    own = [cases.folder(loaded, case) for case in loaded.repro.cases]
                    stack.callback(_remove, cases.blobs, [context.project.repros.parent, *own])
                if version not in self._sessions:
                    gpu = found.entry.cell.gpu.slug if found.product is Product.TENSORRT else ""
                    self._sessions[version] = self._exits.enter_context(Session(context, version, gpu))
                entry = self._sessions[version].ask(loaded, builds=builds, results=results)
        except (TrtMatrixError, OSError) as error:  # a model that cannot be opened is the model's own trouble
            return Ran(manner=None, right=False, said=" ".join(str(error).split())[:300])
        outcome, manner = entry.outcome, manner_of(entry, read_calibration())
        said = f"{full_words(outcome)} {entry.figure}".strip() if outcome else "it did not run"
        reason = f": {outcome.reason}" if outcome and outcome.reason else ""
        return Ran(
            manner=manner, right=entry.verdict is Verdict.PASS, cell=str(entry.cell.id),
            said=manner.words if manner else f"{said}{reason}"[:300],
            some=outcome is not None and outcome.failed < outcome.builds,
        )  # fmt: skip


def _remove(blobs: Path, folders: Iterable[Path]) -> None:
    """Remove the folders of a trial, and those of their blobs that nothing else has."""
    mine = set[int]()  # the cache is on one disk
    for folder in folders:
        mine |= {file.lstat().st_ino for file in folder.rglob("*")}
        remove_tree(folder)
    for blob in blobs.glob("*"):
        with contextlib.suppress(OSError):
            if (status := blob.lstat()).st_ino in mine and status.st_nlink == 1:
                blob.unlink()


class Minimiser:
    """A search, and what came of it. ``best``: the smallest model so far, in the folder at any time.

    ``wanted``: in which way the cell fails. ``tried``: of each smaller model what was done to it, whether it
    fails in the same way, and why not. ``ended``: why it ended. ``smallest``: the cell of the result,
    whose record stays; empty where it was not run again, and ``last_said`` tells why, or what came of it.
    """

    def __init__(
        self, found: Found, model: FailingModel, trials: Trials, target: Path, steps: int, seconds: float,
        good: str = "",
    ) -> None:  # fmt: skip
        """Take where it starts, where the result goes, how long it may take, which version must be right."""
        self.model, self.trials, self.target, self.steps = model, trials, target, steps
        self.cell, self.version = str(found.entry.cell.id), found.entry.cell.version.name
        self.deadline = time.monotonic() + seconds
        self.best, self.manner, self.wanted, self.good = model, found.manner, found.manner, good
        outcome = found.entry.outcome
        self.builds = 1 if outcome and outcome.failed >= outcome.builds else 0  # a single one tells
        self.tried: list[dict[str, str]] = []
        self.ended, self.smallest, self.last_said = "nothing else that was tried can be smaller", "", ""
        self._seen = {model.digest}

    @property
    def is_smaller(self) -> bool:
        """Whether anything was kept."""
        return self.best is not self.model

    @property
    def data(self) -> dict[str, Any]:
        """All of it as JSON; the same search gives the same."""
        return {
            "schema": 3, "cell": self.cell, "manner": self.wanted.words, "good": self.good,
            "ended": self.ended, "before": self.model.size, "after": self.best.size,
            "smallest": self.smallest, "trials": self.tried,
        }  # fmt: skip

    def text(self) -> str:
        """Return it for a terminal."""
        count = Counter(step["answer"] for step in self.tried)
        lines = [
            f"fails: {self.wanted.words}",
            *[f"right at {self.good}, as is what is left of it"] * bool(self.good),
            f"before: {_size_text(self.model)}", f"after:  {_size_text(self.best)}", self.ended,
            f"{len(self.tried)} smaller models tried: {count[SAME]} kept, {count[NOT]} did not fail in the "
            f"same way, {count[CANNOT_SAY]} could not be made or run",
        ]  # fmt: skip
        lines = [self.cell, *(f"  {line}" for line in lines)]
        if not self.is_smaller:
            return "\n".join([*lines, "nothing smaller fails in the same way", ""])
        lines += [f"{self.target}: model.onnx, its inputs, {REPORT} (what was tried)"]
        lines += [f"  {self.last_said}"] if self.last_said else []
        next_words = f"Next:\n  python -m trtmatrix bundle make {self.smallest}"
        return "\n".join([*lines, *[next_words] * bool(self.smallest), ""])

    def run(self) -> ExitCode:
        """Search until nothing is smaller, the budget is spent, or it is interrupted."""
        self._find_baseline()
        try:
            self._reduce()
            if not self._has_time():
                self.ended = f"its {self.steps} steps or its time are used: more by --steps, --seconds"
            self._write()
            return self._run_once_more() if self.is_smaller else ExitCode.SURPRISE
        except KeyboardInterrupt:
            self.ended = "it was interrupted; what is here is the smallest so far"
            self._write()
            return ExitCode.INTERRUPTED

    def _find_baseline(self) -> None:
        """Learn how the cell's model fails as a plain model; :class:`MachineryError` where it does not so."""
        ran = self.trials.run(self.model, self.version, builds=0)
        if ran.manner is None:
            raise MachineryError(
                f"{self.cell}: its graph run as a plain model does not fail: {ran.said}\n  what fails is "
                "more than the graph: its run, or a limit or a defect of its own"
            )
        if differs := same_manner(self.manner, ran.manner):
            raise MachineryError(f"{self.cell}: its graph run as a plain model: {differs}")
        self.wanted = ran.manner
        self.builds = 0 if ran.some else GARBAGE_BUILDS if ran.manner.is_garbage else self.builds
        tell(f"{self.cell}: {self.wanted.words}")
        if self.good and not (ran := self.trials.run(self.model, self.good)).right:
            raise MachineryError(
                f"--good {self.good}: it is not right there: {ran.said}\n  name a version at which it passes"
            )

    def _reduce(self) -> None:
        """Make it smaller: first what makes each further trial cheap, then the nodes."""
        self._try("shapes fixed, constants folded", lambda: fold_to_static(self.best))
        if self.best.is_dynamic:
            self.ended = "it fails with dynamic shapes only, which Polygraphy's reducer would fix: nodes stay"
            return
        for mode in ("bisect", "linear", "linear", "linear"):
            before = self.best
            if before.size["nodes"] == 1 or not self._has_time():
                return
            if ended := reduce_nodes(before, mode, partial(self._try_fewer_nodes, mode), self._has_time):
                self.ended = f"Polygraphy's reducer ({mode}): {ended}"
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
        self.tried.append({"what": what, "answer": answer, "said": said})
        if answer == SAME:
            self.best, said = model, _size_text(model)
            self._write()
        told = {SAME: "kept", NOT: "no"}.get(answer, answer)
        tell(f"  [{len(self.tried)}] {what} — {told} ({said})")
        return answer == SAME

    def _check(self, model: FailingModel) -> tuple[str, str]:
        """Say whether a model fails in the way that is wanted, and why not."""
        bad = self.trials.run(model, self.version, builds=min(self.builds, 1))
        if bad.manner is None and self.builds > 1:  # garbage may happen to be right in one engine
            bad = self.trials.run(model, self.version, builds=self.builds)
        if bad.manner is None:
            return (NOT if bad.right else CANNOT_SAY), bad.said
        if differs := self._differs(bad.manner):
            return NOT, differs
        good = self.trials.run(model, self.good, builds=self.builds) if self.good else None
        if good is None or good.right:
            return SAME, bad.said
        return (NOT if good.manner else CANNOT_SAY), f"{self.good} is not right: {good.said}"

    def _differs(self, found: Manner) -> str:
        if found.kind is Kind.SHAPE and self.wanted.kind is Kind.WRONG:
            return ""  # a tensor before them may have had that shape, and was stretched to theirs
        return same_manner(self.wanted, found)

    def _has_time(self) -> bool:
        return len(self.tried) < self.steps and time.monotonic() < self.deadline

    def _run_once_more(self) -> ExitCode:
        """Run the result as a cell of its own whose record stays, so that it can be bundled.

        It must fail as the whole does there, too: it has more engines than a trial, in a fresh process.
        """
        tell("run once more, as a cell of its own")
        ran = self.trials.run(self.best, self.version, lasting=True)
        differs = self._differs(ran.manner) if ran.manner else ran.said
        self.smallest, self.last_said = "" if differs else ran.cell, f"run once more: {differs or ran.said}"
        self._write()
        return ExitCode.SURPRISE if differs else ExitCode.AS_EXPECTED

    def _write(self) -> None:
        """Write the smallest model so far, if any, its inputs and the report, in place of those of before."""
        if not self.is_smaller:
            return
        self.target.mkdir(parents=True, exist_ok=True)
        with undisturbed():  # all of it is replaced, or none
            self.best.write(self.target)
            (self.target / REPORT).write_text(to_json(self.data), encoding="utf-8")


def _size_text(model: FailingModel) -> str:
    nodes, values, weights = (f"{model.size[name]:,}" for name in ("nodes", "values", "weights"))
    return f"{nodes} node{'' if nodes == '1' else 's'}, {values} numbers fed, {weights} in weights"


def fold_to_static(failing: FailingModel) -> FailingModel:
    """Return the model for the shapes of its sample alone, with what depends on shapes computed.

    :class:`NotComputedError` where Polygraphy cannot do it.
    """
    shapes = [f"{name}:[{','.join(map(str, array.shape))}]" for name, array in failing.sample.items()]
    with tempfile.TemporaryDirectory() as name:
        failing.write(Path(name))
        words = ["surgeon", "sanitize", "model.onnx", "-o", "folded.onnx", "--fold-constants"]
        done = subprocess.run(
            [*POLYGRAPHY, *words, "--override-input-shapes", *shapes], cwd=name, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise NotComputedError(f"polygraphy surgeon sanitize: {_last_line(done.stdout)}")
        model = onnx.load(str(Path(name) / "folded.onnx"))
    return replace(failing.fed_with(model, failing.sample), profile={})


def reduce_nodes(
    failing: FailingModel, mode: str, fails: Callable[[FailingModel], bool], goes_on: Callable[[], bool]
) -> str:
    """Reduce the nodes of a model; returns why it ended before its end, if it did.

    ``mode``: bisect or linear. ``fails`` is asked of each graph, fed with what the whole model has there; it
    keeps what it likes. ``goes_on``: False ends it. An interrupt goes through; nothing is left running.
    """
    from polygraphy.json import save_json  # type: ignore[import-untyped] # it has no types

    known = dict(failing.sample)

    def is_failing(file: Path) -> bool:
        try:
            model = onnx.load(str(file))
            weights = {tensor.name for tensor in model.graph.initializer}
            if missing := {info.name for info in model.graph.input} - weights - set(known):
                whole = onnx.ModelProto()
                whole.CopyFrom(failing.model)
                del whole.graph.output[:]
                whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(missing))
                known.update(OnnxSession(bytes(whole.SerializeToString())).run(failing.sample))
            candidate = failing.fed_with(model, known)
        except (NotComputedError, ValueError, KeyError):
            return False
        return bool(candidate.inputs) and fails(candidate)

    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        failing.write(folder)
        save_json([dict(failing.sample)], str(folder / "inputs.json"))  # what is cut off is frozen to it
        words = ["debug", "reduce", "model.onnx", "-o", "reduced.onnx", "--mode", mode]
        with deferred():
            process = subprocess.Popen(
                [*POLYGRAPHY, *words, "--load-inputs", "inputs.json"], cwd=folder, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, start_new_session=True,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
        said = b""
        while process.stdin and process.stdout and (part := process.stdout.read(1 << 16)):
            said = (said + part)[-2000:]
            if said.endswith(QUESTION):
                if not goes_on():
                    return "the budget is spent"
                process.stdin.write(b"f\n" if is_failing(folder / GRAPH) else b"p\n")
        return f"exit code {process.returncode}: {_last_line(said)}" if process.wait() else ""


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no word")
