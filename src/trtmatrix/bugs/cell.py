"""From a cell's id, as tables print it, to the entry that shows its failure; or why there is none."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import cached_property

from trtmatrix.bugs.manner import Manner, manner_of
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.entry import Entry, full_words
from trtmatrix.judge.judge import judge, subject_of
from trtmatrix.judge.noise import Calibration, read_calibration
from trtmatrix.judge.numbers import Subject
from trtmatrix.judge.record import Record
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model, stored_models
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import entries_of, take_survey
from trtmatrix.suite.cells import Selection, nearest_names, unlisted_version
from trtmatrix.suite.model import CPU, NO_GPU, CellId, Evidence, Product, Verdict
from trtmatrix.suite.plan import Pull
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case
from trtmatrix.upgrade.question import model_options

FAILURES = frozenset({Verdict.FAIL, Verdict.FLAKY})


@dataclass(frozen=True, kw_only=True)
class Found:
    """A cell that fails. ``record``: the newest of its records in which an engine fails.

    ``row``: what its case shows at every version of its product on its GPU, oldest first; ``others``: at the
    versions of other products.
    """

    context: Context
    loaded: LoadedRepro
    entry: Entry
    record: Record
    row: tuple[Entry, ...]
    others: tuple[Entry, ...]
    own_model: bool
    calibration: Calibration

    @property
    def product(self) -> Product:
        """What fails."""
        return self.entry.cell.version.product

    @property
    def case(self) -> Case:
        """The cell's case."""
        return self.entry.cell.case

    @cached_property
    def manner(self) -> Manner:
        """In which way the cell fails; :class:`UsageError` where its records do not say."""
        manner = manner_of(self.entry, self.calibration)
        if manner is None:
            raise UsageError(
                f"{self.entry.cell.id}: its records do not say in which way it fails: run it by --rerun"
            )
        return manner

    @cached_property
    def subject(self) -> Subject:
        """What the numbers of its record are judged by."""
        return subject_of(self.record, self.case, self.entry.cell.repro, self.calibration)


def find_cell(cell: CellId, project: ProjectOptions, model: ModelOptions) -> Found:
    """Return the failing cell that was named; :class:`UsageError` says why there is none and what to do."""
    context = _open(cell, project, model)
    loaded = context.repros[cell.repro]
    own_model = loaded.file.parent != project.repros
    version = next((v for v in context.matrix.versions if v.name == cell.version), None)
    if version is None:
        known = [v.name for v in context.matrix.versions]
        raise UsageError(f"{cell}: " + unlisted_version("version", cell.version, known))
    on_gpu = version.product is Product.TENSORRT
    if on_gpu == (cell.gpu in {CPU.slug, NO_GPU.slug}):
        wanted = "the GPU that it was run on, such as #nvidia-h200" if on_gpu else f"#{CPU.slug}"
        raise UsageError(f"{cell}: a cell of {version.name} ends in {wanted}")
    selection = Selection(
        repros=(cell.repro,), cases=(f"{cell.repro}/{cell.case}",), gpus=(cell.gpu,) if on_gpu else ()
    )
    context = replace(context, selection=selection)
    survey = take_survey(context, Pull.NEVER)
    entries = entries_of(context, survey, survey.stored)
    mine = [e for e in entries if (e.cell.id.repro, e.cell.id.case) == (cell.repro, cell.case)]
    entry = next((e for e in mine if e.cell.id == cell), None)
    if not (entry and entry.record and entry.outcome and entry.outcome.verdict in FAILURES):
        raise UsageError(f"{cell}: {_why_nothing(entry, cell, model, own_model)}")
    calibration = read_calibration()
    same = (e for e in mine if e.cell.version.product is version.product)
    row = tuple(sorted(same, key=lambda e: e.cell.version.release))
    judged = (entry.cell.case, version, entry.cell.repro, calibration)
    failing = (r for r in entry.records if judge([r], *judged).verdict in FAILURES)
    record = next(failing, entry.records[0])  # the newest, where only all together fail
    return Found(
        context=context, loaded=loaded, entry=entry, calibration=calibration, record=record, row=row,
        others=tuple(e for e in mine if e not in row), own_model=own_model,
    )  # fmt: skip


def read_cell_id(text: str) -> CellId:
    """Read a cell's id; :class:`UsageError` shows how one looks."""
    try:
        return CellId.parse(text)
    except ValueError as error:
        raise UsageError(
            f"{error}, such as sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4\n"
            "  python -m trtmatrix table --json prints the ids of all cells"
        ) from error


def _open(cell: CellId, project: ProjectOptions, model: ModelOptions) -> Context:
    """Return the context whose repros have the cell's: the project's, or that of a model of one's own."""
    context = open_context(project)
    opened = open_model(context, model)
    if opened is not context:
        repro = model_repro(opened).repro
        ids = [f"{repro.id}/{case.id}" for case in repro.cases]
        if f"{cell.repro}/{cell.case}" not in ids:
            raise UsageError(
                f"{cell}: --model and what goes with it make {', '.join(ids)}: name the same model, inputs, "
                "precision and profile as when it ran"
            )
        return opened
    if cell.repro in context.repros:
        cases = [case.id for case in context.repros[cell.repro].repro.cases]
        if cell.case not in cases:
            raise UsageError(f"{cell}: " + nearest_names(f"case of {cell.repro}", cell.case, cases))
        return context
    models = stored_models(context, cell.repro, cell.case)
    if len(models) > 1:
        raise UsageError(f"{cell}: several models were run under this id: name the one by --model")
    if not models:
        known = nearest_names("repro", cell.repro, list(context.repros))
        raise UsageError(f"{cell}: {known}\n  of a model of your own: name it by --model, with its inputs")
    return models[0]


def _why_nothing(entry: Entry | None, cell: CellId, options: ModelOptions, own_model: bool) -> str:
    words = ["--model", "FILE"] if own_model else ["--repro", cell.repro, "--case", cell.case]
    words = model_options(options) or words
    words += [] if cell.gpu in {CPU.slug, NO_GPU.slug} else ["--gpu", cell.gpu]
    run = f"run it: python -m trtmatrix run --trt {cell.version} {shlex.join(words)} --rerun"
    if entry is None or entry.evidence is Evidence.NONE or entry.outcome is None:
        why = f" ({entry.excluded.detail})" if entry and entry.excluded and entry.excluded.detail else ""
        return f"there is no record of it: nobody ran it{why}\n  {run}"
    if entry.record is None:
        return f"it is only reported, not measured: an archive shows what was measured\n  {run}"
    said = f"{full_words(entry.outcome)} {entry.figure}".strip()
    reason = f": {entry.outcome.reason}" if entry.outcome.reason else ""
    passed = entry.outcome.verdict is Verdict.PASS
    does = "it does not fail, it is" if passed else "that is no failure to show:"
    return f"{does} {said}{reason}\n  {run}"
