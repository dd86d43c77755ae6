"""Very many records: they are held small, unpacked only where they count, and say the same either way."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from bench.records import make_records
from bench.scale import FORMATS, measure, text
from builders import H200, make_cell, make_record, make_repro
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import ConfigError
from trtmatrix.judge.compare import make_entries
from trtmatrix.judge.record import Pool, Record, parse_record, record_from, write_number
from trtmatrix.records import store
from trtmatrix.records.store import read_records, write_record
from trtmatrix.suite.model import Verdict

CELL = make_cell(make_repro())
PUBLISHED = sorted((Path(__file__).parents[3] / "results").glob("nvidia-*/*/*/*/*.json"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    make_records(folder, 300)
    return folder


def views(record: Record) -> tuple[Any, ...]:
    return (
        record.cell, record.run, record.product, record.ended, record.detail, record.started,
        record.digests, record.observed, record.gpu, record.builds, record.noise, record.emulation,
        record.worker, record.confirms, record.processes, record.engines,
        record.outputs, record.scalars, record.remark, record.file,
    )  # fmt: skip


def test_every_published_record_says_the_same_from_a_pool_and_by_itself() -> None:
    assert len(PUBLISHED) > 500
    pool = Pool(lambda file: json.loads(Path(file).read_text(encoding="utf-8")))
    for path in PUBLISHED:
        content = path.read_bytes()
        small, whole = parse_record(content, str(path), pool), parse_record(content, str(path))
        assert views(small) == views(whole)
        assert small == whole
        assert small.data == whole.data == json.loads(content)


TEXTS = st.text(st.characters(), max_size=9)  # half characters too
NUMBERS = st.floats() | st.integers(-(10**30), 10**30)


@given(st.dictionaries(TEXTS, NUMBERS, max_size=3), TEXTS, TEXTS)
def test_every_number_and_text_is_read_as_it_is(scalars: dict[str, float], remark: str, detail: str) -> None:
    values = {name: write_number(number) for name, number in scalars.items()}
    measured = {"outputs": {"y": {"sum_abs": 1}}, "scalars": values, "remark": remark}
    made = make_record(CELL, detail=detail, measurements=measured, digests={"case": detail})
    read = record_from(made.data, made.file, Pool(lambda _: made.data))
    assert all(float(read.scalars[n]) == float(v) or math.isnan(v) for n, v in scalars.items())
    assert (read.remark, read.detail, read.digests["case"]) == (remark, detail, detail)


def test_a_stored_record_takes_little_memory(results: Path) -> None:
    read_records(results)  # what is made once
    tracemalloc.start()
    try:
        stored = read_records(results)
        held = tracemalloc.get_traced_memory()[0] / len(stored)
    finally:
        tracemalloc.stop()
    size = sum(Path(item.record.file).stat().st_size for item in stored) / len(stored)
    assert size > 4000
    assert held < 3000, "with its data a record takes ten times as much"


def test_only_what_counts_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        gpu = {"name": H200.name, "variant": "", "driver": "580" if number > 5 else "550"}
        started = f"2025-01-0{number + 1}T00:00:00.000Z"
        data = make_record(CELL, float(number), run=f"r{number}", gpu=gpu, started=started).data
        write_record(tmp_path, data)
    again, reread = list[str](), store._reread

    def note(file: str) -> Any:
        again.append(Path(file).stem)
        return reread(file)

    monkeypatch.setattr(store, "_reread", note)
    stored = read_records(tmp_path)
    (entry,) = make_entries([CELL], stored, {}, [])
    assert [record.run for record in entry.records] == ["r8", "r7", "r6"]
    assert entry.outcome is not None
    assert entry.outcome.verdict is Verdict.PASS
    assert sorted(again) == ["r6", "r7", "r8"]


def test_data_that_is_gone_is_told(tmp_path: Path) -> None:
    file = Path(write_record(tmp_path, make_record(CELL, log="said").data).file)
    (stored,), (later,) = read_records(tmp_path), read_records(tmp_path)
    assert stored.record.data["log"] == "said"
    file.unlink()
    with pytest.raises(ConfigError, match=r"json:1: it was a record a moment ago: "):
        _ = later.record.data


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(write_record(tmp_path, make_record(CELL).data).file).parent
    listed = os.listdir

    def refuse(path: str) -> list[str]:
        if path == str(folder):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        read_records(tmp_path)


def test_both_ways_are_timed(results: Path) -> None:
    figures = measure(results, repeats=1)
    assert figures["ratio"] == figures["tables"]["median"] / figures["plain"]["median"]
    assert len(figures["ratios"]) == len(figures["tables"]["seconds"]) == 1
    assert 1e7 < figures["plain"]["peak_bytes"] < figures["tables"]["peak_bytes"] < 500e6
    assert figures["formats"] == list(FORMATS)
    assert "goal 3" in text(figures)
