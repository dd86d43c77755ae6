"""What minimise starts from, and how smaller models are tried: each at two versions that stay open."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.manner import Manner, manner_of
from trtmatrix.bugs.script import read_recipe
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.judge.entry import full_words
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.onnxmodel.graphs import find_external, load_whole
from trtmatrix.onnxmodel.inputs import Range, digest_samples, profile_texts
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run.session import Session
from trtmatrix.suite.model import Control, Product, Verdict

Array = NDArray[Any]
Sample = Mapping[str, Array]

LARGEST = 1 << 30
"""Bytes of a model that is still copied for each step of a search; protobuf itself ends at twice that."""


@dataclass(frozen=True, kw_only=True)
class FailingModel:
    """A model, its samples by the names of its inputs, and the profile of dynamic inputs. Never changed."""

    model: ModelProto
    samples: tuple[Sample, ...]
    profile: Mapping[str, Range] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what is fed."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return tuple(info.name for info in self.model.graph.input if info.name not in weights)

    @property
    def is_dynamic(self) -> bool:
        """Whether an input takes several shapes."""
        fed = [info for info in self.model.graph.input if info.name in self.samples[0]]
        return any(not d.HasField("dim_value") for info in fed for d in info.type.tensor_type.shape.dim)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of model, samples and profile (hexadecimal)."""
        total = sha256(self.model.SerializeToString(deterministic=True))
        total.update(f"{digest_samples(self.samples)} {sorted(self.profile.items())}".encode())
        return total.hexdigest()

    @property
    def size(self) -> dict[str, int]:
        """What a reader counts."""
        return {
            "nodes": len(self.model.graph.node), "inputs": len(self.inputs), "samples": len(self.samples),
            "values": sum(array.size for sample in self.samples for array in sample.values()),
            "weights": sum(prod(tensor.dims) for tensor in self.model.graph.initializer),
        }  # fmt: skip

    def fed_with(self, model: ModelProto, values: Sequence[Sample]) -> FailingModel:
        """Return another model, which is fed by sample with those of these values that it takes."""
        after = replace(self, model=model)
        samples = tuple({name: sample[name] for name in after.inputs} for sample in values)
        profile = {name: shapes for name, shapes in self.profile.items() if name in after.inputs}
        return replace(after, samples=samples, profile=profile)


def write_failing_model(failing: FailingModel, folder: Path) -> tuple[Path, Path]:
    """Write ``model.onnx`` and its inputs: ``inputs.npz``, or a folder ``inputs`` of several samples."""
    model, count = folder / "model.onnx", len(failing.samples)
    model.write_bytes(failing.model.SerializeToString(deterministic=True))
    inputs = folder / ("inputs.npz" if count == 1 else "inputs")
    if count > 1:
        inputs.mkdir()
    for number, sample in enumerate(failing.samples):
        file = inputs if count == 1 else inputs / f"{number:0{len(str(count - 1))}}.npz"
        np.savez(file, **dict(sample))  # type: ignore[arg-type] # arrays alone
    return model, inputs


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


