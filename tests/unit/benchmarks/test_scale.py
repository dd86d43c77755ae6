"""Very many records: they are held small, unpacked only where they count, and say the same either way."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from bench.records import make_records

from trtmatrix.judge.record import Pool, Record, parse_record
from trtmatrix.records.store import read_records

PUBLISHED = sorted((Path(__file__).parents[3] / "results").glob("nvidia-*/*/*/*/*.json"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    make_records(folder, 60)
    return folder


def views(record: Record) -> tuple[Any, ...]:
    return (
        record.cell, record.run, record.product, record.ended, record.detail, record.started,
        record.digests, record.observed, record.gpu, record.builds, record.noise, record.emulation,
        record.worker, record.confirms, record.processes, record.engines,
        record.outputs, record.file,
    )  # fmt: skip


def test_a_published_record_says_the_same_from_a_pool_and_by_itself() -> None:
    assert len(PUBLISHED) > 500
    pool = Pool(lambda file: json.loads(Path(file).read_text(encoding="utf-8")))
    for path in PUBLISHED[::7]:
        content = path.read_bytes()
        small, whole = parse_record(content, str(path), pool), parse_record(content, str(path))
        assert repr(views(small)) == repr(views(whole))  # NaN, which an engine may give, equals nothing
        assert small.data == whole.data == json.loads(content)


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
