"""From a cell's id, as tables print it, to the entry that shows its failure; or why there is none."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from trtmatrix.bugs.manner import Manner, manner_of
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.entry import Entry, full_words
from trtmatrix.judge.judge import Subject, judge, subject_of
from trtmatrix.judge.noise import read_calibration
from trtmatrix.judge.record import Record
from trtmatrix.model.own_model import ModelOptions, context_of, model_repro, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import entries_of, take_survey
from trtmatrix.suite.cells import Selection, nearest_names, unlisted_version
from trtmatrix.suite.model import CPU, CellId, Product, Verdict
from trtmatrix.suite.plan import Pull
from trtmatrix.suite.repro_files import LoadedRepro, stored_repros
from trtmatrix.suite.repros import Case
from trtmatrix.upgrade.question import model_options

FAILURES = frozenset({Verdict.FAIL, Verdict.FLAKY})


@dataclass(frozen=True, kw_only=True)
class Found:
    """A cell that fails. ``record``: the newest of its records in which an engine fails.

    ``row``: what its case shows at every version of its product on its GPU, oldest first; ``others``: at the
    versions of other products. ``manner``: in which way it fails; ``subject``: what judges its numbers.
    """

    context: Context
    loaded: LoadedRepro
    entry: Entry
    record: Record
    row: tuple[Entry, ...]
    others: tuple[Entry, ...]
    own_model: bool
    manner: Manner
    subject: Subject

    @property
    def product(self) -> Product:
        """What fails."""
        return self.entry.cell.version.product

    @property
    def case(self) -> Case:
        """The cell's case."""
        return self.entry.cell.case


def find_cell(text: str, project: ProjectOptions, model: ModelOptions) -> Found:
    """Return the failing cell of an id; :class:`UsageError` says why there is none and what to do."""
    try:
        cell = CellId.parse(text)
    except ValueError as error:
        raise UsageError(
            f"{error}, such as sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4\n"
            "  python -m trtmatrix table --json prints the ids of all cells"
        ) from error
    context = _open(cell, project, model)
    loaded = context.repros[cell.repro]
    own_model = loaded.file.parent != project.repros
    version = next((v for v in context.matrix.versions if v.name == cell.version), None)
    if version is None:
        known = [v.name for v in context.matrix.versions]
        raise UsageError(f"{cell}: " + unlisted_version("version", cell.version, known))
    if (cell.gpu == CPU.slug) is (version.product is Product.TENSORRT):
        right = "the GPU that it was run on, such as #nvidia-h200"
        right = right if cell.gpu == CPU.slug else f"#{CPU.slug}"
        raise UsageError(f"{cell}: a cell of {cell.version} ends in {right}")
    gpus = (cell.gpu,) if version.product is Product.TENSORRT else ()
    selection = Selection(repros=(cell.repro,), cases=(f"{cell.repro}/{cell.case}",), gpus=gpus)
    context = replace(context, selection=selection)
    survey = take_survey(context, Pull.NEVER)
    entries = entries_of(context, survey, survey.stored)
    mine = [e for e in entries if (e.cell.id.repro, e.cell.id.case) == (cell.repro, cell.case)]
    entry = next((e for e in mine if e.cell.id == cell), None)
    calibration = read_calibration()
    manner = manner_of(entry, calibration) if entry else None
    if entry is None or manner is None:
        outcome = entry.outcome if entry and entry.record else None
        detail = entry.excluded.detail if entry and entry.excluded else ""
        why = f"there is no record of it: nobody ran it{f' ({detail})' if detail else ''}"
        if entry and outcome:
            is_right = outcome.verdict is Verdict.PASS
            said = "it does not fail, it is" if is_right else "that is no failure to show:"
            why = f"{said} {full_words(outcome)} {entry.figure}: {outcome.reason}".rstrip(": ")
        words = ["--model", "FILE"] if own_model else ["--repro", cell.repro, "--case", cell.case]
        words = [*(model_options(model) or words), *(word for gpu in gpus for word in ("--gpu", gpu))]
        run = f"run it: python -m trtmatrix run --trt {cell.version} {shlex.join(words)} --rerun"
        raise UsageError(f"{cell}: {why}\n  {run}")
    same = (e for e in mine if e.cell.version.product is version.product)
    row = sorted(same, key=lambda e: e.cell.version.release)
    failing = (r for r in entry.records if judge([r], entry.cell, calibration).verdict in FAILURES)
    record = next(failing, entry.records[0])  # the newest, where only all together fail
    return Found(
        context=context, loaded=loaded, entry=entry, record=record, row=tuple(row), own_model=own_model,
        others=tuple(e for e in mine if e not in row), manner=manner,
        subject=subject_of(record, entry.cell, calibration),
    )  # fmt: skip


def _open(cell: CellId, project: ProjectOptions, model: ModelOptions) -> Context:
    """Return the context whose repros have the cell's: the project's, or that of a model of one's own."""
    plain = open_context(project)
    context = open_model(plain, model)
    if cell.repro not in context.repros and model.model is None:
        models = stored_repros(context.project.cache, cell.repro, cell.case)
        context = context_of(context, models[0][0].file.parent, models[0]) if len(models) == 1 else context
    repros = [model_repro(context)] if model.model else context.repros.values()
    known = [f"{loaded.repro.id}/{case.id}" for loaded in repros for case in loaded.repro.cases]
    if f"{cell.repro}/{cell.case}" not in known:
        own = (
            "\n  of a model of your own: name it by --model, with the same inputs, precision and profile as "
            "when it ran"
        )
        why = nearest_names("case", f"{cell.repro}/{cell.case}", known)
        raise UsageError(f"{cell}: {why}{'' if cell.repro in plain.repros else own}")
    return context
