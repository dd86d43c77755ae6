"""Kept outputs are measured again by the defects of today, and the records stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_loaded, make_matrix, make_record, make_repro
from test_emulation import Emulating

from trtmatrix.common.paths import Project
from trtmatrix.judge.compare import Stored, make_entries
from trtmatrix.judge.record import Record
from trtmatrix.plan.context import Context
from trtmatrix.prepare.cases import CaseCache, case_digest, read_content
from trtmatrix.records.store import keep_outputs, read_records, write_record
from trtmatrix.run.remeasure import Remeasured, remeasure, remeasured_text
from trtmatrix.suite.cells import Cell, Selection
from trtmatrix.suite.digest import Code

CASE = make_case(defects=("lost-half",), noise_key="k", limits={})
REPRO = make_repro(CASE, digest="today")
CELL = make_cell(REPRO)
LOADED = make_loaded(REPRO, Emulating())


@pytest.fixture
def context(tmp_path: Path) -> Context:
    project = Project(
        matrix=tmp_path / "matrix.yaml", repros=tmp_path / "repros", results=tmp_path / "results",
        cache=tmp_path / "cache",
    )  # fmt: skip
    return Context(
        project=project, matrix=make_matrix("10.7.0"), repros={REPRO.id: LOADED}, selection=Selection(),
        pythons=(), code=Code(probe="today's"),
    )  # fmt: skip


def kept(context: Context, **outputs: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Keep outputs as a run does; returns what the record says of them."""
    folder = context.project.cache / "out"
    folder.mkdir(parents=True, exist_ok=True)
    for name, output in outputs.items():
        np.save(folder / f"{name}.npy", output)
    return keep_outputs(context.project.cache, folder, {name: {"dtype": "float32"} for name in outputs})


def store(context: Context, **fields: Any) -> Record:
    """Store a record of an older repro and probe, with one output and no signature."""
    digests = {"repro": "older", "probe": "older", "case": case_digest(CASE), **fields.pop("digests", {})}
    data = make_record(CELL, run="r1", digests=digests, **fields).data
    return write_record(context.project.local, data)


def right(context: Context) -> np.ndarray[Any, Any]:
    folder = CaseCache(context.project.cache).prepare(LOADED, CASE)
    reference: np.ndarray[Any, Any] = np.load(folder / "reference" / "y.npy").astype(np.float32)
    return reference


def call(context: Context, cell: Cell = CELL) -> list[Remeasured]:
    entries = make_entries([cell], read_records(context.project.results), {}, [])
    return remeasure(context, entries)


def test_a_defect_that_was_added_is_found_in_kept_outputs(context: Context) -> None:
    old = store(context, kept=kept(context, y=right(context) / 2))
    before = Path(old.file).read_bytes()
    (done,) = call(context)
    assert done.new is not None
    assert Path(old.file).read_bytes() == before
    signature = done.new.builds[0].signatures["lost-half"]["y"]
    assert signature == {"c": pytest.approx(1.0), "explained": pytest.approx(1.0)}
    assert done.new.outputs["y"]["rel_l2"] == pytest.approx(0.5)
    assert done.new.noise["fits"]["y"]
    data = json.loads(Path(done.new.file).read_text())
    assert data["remeasured_from"] == "r1"
    assert (data["run"] != "r1", data["started"], data["kept"]) == (True, old.started, old.data["kept"])
    assert data["digests"]["repro"].startswith("today")
    assert data["digests"]["probe"] == "today's"
    assert remeasured_text([done]) == "1 records measured again"


def test_what_was_measured_again_is_not_once_more(context: Context) -> None:
    store(context, kept=kept(context, y=right(context)))
    assert len(call(context)) == 1
    stored = [item for item in read_records(context.project.results) if item.record.run != "r1"]
    assert remeasure(context, make_entries([CELL], stored, {}, [])) == []


def test_every_build_of_a_record_is_measured(context: Context) -> None:
    good = right(context)
    builds = [{"measurements": dict(store_data()), "engine": {"number": n}} for n in range(2)]
    store(context, builds=builds, kept=kept(context, y=good, **{"y@1": good / 2}))
    (done,) = call(context)
    assert done.new is not None
    found = [build.signatures["lost-half"]["y"]["c"] for build in done.new.builds]
    assert found == [pytest.approx(0.0, abs=1e-3), pytest.approx(1.0)]
    assert [build["engine"] for build in done.new.data["builds"]] == [{"number": 0}, {"number": 1}]
    assert done.new.data["measurements"] == done.new.data["builds"][0]["measurements"]


def store_data() -> dict[str, Any]:
    measurements: dict[str, Any] = make_record(CELL).data["measurements"]
    return {**measurements, "scalars": {"own": 3.0}, "remark": "fused"}


def test_what_the_case_measured_by_itself_stays(context: Context) -> None:
    store(context, measurements=store_data(), kept=kept(context, y=right(context)))
    (done,) = call(context)
    assert done.new is not None
    assert (done.new.scalars, done.new.remark) == ({"own": 3.0}, "fused")


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "not kept": ({}, "its outputs were not kept"),
    "another output": ({"kept": {"z": {"sha256": "0"}}}, "its output y was not kept"),
    "gone": ({"kept": {"y": {"sha256": "0" * 64}}}, "its output y is gone"),
    "another graph": (
        {"kept": {"y": {}}, "digests": {"content": "x"}},
        "its graph or its inputs were others",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_measured_again_is_unknown(name: str, context: Context) -> None:
    fields, words = UNKNOWN[name]
    store(context, **fields)
    (done,) = call(context)
    assert (done.new, done.unknown) == (None, words)
    assert remeasured_text([done]).splitlines()[1] == (
        f"1 unknown, only a run can tell: {words} (such as {CELL.id})"
    )
    assert len(read_records(context.project.results)) == 1


def test_a_damaged_output_is_gone(context: Context) -> None:
    output = kept(context, y=right(context))
    (file,) = (context.project.cache / "outputs").iterdir()
    file.write_bytes(file.read_bytes()[:50])
    store(context, kept=output)
    assert call(context)[0].unknown == "its output y is gone"


@pytest.mark.parametrize(
    "fields", [{"ended": "crashed"}, {"digests": {"case": "another"}}], ids=["crashed", "another case"]
)
def test_other_records_are_left_alone(fields: dict[str, Any], context: Context) -> None:
    store(context, kept={"y": {}}, **fields)
    assert call(context) == []


def test_a_case_without_defects_and_emulation_asks_for_nothing(context: Context) -> None:
    plain = replace(CASE, defects=(), params={"n": 1})
    repro = replace(REPRO, cases=(plain,))
    source = replace(LOADED, repro=repro)
    digests = {"case": case_digest(plain)}
    record = make_record(CELL, run="r1", digests=digests, kept={"y": {}})
    write_record(context.project.local, record.data)
    cell = make_cell(repro, plain)
    entries = make_entries([cell], [Stored(record=record, local=True)], {}, [])
    assert remeasure(replace(context, repros={REPRO.id: source}), entries) == []


def test_the_same_graph_and_inputs_may_be_measured_again(context: Context) -> None:
    output = kept(context, y=right(context))
    content = read_content(CaseCache(context.project.cache).folder(LOADED, CASE))
    store(context, kept=output, digests={"content": content})
    assert call(context)[0].new is not None
