"""One step of ``--explain``: the user's model with further outputs, run at one version like any other."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.context import Context
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.explain import in_floors
from trtmatrix.core.judge import subject_of
from trtmatrix.core.model import Product
from trtmatrix.core.plan import Pull
from trtmatrix.core.record import RAN, Measured, Record
from trtmatrix.core.tensors import Range
from trtmatrix.effects.repro_files import LoadedRepro

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trtmatrix.onnxmodel.marking import Markable

FOLDER = "explain"
"""Where in the cache the records of steps lie: the same step is served from there."""


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The sample that a failure is looked at in: its number and inputs, and the profile of all samples."""

    number: int
    feeds: Mapping[str, NDArray[Any]]
    profile: Mapping[str, Range]


class Steps:
    """Runs a model at one version with tensors marked."""

    def __init__(
        self, context: Context, args: argparse.Namespace, entry: Entry, worst: Worst, calibration: Calibration
    ) -> None:  # fmt: skip
        """Take the context of the model's own repro, what was asked, and the entry that fails."""
        from trtmatrix.own_model import model_repro

        self._context, self._args, self._entry, self._calibration = context, args, entry, calibration
        self._worst, self._outputs = worst, frozenset(outputs_of(model_repro(context)).values())

    def measure(self, markable: Markable, tensors: tuple[str, ...]) -> Mapping[str, float] | str:
        """Return the errors of the outputs and of marked tensors in noise floors, or why there are none."""
        try:
            opened = self._open(markable, tensors)
            return self._run(opened, tensors)
        except (TrtMatrixError, OSError) as error:
            return " ".join(str(error).split())[:300]

    def _open(self, markable: Markable, tensors: tuple[str, ...]) -> Context:
        """Make the marked model a repro, of the worst sample alone and of one build."""
        import numpy as np

        from trtmatrix.onnxmodel.marking import write_marked
        from trtmatrix.own_model import model_repro, open_model

        root = self._context.project.cache / FOLDER
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".marking-") as name:
            folder = Path(name)
            marked = write_marked(markable, tensors, folder / "model")
            np.savez(folder / "inputs.npz", **self._worst.feeds)  # type: ignore[arg-type] # arrays alone
            args = {
                **vars(self._args), "model": marked, "inputs": folder / "inputs.npz", "check": None,
                "explain": False, "atol": None, "rtol": None, "profile": profile_texts(self._worst.profile),
            }  # fmt: skip
            opened = open_model(self._context, argparse.Namespace(**args))
        loaded, cell = model_repro(opened), self._entry.cell
        gpus = (cell.gpu.slug,) if cell.version.product is Product.TENSORRT else ()
        return replace(
            opened, controls=False, repros={loaded.repro.id: self._cheap(loaded)},
            project=replace(opened.project, results=root / "results"),
            selection=replace(opened.selection, versions=(cell.version.name,), gpus=gpus,
                              repros=(loaded.repro.id,), cases=()),
        )  # fmt: skip

    def _cheap(self, loaded: LoadedRepro) -> LoadedRepro:
        """Return a repro of one build, where each build of the model fails."""
        outcome = self._entry.outcome
        if outcome is not None and outcome.failed < outcome.builds:
            return loaded
        cases = tuple(replace(case, builds=1) for case in loaded.repro.cases)
        return replace(loaded, repro=replace(loaded.repro, cases=cases))

    def _run(self, opened: Context, tensors: tuple[str, ...]) -> Mapping[str, float] | str:
        from trtmatrix.own_model import model_repro
        from trtmatrix.perform import Options, perform
        from trtmatrix.scene import look_around

        options = Options(confirm=False)
        if hasattr(self._args, "memory"):
            from trtmatrix.commands import options_of

            options = replace(options_of(self._args), confirm=False, rebuilds=1, rerun=False)
        scene = look_around(opened, Pull.NEVER)
        result = perform(opened, scene, options)
        entry = next((e for e in result.entries if e.cell.version == self._entry.cell.version), None)
        record = entry.record if entry else None
        if entry is None or record is None:
            reasons = [*result.performed.not_ready, *([entry.excluded] if entry and entry.excluded else [])]
            return (
                "; ".join(f"{item.why.value} {item.detail}".strip() for item in reasons) or "it did not run"
            )
        names = outputs_of(model_repro(opened))
        floors = floors_of(record, entry, names, self._calibration, self._outputs)
        if isinstance(floors, str):
            return floors
        lacking = [tensor for tensor in tensors if tensor not in floors]
        return f"no noise floor is known of {', '.join(lacking)}" if lacking else floors


def outputs_of(loaded: LoadedRepro) -> dict[str, str]:
    """Return what a model's repro calls its outputs → their names in the graph."""
    return dict(loaded.module.OUTPUTS)


def samples_of(loaded: LoadedRepro) -> int:
    """Return how many samples a model's repro has."""
    return int(loaded.module.SAMPLES)


def profile_texts(profile: Mapping[str, Range]) -> list[str]:
    """Return a profile as the command line takes it: ``ids=1x16:4x128:8x512``."""
    return [
        f"{name}={':'.join('x'.join(map(str, shape)) for shape in shapes)}"
        for name, shapes in profile.items()
    ]


def floors_of(
    record: Record, entry: Entry, names: Mapping[str, str], calibration: Calibration,
    outputs: frozenset[str], mark: str = "",
) -> dict[str, float] | str:  # fmt: skip
    """Return the errors of tensors in noise floors, of the build that is furthest off; or why there are none.

    ``names``: a record's names → the graph's. ``outputs``: the model's own, whose floors are taken as they
    are; those of inner tensors are never less than one rounding. ``mark`` stands behind names of one sample.
    """
    if record.ended != RAN:
        return f"{record.ended}: {record.detail[:200]}".rstrip(": ")
    subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
    noise = subject.noise
    if noise is None:
        return "no noise floor is known"

    def read(build: Measured) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, tensor in names.items():
            values, floor = build.outputs.get(name + mark), noise.floor(name + mark, subject.precision)
            if values is None or floor is None or "rel_l2" not in values:
                continue
            error = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
            own = tensor in outputs and floor
            found[tensor] = error / floor if own else in_floors(error, floor, subject.precision)
        return found

    builds = [read(build) for build in record.builds]
    return max(builds, key=lambda found: max((_size(found[t]) for t in found if t in outputs), default=0.0))


def _size(floors: float) -> float:
    return math.inf if math.isnan(floors) else floors


def find_worst(
    entry: Entry, context: Context, args: argparse.Namespace, calibration: Calibration
) -> tuple[Worst, dict[str, float]] | str:
    """Return the sample whose outputs are furthest off and their errors in noise floors; or why not."""
    from trtmatrix.onnxmodel.preparing import mark_of
    from trtmatrix.onnxmodel.reading import read_model
    from trtmatrix.own_model import choose_inputs, model_repro

    loaded, record = model_repro(context), entry.record
    if record is None:
        return "there is no record of it"
    names, count = outputs_of(loaded), samples_of(loaded)
    found: list[dict[str, float]] = []
    for number in range(count):
        floors = floors_of(
            record, entry, names, calibration, frozenset(names.values()), mark_of(number, count)
        )
        if isinstance(floors, str):
            return floors
        found.append(floors)
    number = max(range(count), key=lambda n: max(map(_size, found[n].values()), default=-1.0))
    inputs = choose_inputs(read_model(args.model), args.inputs, args.profile)
    return Worst(number=number, feeds=inputs.samples[number], profile=inputs.profile), found[number]
