"""The published records, judged again from what is stored: no GPU, no outputs, the same verdicts."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from trtmatrix.judge.compare import make_entries
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.judge.factors import NAMED, PASS_FACTOR
from trtmatrix.judge.judge import judge_build, read_floors, subject_of
from trtmatrix.judge.noise import read_calibration
from trtmatrix.judge.record import RAN, Measured
from trtmatrix.plan.context import read_matrix
from trtmatrix.plan.survey import recorded_gpus
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import Cause, CellId, Control, Outcome, Verdict
from trtmatrix.suite.repro_files import read_repros

ROOT = Path(__file__).resolve().parents[3]
GPU = "nvidia-h200"
UNDECIDED = {"shared-input-linears/swiglu-1-fp32", "shared-input-linears/swiglu-16-fp32"}
"""Off by 2.7e-6, 4.5 to 6.9 floors, at 8.5; probably its exponential is less exact than the emulation's."""


@cache
def with_noise() -> tuple[Stored, ...]:
    """Return the records of the GPU, but for older ones without noise."""
    stored = (item for item in read_records(ROOT / "results") if not item.local)
    return tuple(item for item in stored if item.record.cell.gpu == GPU and "noise" in item.record.data)


@cache
def entries() -> tuple[Entry, ...]:
    """Judge the records of cases that there still are."""
    stored = with_noise()
    versions = {version.name: version for version in read_matrix(ROOT / "matrix.yaml").versions}
    cases = {
        (loaded.repro.id, case.id): (loaded.repro, case)
        for loaded in read_repros(ROOT / "repros") for case in loaded.repro.cases
    }  # fmt: skip
    gpu = recorded_gpus(stored)[GPU]
    cells: dict[CellId, Cell] = {}
    for cell in (item.record.cell for item in stored):
        if (cell.repro, cell.case) in cases:
            repro, case = cases[cell.repro, cell.case]
            cells[cell] = Cell(repro=repro, case=case, version=versions[cell.version], gpu=gpu)
    return make_entries(list(cells.values()), stored, {}, [], calibration=read_calibration())


def engines(entry: Entry) -> Iterator[tuple[Measured, Outcome, float]]:
    """Yield what was measured of each engine, its outcome and its worst output's error in noise floors."""
    for record in (record for record in entry.records if record.ended == RAN):
        subject = subject_of(record, entry.cell, read_calibration())
        for build in record.builds:
            floors = read_floors(build, subject)
            yield build, judge_build(build, subject), max(floors.values(), default=0.0)


def outcome_of(entry: Entry) -> Outcome:
    assert entry.outcome is not None, str(entry.cell.id)
    return entry.outcome


def test_every_verdict_is_the_expected_one() -> None:
    assert len(entries()) == len({item.record.cell for item in with_noise()}), "every case is still there"
    other = {
        str(entry.cell.id): (outcome_of(entry).verdict.value, entry.expected.value, outcome_of(entry).reason)
        for entry in entries()
        if outcome_of(entry).verdict is not entry.expected
        and outcome_of(entry).cause is not Cause.UNSUPPORTED_BY_VERSION
    }
    assert {name.partition("@")[0] for name in other} == UNDECIDED
    assert {verdict for verdict, _, _ in other.values()} == {"INVALID"}
    assert not [str(entry.cell.id) for entry in entries() if entry.surprise]


def test_every_defect_that_was_put_in_is_named() -> None:
    controls = [entry for entry in entries() if entry.cell.case.control is Control.NEGATIVE]
    put_in = [entry for entry in controls if entry.cell.case.defect]
    assert len(put_in) >= 20
    for entry in put_in:
        defect = entry.cell.repro.defects[entry.cell.case.defect]
        for _, outcome, _ in engines(entry):
            found = re.search(rf"{re.escape(defect.what)}, c = (\S+?)(?:\)| or |$)", outcome.reason)
            assert found, f"{entry.cell.id}: {outcome.reason}"
            assert NAMED[0] <= float(found.group(1)) <= NAMED[1]
            assert f"consistent with {defect.upstream}" in outcome.reason or not defect.upstream


def test_what_is_wrong_at_two_versions_says_for_which_reason() -> None:
    """Of what a parser drops the signature tells, also where only a right output has no error at all."""
    told = defaultdict[str, set[str]](set)
    for entry in entries():
        words = outcome_of(entry).reason if entry.verdict is Verdict.FAIL else ""
        if entry.cell.repro.id == "parser-drops" and re.search("as if .* were not there|wrong shape", words):
            told[entry.cell.version.name].add(entry.cell.case.id)
    both = told["8.5.3.1"] & told["8.6.0"]
    assert len(both) >= 20, sorted(both)
    assert {"scatter-elements-max", "shape-scale"} <= both, "their noise floor is 0"


def test_no_right_engine_is_above_half_the_factor() -> None:
    right = [entry for entry in entries() if entry.expected is Verdict.PASS]
    right = [entry for entry in right if str(entry.cell.id).partition("@")[0] not in UNDECIDED]
    right = [entry for entry in right if outcome_of(entry).cause is not Cause.UNSUPPORTED_BY_VERSION]
    assert len(right) >= 100
    seen = {
        str(entry.cell.id): floors
        for entry in right for _, outcome, floors in engines(entry)
        if floors > PASS_FACTOR / 2 or outcome.verdict is not Verdict.PASS
    }  # fmt: skip
    fused = {"flash-attention/causal-512-fp16@8.6.0", "flash-attention/causal-2048-fp16-flag@8.6.0"}
    assert {name.partition("#")[0] for name in seen} <= fused, "8.6.0's fused causal kernel is the exception"
    assert max(seen.values()) < PASS_FACTOR
