"""Runs smaller models at the cell's version, as any model of the user's own, and says how they fail."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.context import Context
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.manner import Manner, manner_of, same_manner
from trtmatrix.core.minimise import Answer
from trtmatrix.core.model import Product, Verdict
from trtmatrix.core.plan import Pull
from trtmatrix.core.words import full_words
from trtmatrix.effects.repro_files import LoadedRepro
from trtmatrix.explain_steps import profile_texts
from trtmatrix.minimise_start import Start

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.subject import Subject

FOLDER = "minimise"
"""Where in the cache the records of trials lie: the same search is served from there."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one model did at one version. ``manner``: how it fails; None where it is right or cannot tell.

    ``right``: it passed. ``said``: in words. ``record``: the cell's id.
    """

    manner: Manner | None
    right: bool
    said: str
    cell: str = ""


class Trials:
    """Runs models in the place of one cell's."""

    def __init__(self, start: Start, scratch: Path) -> None:
        """Take what is minimised; ``scratch``: a folder in the cache."""
        self._start, self.scratch = start, scratch
        self._checked: bool | None = None

    def check(self, wanted: Manner, subject: Subject) -> tuple[Answer, str, bool]:
        """Say whether a model fails in the way that is wanted, in words, and whether anything was run."""
        if trouble := self.trouble_of(subject):
            return Answer.CANNOT_SAY, trouble, False
        bad = self.run(subject, self._start.found.entry.cell.version.name)
        if bad.manner is None:
            return (Answer.NOT if bad.right else Answer.CANNOT_SAY), bad.said, True
        if differs := same_manner(anonymous(wanted), anonymous(bad.manner)):
            return Answer.NOT, differs, True
        if self._start.good:
            good = self.run(subject, self._start.good)
            if not good.right:
                return Answer.NOT, f"{self._start.good} is not right either: {good.said}", True
        return Answer.SAME, bad.manner.words, True

    def trouble_of(self, subject: Subject) -> str:
        """Return why ONNX Runtime cannot compute a model here, which then has no reference; else nothing.

        Nothing is said where it cannot compute the whole model either.
        """
        if self._checked is None:
            self._checked = True
            self._checked = not self.trouble_of(self._start.subject)
        if not self._checked:
            return ""
        from trtmatrix.onnxmodel.sessions import NotComputedError, Session
        from trtmatrix.onnxmodel.subject import CannotShrinkError, write_model

        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=".checking-") as folder:
            try:
                session = Session(write_model(subject, Path(folder) / "model.onnx"))
                for sample in subject.samples:
                    session.run(sample)
            except (NotComputedError, CannotShrinkError) as error:
                return f"ONNX Runtime cannot compute it: {error}"
        return ""

    def run(self, subject: Subject, version: str, *, keep: bool = False) -> Ran:
        """Run a model at a version and say what it did.

        ``keep``: as a cell of the user's own, whose record and files stay, of as many engines as such a cell
        has. What cannot be run is told in words; an interrupt goes through, and leaves nothing behind.
        """
        with contextlib.ExitStack() as stack:
            try:
                opened = self._open(subject, version, None if keep else stack)
                return self._run(opened, version, keep=keep)
            except (TrtMatrixError, OSError) as error:
                return Ran(manner=None, right=False, said=" ".join(str(error).split())[:300])

    def _open(self, subject: Subject, version: str, stack: contextlib.ExitStack | None) -> Context:
        """Make a model a repro; ``stack`` removes what was not there before, where it does not stay."""
        from trtmatrix.effects.cases import CaseCache
        from trtmatrix.own_model import model_repro, open_model

        whole = self._start.found.context
        cache, results = whole.project.cache, whole.project.results
        before = {folder.name for folder in (cache / "models").glob("*")}
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=".opening-") as name:
            args = self.arguments(subject, Path(name))
            opened = open_model(whole, argparse.Namespace(**args))
        loaded = model_repro(opened)
        if stack is not None:
            cases, folder = CaseCache(cache), opened.project.repros.parent
            mine = [cases.folder(loaded, case) for case in loaded.repro.cases]
            fresh = [item for item in mine if not item.exists()]
            fresh += [folder] if folder.name not in before else []
            stack.callback(_remove, cases.blobs, fresh)
            results, loaded = cache / FOLDER / "results", self._cheap(loaded)
        return replace(
            opened, controls=False, repros={loaded.repro.id: loaded},
            project=replace(opened.project, results=results),
            selection=replace(
                opened.selection, versions=(version,), gpus=self._gpus(), repros=(loaded.repro.id,), cases=()
            ),
        )  # fmt: skip

    def arguments(self, subject: Subject, folder: Path) -> Mapping[str, Any]:
        """Write a model and its inputs to a folder; returns the options that open it."""
        from trtmatrix.effects.minimised import write_files

        model, inputs = write_files(subject, folder)
        profile = profile_texts(subject.profile)
        return {**self._start.asked, "model": model, "inputs": inputs, "profile": profile}

    def _gpus(self) -> tuple[str, ...]:
        cell = self._start.found.entry.cell
        return (cell.gpu.slug,) if cell.version.product is Product.TENSORRT else ()

    def _cheap(self, loaded: LoadedRepro) -> LoadedRepro:
        """Return a repro of one build, where each build of the whole model fails."""
        if not self._start.every:
            return loaded
        cases = tuple(replace(case, builds=1) for case in loaded.repro.cases)
        return replace(loaded, repro=replace(loaded.repro, cases=cases))

    def _run(self, opened: Context, version: str, *, keep: bool) -> Ran:
        from trtmatrix.perform import Options, perform
        from trtmatrix.scene import look_around

        scene = look_around(opened, Pull.NEVER)
        result = perform(opened, scene, Options(confirm=keep, quiet=True))
        entry = next((e for e in result.entries if e.cell.version.name == version), None)
        if entry is None or entry.record is None:
            reasons = [*result.performed.not_ready, *([entry.excluded] if entry and entry.excluded else [])]
            said = "; ".join(f"{item.why.value} {item.detail}".strip() for item in reasons)
            return Ran(manner=None, right=False, said=said or "it did not run")
        return _read(entry, self._start.found.calibration)


def _read(entry: Entry, calibration: Calibration) -> Ran:
    """Return what the records of one model say."""
    outcome, manner = entry.outcome, manner_of(entry, calibration)
    said = f"{full_words(outcome)} {entry.figure}".strip() if outcome else "it did not run"
    reason = f": {outcome.reason}" if outcome and outcome.reason else ""
    return Ran(
        manner=manner, right=outcome is not None and outcome.verdict is Verdict.PASS,
        said=manner.words if manner else f"{said}{reason}"[:300], cell=str(entry.cell.id),
    )  # fmt: skip


def anonymous(manner: Manner) -> Manner:
    """Return a manner without the outputs' names: a smaller graph has others."""
    return replace(manner, outputs=())


def _remove(blobs: Path, folders: Iterable[Path]) -> None:
    """Remove the files of a trial: hundreds of large models would fill the disk.

    What lies in ``blobs`` by its content goes where nothing else has it.
    """
    mine = set[tuple[int, int]]()
    for folder in folders:
        for file in folder.rglob("*"):
            status = file.lstat()
            mine.add((status.st_dev, status.st_ino))
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        for blob in blobs.iterdir():
            status = blob.lstat()
            if (status.st_dev, status.st_ino) in mine and status.st_nlink == 1:
                blob.unlink(missing_ok=True)
