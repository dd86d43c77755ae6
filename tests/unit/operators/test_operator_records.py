"""Records of the suite: one file a version, read as it was written; what comes out otherwise is flaky."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from operators.operatorrecords import NEW, OLD, record, row

from trtmatrix.common.errors import ConfigError
from trtmatrix.operators.records import publish_records, read_operator_records, record_text, write_record
from trtmatrix.operators.verdicts import Verdict
from trtmatrix.records.store import read_records


def test_a_record_is_read_as_it_was_written_and_no_reader_of_cells_sees_it(tmp_path: Path) -> None:
    file = write_record(tmp_path / "local", OLD)
    assert file == tmp_path / "local/nvidia-h200/8.5.3.1/operators.json.gz"
    assert read_operator_records(tmp_path) == [OLD]
    assert read_records(tmp_path) == []
    turned = replace(OLD, rows=dict(sorted(OLD.rows.items(), reverse=True)))
    assert file.read_bytes() == write_record(tmp_path, turned).read_bytes(), "the same record, the same bytes"


def test_publish_copies_what_was_measured_here_and_what_is_measured_here_counts(tmp_path: Path) -> None:
    write_record(tmp_path / "local", OLD)
    assert publish_records(tmp_path) == [tmp_path / "nvidia-h200/8.5.3.1/operators.json.gz"]
    assert publish_records(tmp_path) == []
    later = record("8.5.3.1", row("test_relu", "Relu", 14, Verdict.WRONG))
    write_record(tmp_path / "local", later)
    assert read_operator_records(tmp_path) == [later]


def test_a_case_that_comes_out_otherwise_in_a_comparable_run_is_flaky_from_then_on() -> None:
    wrong = record("8.6.0", row("test_relu", "Relu", 14, Verdict.WRONG))
    right = record("8.6.0", row("test_relu", "Relu", 14, Verdict.RIGHT))
    flaky = right.after(wrong)
    assert flaky.flaky == ("test_relu",)
    assert flaky.rows["test_relu"].before is Verdict.WRONG
    assert right.after(flaky).flaky == ("test_relu",)
    assert right.after(right).flaky == right.after(None).flaky == ()


@pytest.mark.parametrize(
    "other", [replace(NEW, suite="t"), replace(NEW, version="8.6.1"), record("8.6.0", image="sha256:b")]
)
def test_runs_of_other_cases_versions_or_images_say_nothing_of_each_other(other: object) -> None:
    assert NEW.after(other).flaky == ()  # type: ignore[arg-type] # one of its type


DAMAGED = {
    "no gzip": b"no gzip", "no json": gzip.compress(b"no json"), "empty": gzip.compress(b"{}"),
    "nothing beside the schema": gzip.compress(b'{"schema": 1}'),
    "a word": gzip.compress(record_text(OLD).replace('"right"', '"splendid"').encode()),
    "cut off": gzip.compress(record_text(OLD).encode())[:-20], "too large": gzip.compress(b" " * (1 << 27)),
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    file = write_record(tmp_path, OLD)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"operators\.json\.gz: cannot be used: .*\n  move it away"):
        read_operator_records(tmp_path)


def test_a_record_is_json_with_its_counts() -> None:
    data = json.loads(record_text(OLD))
    assert data["counts"] == {"right": 2, "wrong": 1, "refused by the parser": 1, "crashed": 1}
    assert data["cases"]["test_relu"] == ["right", "Relu", 14, 0.01, -1]
