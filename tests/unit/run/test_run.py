"""What a run asks of the probe, what it adds to records, and what it runs again.

The launcher is a stand-in: it plays a probe whose engines come out as a test says, which no real one does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import make_case, make_cell, make_loaded, make_repro
from playing import RIGHT, WRONG, Playing, always, cells_of, make_a_plan, make_run, perform, stored
from prepare.test_cases import Emulating

from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import Record, record_from
from trtmatrix.run.execute import execute_plan
from trtmatrix.suite.model import Control


def test_a_failure_is_run_again_alone_in_a_fresh_process_with_three_engines(tmp_path: Path) -> None:
    launcher = Playing(always(WRONG))
    records = perform(tmp_path, launcher, cells_of("a", "b")).records
    assert [[cell["builds"] for cell in job] for job in launcher.jobs] == [[1, 1, 3, 3]]
    assert [[cell["alone"] for cell in job] for job in launcher.jobs] == [[False, False, True, True]]
    assert [record.data.get("confirms") for record in records] == [None, None, "r0", "r0"]
    first, again = {r.run for r in records[:2]}, {r.run for r in records[2:]}
    assert (first, len(again), again - first) == ({"r0"}, 1, again)
    assert len(stored(tmp_path)) == 4


def test_stored_records_count_as_engines_that_were_seen(tmp_path: Path) -> None:
    def run(folder: str, *before: Record) -> list[Record]:
        kept = [Stored(record=record, local=True) for record in before]
        return perform(tmp_path / folder, Playing(always(WRONG)), cells_of("a"), stored=kept).records

    first, again = run("1")
    assert len(run("2", first, again)) == 1
    other_driver = record_from({**again.data, "gpu": {**again.data["gpu"], "driver": "1"}})
    assert len(run("3", other_driver)) == 2, "under another driver it was another thing"


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
    state = make_run(folder, Giving(always(value)), [make_loaded(repro, Emulating())], confirm=False)
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
