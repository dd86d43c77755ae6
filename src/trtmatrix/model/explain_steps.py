"""One step of ``--explain``: the user's model with further outputs, run at one version like any other."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.tensors import Range
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import other_shapes, subject_of
from trtmatrix.judge.record import RAN, Measured, Record
from trtmatrix.model.explain_search import Errors, in_floors
from trtmatrix.plan.context import Context
from trtmatrix.suite.repro_files import LoadedRepro

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.marking import Markable
    from trtmatrix.run.session import Session

FOLDER = "explain"
"""Where in the cache the records of steps lie: the same step is served from there."""


class Steps:
    """Runs a model at one version with tensors marked, of one sample: that which is furthest off."""

    def __init__(
        self, context: Context, args: argparse.Namespace, entry: Entry, calibration: Calibration,
        session: Session,
    ) -> None:  # fmt: skip
        """Take the context of the model's own repro, what was asked, and the entry that fails."""
        from trtmatrix.model.own_model import choose_inputs, model_repro
        from trtmatrix.onnxmodel.reading import read_model

        self._context, self._args, self.entry, self._calibration = context, args, entry, calibration
        self._session = session
        self._names = outputs_of(model_repro(context))
        self._inputs = choose_inputs(read_model(args.model), args.inputs, args.profile)
        self.sample = 0

    @property
    def samples(self) -> int:
        """How many samples the model has."""
        return len(self._inputs.samples)

    def stored(self) -> Errors | str:
        """Return the outputs' errors in the sample that is looked at, by the record of the failure itself."""
        from trtmatrix.onnxmodel.preparing import mark_of

        mark = mark_of(self.sample, self.samples)
        if self.entry.record is None:
            return "there is no record of it"
        own = frozenset(self._names.values())
        return errors_of(self.entry.record, self.entry, self._names, self._calibration, own, mark)

    def measure(self, markable: Markable, tensors: tuple[str, ...]) -> Errors | str:
        """Return the errors of the outputs and of marked tensors, or why there are none."""
        try:
            opened = self._open(markable, tensors)
            every = self.entry.outcome is None or self.entry.outcome.failed >= self.entry.outcome.builds
            found = self._session.ask(opened, builds=1 if every else 0)
        except (TrtMatrixError, OSError) as error:
            return " ".join(str(error).split())[:300]
        if found.record is None:
            return "it did not run"
        own = frozenset(self._names.values())
        errors = errors_of(found.record, found, outputs_of(opened), self._calibration, own)
        if isinstance(errors, str):
            return errors
        lacking = [tensor for tensor in tensors if tensor not in errors.floors]
        return f"no noise floor is known of {', '.join(lacking)}" if lacking else errors

    def _open(self, markable: Markable, tensors: tuple[str, ...]) -> LoadedRepro:
        """Make the marked model a repro, of the one sample."""
        import numpy as np

        from trtmatrix.model.own_model import model_repro, open_model
        from trtmatrix.onnxmodel.marking import write_marked

        root = self._context.project.cache / FOLDER
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".marking-") as name:
            folder = Path(name)
            marked = write_marked(markable, tensors, folder / "model")
            marked = marked.rename(marked.with_name("explained.onnx"))  # its cells are not the model's own
            np.savez(folder / "inputs.npz", **self._inputs.samples[self.sample])  # type: ignore[arg-type] # arrays alone
            args = {
                **vars(self._args), "model": marked, "inputs": folder / "inputs.npz", "check": None,
                "explain": False, "atol": None, "rtol": None, "profile": profile_texts(self._inputs.profile),
            }  # fmt: skip
            return model_repro(open_model(self._context, argparse.Namespace(**args)))


def find_worst(steps: Steps, markable: Markable) -> Errors | str:
    """Choose the sample whose outputs are furthest off, and return their errors; or why there are none.

    Where the record has none, as an output has another shape than its reference, each sample is run anew.
    """
    found: list[Errors] = []
    again = steps.entry.record is not None and bool(other_shapes(steps.entry.record))
    for number in range(steps.samples):
        steps.sample = number
        errors = steps.measure(markable, ()) if again else steps.stored()
        if isinstance(errors, str):
            return errors
        found.append(errors)
    steps.sample = max(
        range(len(found)), key=lambda n: max(map(_size, found[n].floors.values()), default=-1.0)
    )
    return found[steps.sample]


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


def errors_of(
    record: Record, entry: Entry, names: Mapping[str, str], calibration: Calibration,
    outputs: frozenset[str], mark: str = "",
) -> Errors | str:  # fmt: skip
    """Return the errors of tensors, of the build that is furthest off; or why there are none.

    ``names``: a record's names → the graph's. ``outputs``: the model's own, whose floors are taken as they
    are; those of inner tensors are never less than one rounding. ``mark`` stands behind names of one sample.
    """
    shapes = other_shapes(record)
    if record.ended != RAN and not shapes:
        return f"{record.ended}: {record.detail[:200]}".rstrip(": ")
    subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
    noise = subject.noise
    if noise is None:
        return "no noise floor is known"

    def read(build: Measured) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, tensor in names.items():
            if name + mark in shapes:
                found[tensor] = math.inf
                continue
            values, floor = build.outputs.get(name + mark), noise.floor(name + mark, subject.precision)
            if values is None or floor is None or "rel_l2" not in values:
                continue
            error = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
            own = tensor in outputs and floor
            found[tensor] = error / floor if own else in_floors(error, floor, subject.precision)
        return found

    builds = [read(build) for build in record.builds]
    worst = max(builds, key=lambda found: max((_size(found[t]) for t in found if t in outputs), default=0.0))
    named = {tensor: shapes[name + mark] for name, tensor in names.items() if name + mark in shapes}
    return Errors(floors=worst, shapes=named)


def _size(floors: float) -> float:
    return math.inf if math.isnan(floors) else floors
