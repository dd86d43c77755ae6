"""What minimise starts from, and how smaller models are tried: each at two versions that stay open."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.failing_model import FailingModel, read_failing_model, write_failing_model
from trtmatrix.bugs.manner import Manner, manner_of
from trtmatrix.bugs.recipe import read_recipe
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import full_words
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model, profile_texts
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run.session import Session
from trtmatrix.suite.model import Control, Product, Verdict

PRECISIONS = {"fp16-flag": "fp16", "tf32": "tf32", "fp32": "fp32", "fp16": "fp16"}
"""The probe's precision → what --precision calls it. Any other graph is built as it is typed."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A failing cell as a plain model. ``manner``: in which way the cell fails.

    ``asked``: the options that open a model which is built as this one was. ``every``: each of the cell's
    engines fails, so that a single one tells.
    """

    found: Found
    manner: Manner
    model: FailingModel
    asked: ModelOptions
    every: bool

    @property
    def cell(self) -> str:
        """The id of the cell."""
        return str(self.found.entry.cell.id)

    @property
    def version(self) -> str:
        """The version at which it fails."""
        return self.found.entry.cell.version.name

    @property
    def gpu(self) -> str:
        """The slug of the GPU that it ran on; empty for the CPU."""
        cell = self.found.entry.cell
        return cell.gpu.slug if cell.version.product is Product.TENSORRT else ""


def find_start(found: Found) -> Start:
    """Return what to minimise; :class:`UsageError` says why there is nothing, and what to do instead."""
    entry, case = found.entry, found.case
    cell = entry.cell.id
    if case.control is Control.NEGATIVE:
        raise UsageError(
            f"{cell}: the defect of this control was put into its graph, not into the version: whatever is "
            "smaller would be compared with itself and be right\n  name a cell that fails by its version"
        )
    manner, outcome = manner_of(entry, found.calibration), entry.outcome
    if manner is None or outcome is None:
        raise UsageError(f"{cell}: its records do not say in which way it fails: run it again by --rerun")
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, entry.cell.version.product)
    if recipe is None or recipe.marked:
        why = "marks inner tensors of its graph" if recipe else "builds no engine of its own graph by itself"
        raise UsageError(
            f"{cell}: its run {why}, so that no smaller graph can stand for it\n  cut "
            f"{found.loaded.file.name} down by hand: python -m trtmatrix prepare "
            f"{found.loaded.repro.id}/{case.id} writes its files"
        )
    samples = [
        {
            graph: np.load(folder / "inputs" / f"{name}{mark_of(number, recipe.samples)}.npy")
            for name, graph in recipe.inputs.items()
        }
        for number in range(recipe.samples)
    ]
    try:
        profile = {name: (low, best, high) for name, (low, best, high) in recipe.profile.items()}
        model = read_failing_model(folder / "model.onnx", samples, profile)
    except KeyError as error:
        raise UsageError(
            f"{cell}: its run makes the input {error} itself: nothing is known to feed a smaller graph with\n"
            "  name a cell of a model of your own: --model with --inputs"
        ) from error
    build = {"level": recipe.level, "plugins": recipe.plugins, "keep_fp32": recipe.keep_fp32}
    asked = ModelOptions(
        atol=case.tolerance.get("atol"), rtol=case.tolerance.get("rtol"),
        precision=PRECISIONS.get(recipe.precision, "tf32"),
        build={name: value for name, value in build.items() if value not in (None, False, ())},
        bug_is=tuple(sorted(cause.value for cause in case.bug_is)),
    )  # fmt: skip
    every = outcome.failed >= outcome.builds
    return Start(found=found, manner=manner, model=model, asked=asked, every=every)


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

    ``cache``: the folder of the cache where records of trials lie and are found again.
    """

    def __init__(self, start: Start, cache: str, exits: contextlib.ExitStack) -> None:
        context = start.found.context
        results = context.project.cache / cache / "results"
        self._start = start
        self._context = replace(context, project=replace(context.project, results=results))
        self._lasting = context.project.results
        self._scratch = context.project.cache / cache
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._sessions: dict[str, Session] = {}
        self._exits = exits

    def run(self, model: FailingModel, version: str, *, builds: int = 0, lasting: bool = False) -> Ran:
        """Run a model and say what it did; an interrupt goes through.

        ``builds``: engines, if not as many as a model of one's own has. ``lasting``: as a cell of its own,
        whose record and files stay, measured in a fresh process.
        """
        try:
            with contextlib.ExitStack() as stack:
                context = self._open(model, None if lasting else stack)
                loaded = model_repro(context)
                if version not in self._sessions:
                    opened = self._exits.enter_context(Session(context, version, self._start.gpu))
                    self._sessions[version] = opened
                results = self._lasting if lasting else None
                return self._read(self._sessions[version].ask(loaded, builds=builds, results=results))
        except (TrtMatrixError, OSError) as error:  # a model that cannot be opened is the model's own trouble
            return Ran(manner=None, right=False, said=" ".join(str(error).split())[:300])

    def _open(self, model: FailingModel, stack: contextlib.ExitStack | None) -> Context:
        """Make a model a repro; ``stack`` removes what was not there before."""
        cache = self._context.project.cache
        before = {folder.name for folder in (cache / "models").glob("*")}
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix=".opening-") as name:
            file, inputs = write_failing_model(model, Path(name))
            if stack is not None:  # ids of models that differ by their inputs alone are not the same
                file = file.rename(file.with_name(f"small-{model.digest[:8]}.onnx"))
            profile = profile_texts(model.profile)
            opened = open_model(
                self._context, replace(self._start.asked, model=file, inputs=inputs, profile=profile)
            )
        loaded = model_repro(opened)
        if stack is not None:
            cases, folder = CaseCache(cache), opened.project.repros.parent
            fresh = [cases.folder(loaded, case) for case in loaded.repro.cases]
            fresh = [item for item in fresh if not item.exists()]
            fresh += [folder] if folder.name not in before else []
            stack.callback(_remove, cases.blobs, fresh)
        selection = replace(opened.selection, repros=(loaded.repro.id,), cases=())
        return replace(opened, repros={loaded.repro.id: loaded}, selection=selection)

    def _read(self, entry: Entry) -> Ran:
        """Return what the record of a trial says."""
        outcome, manner = entry.outcome, manner_of(entry, self._start.found.calibration)
        said = f"{full_words(outcome)} {entry.figure}".strip() if outcome else "it did not run"
        reason = f": {outcome.reason}" if outcome and outcome.reason else ""
        return Ran(
            manner=manner, right=outcome is not None and outcome.verdict is Verdict.PASS,
            said=manner.words if manner else f"{said}{reason}"[:300], cell=str(entry.cell.id),
            some=outcome is not None and outcome.failed < outcome.builds,
        )  # fmt: skip


def _remove(blobs: Path, folders: Iterable[Path]) -> None:
    """Remove the files of a trial: dozens of large models would fill the disk.

    What lies in ``blobs`` by its content goes where nothing else has it.
    """
    mine = set[tuple[int, int]]()
    for folder in folders:
        for file in folder.rglob("*"):
            status = file.lstat()
            mine.add((status.st_dev, status.st_ino))
        remove_tree(folder)
    with contextlib.suppress(OSError):
        for blob in blobs.iterdir():
            status = blob.lstat()
            if (status.st_dev, status.st_ino) in mine and status.st_nlink == 1:
                blob.unlink(missing_ok=True)
