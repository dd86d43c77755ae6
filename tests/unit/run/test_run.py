"""What a run asks of the probe, what it adds to records, and what it runs again.

The launcher is a stand-in: it plays a probe whose engines come out as a test says, which no real one does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import (
    make_case,
    make_cell,
    make_control,
    make_expectation,
    make_loaded,
    make_record,
    make_repro,
)
from playing import LIMIT, RIGHT, WRONG, Play, Playing, always, make_a_plan, make_run
from prepare.test_cases import loaded
from prepare.test_emulation import Emulating

from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record, record_from
from trtmatrix.launchers.launcher import Ended, Poll, Ready
from trtmatrix.run.execute import execute_plan
from trtmatrix.run.tasks import Task
from trtmatrix.suite.model import Control, Verdict
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case
from trtprobe.files import write_json


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
        (make_case(**LIMIT), RIGHT, 1),
        (make_case("expected-to-fail", **LIMIT), RIGHT, 2),
        (make_case("expected-to-fail", **LIMIT), WRONG, 2),
        (replace(make_control(), **LIMIT), WRONG, 1),
        (replace(make_control(), **LIMIT), RIGHT, 2),
    ],
    ids=["right", "right, but expected to fail", "wrong as expected", "control fails", "control passes"],
)
def test_what_is_to_be_believed_is_seen_twice(case: Case, value: float, runs: int, tmp_path: Path) -> None:
    assert len(run(tmp_path, always(value), case)[0]) == runs


def test_only_what_is_doubtful_is_run_again(tmp_path: Path) -> None:
    def play(case: str) -> float:
        return WRONG if case == "b" else RIGHT

    _, launcher = run(tmp_path, play, make_case("a", **LIMIT), make_case("b", **LIMIT))
    assert [[cell["cell"]["case"] for cell in job] for job in launcher.jobs] == [["a", "b", "b"]]


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


def test_what_passed_before_and_fails_now_is_flaky_and_not_confirmed(tmp_path: Path) -> None:
    case = make_case(**LIMIT)
    passed, _ = run(tmp_path / "1", always(RIGHT), case)
    stored = [Stored(record=replace(record, run="r9"), local=True) for record in passed]
    records, _ = run(tmp_path / "2", always(WRONG), case, stored=stored)
    assert len(records) == 1


@pytest.mark.parametrize(
    ("fields", "version", "rebuilds", "counts"),
    [
        ({}, "10.7.0", 1, (1, 1)),
        ({"builds": 3}, "10.7.0", 1, (3, 1)),
        ({"builds": 3}, "10.7.0", 5, (5, 1)),
        ({"builds": 3}, "onnxruntime-1.31.1", 1, (1, 1)),
        ({}, "onnxruntime-1.31.1", 4, (4, 1)),
        ({"processes": 3}, "10.7.0", 1, (1, 3)),
        ({"processes": 3, "builds": 3}, "10.7.0", 5, (1, 5)),
    ],
)
def test_engines_and_processes(
    fields: dict[str, Any], version: str, rebuilds: int, counts: tuple[int, int]
) -> None:
    cell = make_cell(case=make_case(**fields), version=version)
    assert Task(cell=cell, run="r0", rebuilds=rebuilds).runs == counts


def test_the_job_says_how_many_engines_are_wanted(tmp_path: Path) -> None:
    _, launcher = run(tmp_path, always(RIGHT), make_case(builds=3, **LIMIT), rebuilds=7)
    ((cell,),) = launcher.jobs
    assert (cell["builds"], cell["processes"]) == (7, 1)


def test_a_cell_is_overdue_only_after_all_its_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polled = list[float]()

    class Hanging(Playing):
        """Notes that the cell has started, and never leaves a record."""

        def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
            del ready
            moment = [0.0]
            monkeypatch.setattr("time.monotonic", lambda: moment[0])
            write_json(folder / "out" / "0.started.json", {})
            for moment[0] in (0.0, 59.0, 61.0):
                polled.append(moment[0])
                poll()
            raise AssertionError("it is not overdue")

    cell, source = make_cell(case=make_case(builds=3, seconds=10.0, **LIMIT)), loaded()
    state = make_run(tmp_path, Hanging(always(RIGHT)), [replace(source, repro=cell.repro)], confirm=False)
    state.prepared.add((cell.repro.id, cell.case.id))
    (record,) = execute_plan(make_a_plan([cell]), frozenset(), state).records
    assert (record.ended, polled[-1]) == ("probe failed", 61.0)
    assert "a cell was long over its time limit" in record.detail


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
    ("value", "control", "kept"),
    [(0.5, None, True), (2e-7, None, False), (2e-7, Control.POSITIVE, True)],
)
def test_outputs_of_what_fails_and_of_controls_are_kept(
    value: float, control: Control | None, kept: bool, tmp_path: Path
) -> None:
    record = emulated(tmp_path, value, control)
    assert ("kept" in record.data) is kept
    assert (tmp_path / "outputs").exists() is kept


def test_outputs_are_kept_where_the_case_wants_them(tmp_path: Path) -> None:
    assert "kept" in emulated(tmp_path, 2e-7, keep=True).data


def test_a_record_of_a_case_without_emulation_has_no_noise(tmp_path: Path) -> None:
    (record,), _ = run(tmp_path, always(RIGHT), make_case(**LIMIT))
    assert record.noise == {}
    assert make_record(record.cell).noise == {}