def find_start(found: Found) -> Start:
    """Return what to minimise; :class:`UsageError` says why there is nothing, and what to do instead."""
    entry, case = found.entry, found.case
    cell = entry.cell.id
    if case.control is Control.NEGATIVE:
        raise UsageError(
            f"{cell}: the defect of this control was put into its graph, not into the version: whatever is "
            "smaller would be compared with itself and be right\n  name a cell that fails by its version"
        )
    manner, outcome = found.manner, entry.outcome
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, entry.cell.version.product)
    if recipe is None or recipe.marked:
        why = "marks inner tensors of its graph" if recipe else "builds no engine of its own graph by itself"
        raise UsageError(
            f"{cell}: its run {why}, so that no smaller graph can stand for it\n  cut "
            f"{found.loaded.file.name} down by hand: python -m trtmatrix prepare "
            f"{found.loaded.repro.id}/{case.id} writes its files"
        )
    marks = [mark_of(number, recipe.samples) for number in range(recipe.samples)]
    samples = [
        {graph: np.load(folder / "inputs" / f"{name}{mark}.npy") for name, graph in recipe.inputs.items()}
        for mark in marks
    ]
    file = folder / "model.onnx"
    size = sum(path.stat().st_size for path in [file, *find_external(file).values()])
    if size > LARGEST:
        raise UsageError(f"the model has {size >> 20} MiB: every step of the search would write them again")
    whole = load_whole(file)
    profile = {name: (low, best, high) for name, (low, best, high) in recipe.profile.items()}
    try:
        model = FailingModel(model=whole, samples=(), profile=profile).fed_with(whole, samples)
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
    every = outcome is not None and outcome.failed >= outcome.builds
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

    Records of trials lie in the cache, and are found again there.
    """

    def __init__(self, start: Start, exits: contextlib.ExitStack) -> None:
        context = start.found.context
        self._start = start
        self._lasting = context.project.results
        self._scratch = context.project.cache / "minimise"
        self._scratch.mkdir(parents=True, exist_ok=True)
        project = replace(context.project, results=self._scratch / "results")
        self._context = replace(context, project=project)
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
                    found = self._start.found
                    gpu = found.entry.cell.gpu.slug if found.product is Product.TENSORRT else ""
                    self._sessions[version] = self._exits.enter_context(Session(context, version, gpu))
                results = self._lasting if lasting else None
                entry = self._sessions[version].ask(loaded, builds=builds, results=results)
        except (TrtMatrixError, OSError) as error:  # a model that cannot be opened is the model's own trouble
            return Ran(manner=None, right=False, said=" ".join(str(error).split())[:300])
        outcome, manner = entry.outcome, manner_of(entry, self._start.found.calibration)
        said = f"{full_words(outcome)} {entry.figure}".strip() if outcome else "it did not run"
        reason = f": {outcome.reason}" if outcome and outcome.reason else ""
        return Ran(
            manner=manner, right=outcome is not None and outcome.verdict is Verdict.PASS,
            said=manner.words if manner else f"{said}{reason}"[:300], cell=str(entry.cell.id),
            some=outcome is not None and outcome.failed < outcome.builds,
        )  # fmt: skip

    def _open(self, model: FailingModel, stack: contextlib.ExitStack | None) -> Context:
        """Make a model a repro; ``stack`` removes what was not there before."""
        cache = self._context.project.cache
        before = {folder.name for folder in (cache / "models").glob("*")}
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix=".opening-") as name:
            file, inputs = write_failing_model(model, Path(name))
            if stack is not None:  # ids of models that differ by their inputs alone are not the same
                file = file.rename(file.with_name(f"small-{model.digest[:8]}.onnx"))
            texts = profile_texts(model.profile)
            asked = replace(self._start.asked, model=file, inputs=inputs, profile=texts)
            opened = open_model(self._context, asked)
        loaded = model_repro(opened)
        if stack is not None:
            cases, folder = CaseCache(cache), opened.project.repros.parent
            fresh = [cases.folder(loaded, case) for case in loaded.repro.cases]
            fresh = [item for item in fresh if not item.exists()]
            fresh += [folder] if folder.name not in before else []
            stack.callback(_remove, cases.blobs, fresh)
        selection = replace(opened.selection, repros=(loaded.repro.id,), cases=())
        return replace(opened, repros={loaded.repro.id: loaded}, selection=selection)


def _remove(blobs: Path, folders: Iterable[Path]) -> None:
    """Remove the files of a trial, which would fill the disk; blobs only where nothing else has them."""
    mine = set[int]()  # the cache is on one disk
    for folder in folders:
        mine |= {file.lstat().st_ino for file in folder.rglob("*")}
        remove_tree(folder)
    with contextlib.suppress(OSError):
        for blob in blobs.iterdir():
            status = blob.lstat()
            if status.st_ino in mine and status.st_nlink == 1:
                blob.unlink(missing_ok=True)
