"""Records on disk: whole or not at all, never overwritten, damaged ones set aside."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from builders import VERSION_OF, make_cell, make_record

from trtmatrix.common.errors import ConfigError
from trtmatrix.common.text import to_json
from trtmatrix.judge.compare import is_shared
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import (
    ENDS,
    SCHEMA,
    NewerRecordError,
    Record,
    RecordError,
    parse_record,
    record_from,
)
from trtmatrix.records.store import find_recorded_versions, publish, read_records, write_record
from trtmatrix.suite.model import Product

CELL = make_cell()


def data(run: str = "r1", **more: Any) -> dict[str, Any]:
    return dict(make_record(CELL, run=run, **more).data)


def record(run: str = "r1", **more: Any) -> Record:
    return record_from(data(run, **more))


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def by_run(stored: list[Stored]) -> dict[str, bool]:
    return {item.record.run: item.local for item in stored}


def test_a_record_lies_where_its_id_says_and_reads_back(tmp_path: Path) -> None:
    written = write_record(tmp_path / "local", record(value=math.nan))
    assert files(tmp_path) == ["local/h200/10.7.0/sdpa-scale/sdpa-tf32/r1.json"]
    (stored,) = read_records(tmp_path)
    assert stored.local
    assert find_recorded_versions(tmp_path) == {"10.7.0"}
    assert repr(stored.record) == repr(written)
    assert oct(Path(written.file).stat().st_mode & 0o777) == "0o644"


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    first = Path(write_record(tmp_path, record()).file).read_bytes()
    assert write_record(tmp_path, record(value=9.0)).data == data()
    (path,) = tmp_path.rglob("*.json")
    assert path.read_bytes() == first
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
    ("broken", "error"), [({"note": math.nan}, ValueError), ({"run": "../x"}, RecordError)]
)
def test_failed_writes_leave_nothing(broken: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        write_record(tmp_path, record_from({**data(), **broken}))
    assert files(tmp_path) == []


def test_published_and_local_records_are_read_and_a_copy_counts_once(tmp_path: Path) -> None:
    for folder, run in (
        (tmp_path, "r1"),
        (tmp_path / "local", "r1"),
        (tmp_path, "r2"),
        (tmp_path / "local", "r3"),
    ):
        write_record(folder, record(run))
    assert by_run(read_records(tmp_path)) == {"r1": True, "r2": False, "r3": True}


def test_a_record_of_a_newer_trtmatrix_stays_where_it_is(tmp_path: Path) -> None:
    path = Path(write_record(tmp_path, record()).file)
    path.write_text(to_json({**data(), "schema": 2}))
    for _ in range(2):
        with pytest.raises(ConfigError, match="update trtmatrix") as caught:
            read_records(tmp_path)
        assert "set aside" not in str(caught.value)
    assert files(tmp_path) == [str(path.relative_to(tmp_path))]


@pytest.mark.parametrize("damage", ['{"schema": 1, "cell": ', '{"schema": 1, "cell": 3}'])
def test_a_damaged_record_is_set_aside_and_a_large_one_read_after_it(damage: str, tmp_path: Path) -> None:
    damaged = Path(write_record(tmp_path, record("r1")).file)
    damaged.write_text(damage)
    write_record(tmp_path, record("r2", log="x" * (1 << 21)))
    with pytest.raises(ConfigError, match=r"^\S+r1.json:1: .*\n  set aside as r1.json.damaged"):
        read_records(tmp_path)
    assert by_run(read_records(tmp_path)) == {"r2": False}


def test_publishing_copies_bytes_once(tmp_path: Path) -> None:
    written = write_record(tmp_path / "local", record())
    (new,) = publish(tmp_path, [written])
    assert new.read_bytes() == Path(written.file).read_bytes()
    assert publish(tmp_path, [written]) == []
    assert by_run(read_records(tmp_path)) == {"r1": True}
    assert not [name for name in files(tmp_path) if "partial" in name]


# Records: strict JSON that reads as it was written, or is refused with the place.
TEXT = to_json(make_record(make_cell(), math.nan, detail="√ \u2028 \x1b[31m").data)


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("ended", ENDS)
def test_a_record_of_every_product_and_end_reads_as_it_was_written(product: Product, ended: str) -> None:
    record = make_record(make_cell(version=VERSION_OF[product]), ended=ended, detail="why")
    again = parse_record(to_json(record.data), record.file)
    assert again.data == record.data
    assert (again.product, again.ended, again.cell) == (product, ended, record.cell)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_bare_nan_is_neither_written_nor_read(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": value})
    with pytest.raises(RecordError, match=r"^f:1: damaged at column"):
        parse_record(json.dumps({"schema": SCHEMA, "a": value}), "f")


@pytest.mark.parametrize("schema", ["2", "1000000", "0", "true", "1.0", "null"])
def test_any_other_schema_is_refused_and_a_newer_one_with_the_remedy(schema: str) -> None:
    newer = schema.isdigit() and schema != "0"
    with pytest.raises(RecordError, match="update trtmatrix" if newer else "reads 1") as caught:
        parse_record(TEXT.replace('"schema": 1', f'"schema": {schema}'), "f")
    assert isinstance(caught.value, NewerRecordError) is newer


def test_nothing_may_be_missing() -> None:
    whole = make_record(CELL).data
    for name in whole:
        with pytest.raises(RecordError, match=r"^f:1: "):
            record_from({key: value for key, value in whole.items() if key != name}, "f")


@pytest.mark.parametrize(
    ("part", "value"),
    [("engine", {"engines": None}), ("engine", {"engines": [3]}), ("gpu", {"compute": "nine"})],
)
def test_what_every_table_reads_has_its_own_shape(part: str, value: Any) -> None:
    with pytest.raises(RecordError, match=f"^f:1: {part}"):
        record_from({**make_record(CELL).data, part: value}, "f")
    for unknown in ({"engine": None}, {"gpu": {"name": "NVIDIA H200", "compute": None}}):
        assert not is_shared(record_from({**make_record(CELL).data, **unknown}))
