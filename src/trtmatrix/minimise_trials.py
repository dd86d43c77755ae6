"""Runs smaller models at the cell's version, as any model of the user's own, and says how they fail."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.context import Context
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.errors import TrtMatrixError, UsageError
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

    ``right``: it passed. ``said``: in words. ``record``: the cell's id. ``some``: not all of its engines
    fail. ``trouble``: the machinery failed, not the model: the same may be run another time.
    """

    manner: Manner | None
    right: bool
    said: str
    cell: str = ""
    some: bool = False
    trouble: bool = False


class Trials:
    """Runs models in the place of one cell's."""

    def __init__(self, start: Start, scratch: Path) -> None:
        """Take what is minimised; ``scratch``: a folder in the cache.

        ``good``: the version at which a model must be right. ``builds``: the engines of each trial, 0 for as
        many as the model's repro has. ``troubles``: runs in a row in which the machinery failed.
        """
        self._start, self.scratch, self.good = start, scratch, start.good
        self.builds = 1 if start.every else 0
        self.troubles = 0
        self._checked: bool | None = None
        self._troubles: dict[str, str] = {}
        self._ahead: dict[str, Ran] = {}

    def check(self, wanted: Manner, subject: Subject) -> tuple[Answer, str, bool]:
        """Say whether a model fails in the way that is wanted, in words, and whether anything was run."""
        if trouble := self.trouble_of(subject):
            return Answer.CANNOT_SAY, trouble, False
        bad = self._noted(self._ahead.get(subject.digest) or self.run(subject, self._version))
        if bad.manner is None:
            return (Answer.NOT if bad.right else Answer.CANNOT_SAY), bad.said, True
        if differs := same_manner(anonymous(wanted), anonymous(bad.manner)):
            return Answer.NOT, differs, True
        if self.good:
            good = self._noted(self.run(subject, self.good))
            if good.manner is None and not good.right:
                return Answer.CANNOT_SAY, f"{self.good} cannot say whether it is right: {good.said}", True
            if not good.right:
                return Answer.NOT, f"{self.good} is not right either: {good.said}", True
        return Answer.SAME, bad.manner.words, True

    def _noted(self, ran: Ran) -> Ran:
        """Count the runs in a row in which the machinery failed."""
        self.troubles = self.troubles + 1 if ran.trouble else 0
        return ran

    @property
    def _version(self) -> str:
        return self._start.found.entry.cell.version.name

    def run_ahead(self, subjects: Sequence[Subject]) -> None:
        """Run models that will be asked about in one launch: each start of a product costs seconds.

        Answers are the same as one by one. What cannot be opened is told when it is asked about.
        """
        fresh = {one.digest: one for one in subjects if one.digest not in self._ahead}
        fresh = {digest: one for digest, one in fresh.items() if not self.trouble_of(one)}
        if len(fresh) < 2:
            return
        with contextlib.ExitStack() as stack:
            opened = dict[str, Context]()
            for digest, subject in fresh.items():
                with contextlib.suppress(TrtMatrixError, OSError):
                    opened[digest] = self._open(subject, self._version, stack, self.builds)
            with contextlib.suppress(TrtMatrixError, OSError):
                together = self._run_together(opened)  # what one launch did to all is asked again, alone
                self._ahead |= {digest: ran for digest, ran in together.items() if not ran.trouble}

    def _run_together(self, opened: Mapping[str, Context]) -> dict[str, Ran]:
        """Run several models' repros as those of one project; returns what each did."""
        if not opened:
            return {}
        loaded = {digest: next(iter(one.repros.values())) for digest, one in opened.items()}
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=".together-") as name:
            for one in loaded.values():
                shutil.copy(one.file, name)
            Path(name).chmod(0o755)
            first = next(iter(opened.values()))
            repros = {one.repro.id: one for one in loaded.values()}
            context = replace(
                first, repros=repros, project=replace(first.project, repros=Path(name)),
                selection=replace(first.selection, repros=tuple(repros)),
            )  # fmt: skip
            found = self._run_all(context, self._version, keep=False)
        return {digest: found[one.repro.id] for digest, one in loaded.items()}

    def trouble_of(self, subject: Subject) -> str:
        """Return why ONNX Runtime cannot compute a model here, which then has no reference; else nothing.

        Nothing is said where it cannot compute the whole model either.
        """
        if self._checked is None:
            self._checked = True
            self._checked = not self.trouble_of(self._start.subject)
        if not self._checked:
            return ""
        if subject.digest not in self._troubles:
            self._troubles[subject.digest] = self._compute(subject)
        return self._troubles[subject.digest]

    def _compute(self, subject: Subject) -> str:
        """Compute a model by ONNX Runtime; returns why it cannot, else nothing."""
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

    def run(self, subject: Subject, version: str, *, keep: bool = False, builds: int | None = None) -> Ran:
        """Run a model at a version and say what it did. ``builds``: as many engines, if not those of a trial.

        ``keep``: as a cell of the user's own, whose record and files stay, of as many engines as such a cell
        has. What cannot be run is told in words; an interrupt goes through, and leaves nothing behind.
        """
        with contextlib.ExitStack() as stack:
            try:
                many = self.builds if builds is None else builds
                opened = self._open(subject, version, None if keep else stack, many)
                return next(iter(self._run_all(opened, version, keep=keep).values()))
            except (TrtMatrixError, OSError) as error:  # a model that cannot be opened is the model's own
                said, trouble = " ".join(str(error).split())[:300], not isinstance(error, UsageError)
                return Ran(manner=None, right=False, said=said, trouble=trouble)

    def _open(
        self, subject: Subject, version: str, stack: contextlib.ExitStack | None, builds: int
    ) -> Context:
        """Make a model a repro; ``stack`` removes what was not there before, where it does not stay."""
        from trtmatrix.effects.cases import CaseCache
        from trtmatrix.own_model import model_repro, open_model

        whole = self._start.found.context
        cache, results = whole.project.cache, whole.project.results
        before = {folder.name for folder in (cache / "models").glob("*")}
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=".opening-") as name:
            args = dict(self.arguments(subject, Path(name)))
            if stack is not None:  # ids of models that differ by their inputs alone are not the same
                args["model"] = args["model"].rename(Path(name) / f"small-{subject.digest[:8]}.onnx")
            opened = open_model(whole, argparse.Namespace(**args))
        loaded = model_repro(opened)
        if stack is not None:
            cases, folder = CaseCache(cache), opened.project.repros.parent
            mine = [cases.folder(loaded, case) for case in loaded.repro.cases]
            fresh = [item for item in mine if not item.exists()]
            fresh += [folder] if folder.name not in before else []
            stack.callback(_remove, cases.blobs, fresh)
            results, loaded = cache / FOLDER / "results", _with_builds(loaded, builds)
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

    def _run_all(self, opened: Context, version: str, *, keep: bool) -> dict[str, Ran]:
        """Run the models of a context at a version; returns by repro what each did."""
        from trtmatrix.perform import Options, perform
        from trtmatrix.scene import look_around

        scene = look_around(opened, Pull.NEVER)
        result = perform(opened, scene, Options(confirm=keep, quiet=True))
        entries = {e.cell.repro.id: e for e in result.entries if e.cell.version.name == version}
        found: dict[str, Ran] = {}
        for repro in opened.repros:
            entry = entries.get(repro)
            if entry is not None and entry.record is not None:
                found[repro] = _read(entry, self._start.found.calibration)
                continue
            reasons = [item for item in result.performed.not_ready if item.cell.repro.id == repro]
            reasons += [entry.excluded] if entry and entry.excluded else []
            said = "; ".join(f"{item.why.value} {item.detail}".strip() for item in reasons)
            found[repro] = Ran(manner=None, right=False, said=said or "it did not run", trouble=True)
        return found


def _with_builds(loaded: LoadedRepro, builds: int) -> LoadedRepro:
    """Return a repro whose cases are of so many builds; of its own where that is 0."""
    cases = tuple(replace(case, builds=builds or case.builds) for case in loaded.repro.cases)
    return replace(loaded, repro=replace(loaded.repro, cases=cases))


def _read(entry: Entry, calibration: Calibration) -> Ran:
    """Return what the records of one model say."""
    outcome, manner = entry.outcome, manner_of(entry, calibration)
    said = f"{full_words(outcome)} {entry.figure}".strip() if outcome else "it did not run"
    reason = f": {outcome.reason}" if outcome and outcome.reason else ""
    return Ran(
        manner=manner, right=outcome is not None and outcome.verdict is Verdict.PASS,
        said=manner.words if manner else f"{said}{reason}"[:300], cell=str(entry.cell.id),
        some=outcome is not None and outcome.failed < outcome.builds,
        trouble=outcome is None or (outcome.cause is not None and outcome.cause.is_machinery),
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
