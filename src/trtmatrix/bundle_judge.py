"""Judges a run of an archive: by the host's own judge where it knows the case, and by the archive's rules."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.context import Context, open_context
from trtmatrix.core.bundle.expected import make_rules
from trtmatrix.core.bundle.facts import EXPECTED
from trtmatrix.core.bundle.spread import Figure, compare_figures
from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.expand import Cell
from trtmatrix.core.judge import judge, subject_of
from trtmatrix.core.manner import manner_in, same_manner
from trtmatrix.core.model import NO_GPU, Verdict
from trtmatrix.core.record import SCHEMA, Record, RecordError, record_from
from trtmatrix.core.words import full_words
from trtmatrix.effects.calibration import read_calibration
from trtmatrix.effects.repro_files import LoadedRepro

FAILS = frozenset({Verdict.FAIL.value, Verdict.FLAKY.value})


@dataclass(frozen=True, kw_only=True)
class Known:
    """A cell as the project here has it: its facts, and the repro's file."""

    cell: Cell
    loaded: LoadedRepro


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is said of a run. ``differs``: how it is not the recorded failure, empty where it is.

    ``by``: who judged, in words.
    """

    recorded: str = ""
    verdict: str = ""
    reason: str = ""
    manner: str = ""
    differs: str = ""
    figures: tuple[Figure, ...] = ()
    by: str = ""
    notes: tuple[str, ...] = ()


def judge_run(
    record: Record, expected: Mapping[str, Any], result: Mapping[str, Any], known: Known | None
) -> Judged:
    """Return what a run's ``result.json`` is, beside the archive's record and what it says is to come.

    ``result``: with figures that were measured here. ``known``: the record's cell, with its repro's facts;
    without it the archive's own rules decide.
    """
    if not result:
        return Judged(recorded=str(expected.get("verdict", "")))
    try:
        now = record_of(record, result)
    except RecordError as error:
        return Judged(
            recorded=str(expected.get("verdict", "")), differs=f"its result cannot be used: {error}"
        )
    if known is not None:
        rules = make_rules(subject_of(record, known.cell.case, known.cell.repro, read_calibration()))
        expected = {**expected, "rules": rules}
    try:
        figures = _figures(record.data, result, expected)
        if known is None:
            return _by_rules(expected, result, figures)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        words = f"it cannot be judged by {EXPECTED}: {type(error).__name__}: {error}"
        return Judged(recorded=str(expected["verdict"]), differs=words)
    return _by_host(record, now, known.cell, figures)


def record_of(record: Record, result: Mapping[str, Any]) -> Record:
    """Return the run of an archive as a record of the same cell, image and noise."""
    taken = ("ended", "detail", "observed", "environment", "engine", "measurements", "builds", "processes")
    data = {
        "schema": SCHEMA, "cell": vars(record.cell), "run": "verify", "product": record.product.value,
        "digests": dict(record.digests), "gpu": dict(record.gpu), "noise": dict(record.noise),
        "started": "", "finished": "",
        **{name: result[name] for name in taken if name in result},
    }  # fmt: skip
    return record_from(data, "result.json")


def find_known_cell(record: Record) -> Known | None:
    """Return the record's cell where the project here has the same repro; None where it does not.

    The project is the working directory's: an archive is verified wherever it is, and better where the
    repro's facts are.
    """
    matrix = Path("matrix.yaml")
    if not matrix.is_file():
        return None
    files = argparse.Namespace(matrix=matrix, repros=Path("repros"), results=Path("results"), cache=None)
    try:
        return _cell_in(open_context(files), record)
    except (TrtMatrixError, OSError):
        return None


def _cell_in(context: Context, record: Record) -> Known | None:
    from trtmatrix.digests import cell_digests
    from trtmatrix.own_model import stored_models

    id_ = record.cell
    version = next((v for v in context.matrix.versions if v.name == id_.version), None)
    if version is None:
        return None
    places = [context] if id_.repro in context.repros else stored_models(context, id_.repro, id_.case)
    for place in places:
        loaded = place.repros[id_.repro]
        for case in loaded.repro.cases:
            cell = Cell(repro=loaded.repro, case=case, version=version, gpu=NO_GPU)
            digests = cell_digests(cell, loaded)
            if case.id == id_.case and all(record.digests.get(name) == digests[name] for name in digests):
                return Known(cell=cell, loaded=loaded)
    return None


def _by_host(record: Record, now: Record, cell: Cell, figures: tuple[Figure, ...]) -> Judged:
    calibration = read_calibration()
    before, after = (judge([one], cell.case, cell.version, cell.repro, calibration) for one in (record, now))
    wanted, found = (manner_in([one], cell, calibration) for one in (record, now))
    differs = "" if after.verdict.value in FAILS else f"the failure does not come back: {full_words(after)}"
    if not differs and wanted is not None:
        differs = same_manner(wanted, found)
    share, notes = _of_the_engines(before.verdict.value, after.verdict.value)
    return Judged(
        recorded=full_words(before), verdict=full_words(after), reason=after.reason, differs=differs or share,
        manner=found.words if found else "", figures=figures, notes=notes,
        by="the judge of trtmatrix, with the same repro",
    )  # fmt: skip


def _of_the_engines(recorded: str, now: str) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong, or is to be noted, where other shares of the engines fail than were recorded."""
    if (recorded, now) == (Verdict.FAIL.value, Verdict.FLAKY.value):
        return "recorded: every engine fails; here some pass (FLAKY)", ()
    if (recorded, now) == (Verdict.FLAKY.value, Verdict.FAIL.value):
        return "", ("recorded: some engines fail (FLAKY); here every one does",)
    return "", ()


def _by_rules(expected: Mapping[str, Any], result: Mapping[str, Any], figures: tuple[Figure, ...]) -> Judged:
    """Judge by the archive's own rules with this program's copy of its short judge."""
    from trtmatrix.standalone.telling import CAME_BACK, conclude

    code, verdict, why = conclude(dict(result), dict(expected))
    share, notes = _of_the_engines(str(expected.get("verdict", "")), verdict)
    return Judged(
        recorded=str(expected.get("verdict", "")), verdict=verdict, reason=why, figures=figures,
        differs=share if code == CAME_BACK else f"the failure does not come back: {verdict}, {why}",
        notes=notes,
        by="the rules of the archive: its repro is not here in the same state",
    )  # fmt: skip


def _figures(
    data: Mapping[str, Any], result: Mapping[str, Any], expected: Mapping[str, Any]
) -> tuple[Figure, ...]:
    """Return the figures of the engines that fail, as recorded and now."""
    rules = expected.get("rules") or {}
    return compare_figures(_failing(data, expected), _failing(result, expected), rules) if rules else ()


def _failing(data: Mapping[str, Any], expected: Mapping[str, Any]) -> Sequence[Mapping[str, float]]:
    from trtmatrix.standalone.judging import FAIL, judge_build
    from trtmatrix.standalone.telling import figures_of

    if data.get("ended") != "ran":
        return []
    builds = [build["measurements"] for build in data.get("builds") or [data]]
    rules, ways = expected["rules"], expected.get("fails", [])
    judged = [(judge_build(build, rules), build) for build in builds]
    return [
        figures_of(build, rules) for (verdict, way, _), build in judged if verdict == FAIL and way in ways
    ]
