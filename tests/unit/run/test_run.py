"""What a run asks of the probe, what it adds to records, and what it runs again.

The launcher is a stand-in: it plays a probe whose engines come out as a test says, which no real one does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_case, make_cell, make_control, make_expectation, make_loaded, make_repro
from playing import LIMIT, RIGHT, WRONG, Play, Playing, always, cells_of, make_a_plan, make_run, perform
from prepare.test_cases import Emulating, loaded

from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record, record_from
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.model import Control, Verdict
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case


def run(
    folder: Path, play: Play, *cases: Case, loading: LoadedRepro | None = None, **more: Any
) -> tuple[list[Record], Playing]:
    """Run cases on TensorRT 10.7.0, of which 10.7.0 is expected to fail where the case's id says so."""
    expected = make_expectation(Verdict.FAIL, "==10.7.0", "*expected-to-fail")
    repro = make_repro(*cases, expectations=(expected,))
    cells = [make_cell(repro, case) for case in cases]
    launcher = Playing(play)
    source = replace(loading or loaded(), repro=repro)
    state = make_run(folder, launcher, [source], **more)
    return execute_plan(make_a_plan(cells), frozenset(), state).records, launcher


def test_a_failure_is_run_again_alone_in_a_fresh_process_with_three_engines(tmp_path: Path) -> None:
    records, launcher = run(tmp_path, always(WRONG), make_case("a", **LIMIT), make_case("b", **LIMIT))
    assert [[cell["builds"] for cell in job] for job in launcher.jobs] == [[1, 1, 3, 3]]
    assert [[cell["alone"] for cell in job] for job in launcher.jobs] == [[False, False, True, True]]
    assert [record.data.get("confirms") for record in records] == [None, None, "r0", "r0"]
    first, again = {r.run for r in records[:2]}, {r.run for r in records[2:]}
    assert first == {"r0"}
    assert len(again) == 1
    assert again != first
    assert len(list((tmp_path / "local").rglob("*.json"))) == 4


@pytest.mark.parametrize(
    ("case", "value", "runs"),
    [
        (make_case(**LIMIT), RIGHT, 1), (make_case("expected-to-fail", **LIMIT), RIGHT, 2),
        (make_case("expected-to-fail", **LIMIT), WRONG, 2), (replace(make_control(), **LIMIT), WRONG, 1),
        (replace(make_control(), **LIMIT), RIGHT, 2),
    ],
    ids=["right", "right, but expected to fail", "wrong as expected", "control fails", "control passes"],
)  # fmt: skip
def test_what_is_to_be_believed_is_seen_twice(case: Case, value: float, runs: int, tmp_path: Path) -> None:
    assert len(run(tmp_path, always(value), case)[0]) == runs


def test_nothing_is_confirmed_where_that_is_not_wanted(tmp_path: Path) -> None:
    records, _ = run(tmp_path, always(WRONG), make_case(**LIMIT), confirm=False)
    assert len(records) == 1


def test_stored_records_count_as_engines_that_were_seen(tmp_path: Path) -> None:
    case = make_case(**LIMIT)
    (first, again), _ = run(tmp_path / "1", always(WRONG), case)
    stored = [Stored(record=record, local=True) for record in (first, again)]
    records, _ = run(tmp_path / "2", always(WRONG), case, stored=stored)
    assert len(records) == 1
    other_driver = {**again.data, "gpu": {**again.data["gpu"], "driver": "1"}}
    elsewhere = [Stored(record=record_from(other_driver), local=True)]
    records, _ = run(tmp_path / "3", always(WRONG), case, stored=elsewhere)
    assert len(records) == 2, "under another driver it was another thing"


class Giving(Playing):
    """A probe whose engines give an output with a noise, kept as a file."""

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        import numpy as np

        data = super().record(cell, value, out)
        out.mkdir()
        np.save(out / "y.npy", np.zeros(3, np.float32))
        values = {"count": 3, "nan_unexpected": 0, "rel_l2": value}
        data["measurements"] = {**data["measurements"], "outputs": {"y": values}, "scalars": {}}
        return {**data, "kept": {"y": {"dtype": "float32", "shape": [3]}}}


def emulated(folder: Path, value: float, control: Control | None = None, *, keep: bool = False) -> Record:
    case = make_case(defects=("lost-half",), noise_key="k", limits={}, control=control, keep=keep)
    repro = make_repro(case)
    source = make_loaded(repro, Emulating())
    launcher = Giving(always(value))
    state = make_run(folder, launcher, [source], confirm=False)
    (record,) = execute_plan(make_a_plan([make_cell(repro)]), frozenset(), state).records
    return record


def test_a_record_holds_the_noise_of_its_case_and_what_fits(tmp_path: Path) -> None:
    record = emulated(tmp_path, 5e-4)
    assert record.noise["key"] == "k"
    assert record.noise["fits"]["y"].startswith("tf32")
    assert record.digests["content"]
    assert emulated(tmp_path / "again", 2e-7).noise["fits"]["y"].startswith("fp32")


@pytest.mark.parametrize(
    ("value", "control", "wanted", "kept"),
    [
        (0.5, None, False, True), (2e-7, None, False, False), (2e-7, None, True, True),
        (2e-7, Control.POSITIVE, False, True),
    ],
)  # fmt: skip
def test_outputs_of_what_fails_and_of_controls_are_kept(
    value: float, control: Control | None, wanted: bool, kept: bool, tmp_path: Path
) -> None:
    record = emulated(tmp_path, value, control, keep=wanted)
    assert ("kept" in record.data) is kept
    assert (tmp_path / "outputs").exists() is kept


class Losing(Playing):
    """What is wrong in a shared process is right alone; there an output that is said to be kept is lost."""

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        data = super().record(cell, value if cell["alone"] else WRONG, out)
        return data if cell["alone"] else {**data, "kept": {"y": {}}, "worker": {"position": 1}}


def test_a_record_that_cannot_be_used_has_no_say_in_what_is_believed(tmp_path: Path) -> None:
    launcher = Losing(always(RIGHT))
    records = perform(tmp_path, launcher, cells_of("a")).records
    assert [record.ended for record in records] == ["probe failed", "ran"]
    assert [[cell["builds"] for cell in job] for job in launcher.jobs] == [[1, 1]]
