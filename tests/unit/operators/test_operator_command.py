"""The command operators over stored records: what it prints and writes, and what it says of a model."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from goldenfile import check_golden
from onnxmodels import FLOAT, make_model, node, saved
from operators.operatorrecords import NEW, OLD, record, row

from trtmatrix.cli import entry as cli
from trtmatrix.common.errors import ConfigError
from trtmatrix.operators.show import Overview
from trtmatrix.records.operators import (
    BAD,
    GOOD,
    Verdict,
    publish_records,
    read_operator_records,
    record_text,
    write_record,
)
from trtmatrix.records.store import read_records
from trtmatrix.suite.model import Product

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command over two records, as they are stored: its code, and what it printed."""
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    for one in (OLD, NEW):
        write_record(tmp_path / "results", one)
    files = [f"--matrix={ROOT}/matrix.yaml", f"--repros={ROOT}/repros", f"--results={tmp_path}/results"]

    def call(*words: str, verb: str = "operators") -> tuple[int, str]:
        code = cli.run([verb, *files, *words])
        return code, "".join(capsys.readouterr())

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of Relu, GridSample, Mish and an operator that no test has."""
    nodes = [
        node("Relu", "x", "a"), node("Relu", "a", "b"), node("GridSample", "b g", "c", mode="bicubic"),
        node("Mish", "c", "d"), node("Erf", "d", "y"),
    ]  # fmt: skip
    inputs = {"x": (FLOAT, [1, 1, 4, 4]), "g": (FLOAT, [1, 1, 4, 2])}
    return saved(make_model(nodes, inputs, {"y": (FLOAT, None)}, opset=18), tmp_path / "m.onnx")


def test_the_screen_counts_names_what_is_wrong_and_what_changed(run: Run) -> None:
    code, text = run()
    assert code == 0
    check_golden("operators.txt", text)


def test_files_have_every_operator_and_case(run: Run, tmp_path: Path) -> None:
    files = [tmp_path / f"o.{suffix}" for suffix in ("html", "md", "json")]
    code, printed = run(*(f"--output={file}" for file in files), "--full")
    assert code == 0
    page, markdown, data = (file.read_text() for file in files)
    for text in (page, markdown, printed):
        assert "WRONG 1, right 1 (opset 16)" in text
        assert "y has the shape" in text
    assert "&lt;b&gt;assertion&lt;/b&gt;" in page
    assert "<b>" not in page
    assert r"\<b\>assertion" in markdown
    found = json.loads(data)
    assert [one["version"] for one in found["records"]] == ["8.5.3.1", "8.6.0"]
    kinds = {"newly wrong", "fixed", "newly refused", "newly accepted"}
    assert {change["kind"] for change in found["changes"]} == kinds


def test_stored_records_are_shown_of_the_cases_that_were_named(run: Run) -> None:
    code, text = run("--case=GridSample", "--case=test_mi*", "--json")
    names = {"test_gridsample_bicubic", "test_gridsample_nearest", "test_mish"}
    assert code == 0
    assert [set(record["rows"]) for record in json.loads(text)["records"]] == [names, names]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--case=Gridsample", 4, "there is no record of Gridsample at any of these versions"),
        ("--trt=10.8.0 --no-run", 4, "nox -s operators -- --trt VERSION"),
        ("--output=o.xml", 2, "the suffix must be one of .html, .md, .json"),
        ("--executor=slurm", 2, "unrecognized arguments: --executor=slurm"),
        ("MODEL --output=o.html", 2, "--output: not with a model; --json prints all"),
        ("MODEL --trt=8.6.0,abc", 2, "--trt abc: no release of TensorRT such as 8.6.1, and no version"),
    ],
)
def test_what_it_cannot_show_or_do_is_told(words: str, code: int, told: str, run: Run, model: Path) -> None:
    ended, text = run(*words.replace("MODEL", str(model)).split())
    assert (ended, told in text) == (code, True), text


def test_a_model_is_held_against_tests_of_its_opset_with_the_static_check(run: Run, model: Path) -> None:
    code, printed = run(str(model), "--trt", "8.5.3.1,8.6.0,10.8.0")
    text = " ".join(printed.split())
    assert code == 1
    assert "GridSample ×1 at 8.5.3.1 wrong in tests: 1 of 2: test_gridsample_bicubic (wrong)" in text
    assert "Relu ×2 at 8.6.0 wrong in tests: 1 of 1: test_relu (wrong)" in text
    counts = "1 right, 1 in no test at this opset, 1 unknown to the parser, 1 wrong"
    assert f"8.5.3.1 (nvidia-h200): {counts}" in text
    assert "Not run at 10.8.0: nox -s operators -- --trt 10.8.0" in text
    assert re.search(r"held against \d+ rules at 8\.5\.3\.1, 8\.6\.0, 10\.8\.0", text)
    lacking = "an operator that the parser does not know refused: 8.5.3.1 (measured on H200)"
    assert re.search(rf"Mish ×1 \(\w+\): {re.escape(lacking)}", text)
    assert "Not looked at: operators that 10.8.0 may lack" in text
    code, printed = run(str(model), "--json")
    data = json.loads(printed)
    assert (code, data["nodes"]) == (1, {"Erf": 1, "GridSample": 1, "Mish": 1, "Relu": 2})
    assert data["check"]["versions"] == ["8.5.3.1", "8.6.0"]


def test_upgrade_counts_what_is_right_at_both_and_names_the_rest(run: Run, model: Path) -> None:
    words = ["--from=8.5.3.1", "--to=8.6.0", "--gpu=H200", f"--model={model}", "--no-run", "--json"]
    _, told = run(*words, verb="upgrade")
    assert "in ONNX's tests at 8.5.3.1 (nvidia-h200): 1 right, 1 in no test at this opset, 1 unknown" in told
    assert "Mish at 8.5.3.1 unknown to the parser: 1 of 1: test_mish (refused by the parser)" in told


def test_no_operator_that_a_version_has_run_is_called_unknown_to_it() -> None:
    """By the published records: a test that the parser refuses for something else says nothing of others."""
    records = [each for each in read_operator_records(ROOT / "results") if each.product is Product.TENSORRT]
    assert len(records) == 4
    for each in records:
        ran = {row.operator for row in each.rows.values() if row.verdict in GOOD | BAD}
        assert {"Det", "Mish"} <= each.lacking
        assert not each.lacking & ran
        assert ("LayerNormalization" in each.lacking) is each.version.startswith("8.5")


# Records of the suite: one file a version, read as it was written; what comes out otherwise is flaky.
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
    nothing = record("8.6.0", row("test_relu", "Relu", 14, Verdict.NOTHING))
    assert right.after(nothing).flaky == nothing.after(right).flaky == (), "trouble of the host is no verdict"


@pytest.mark.parametrize(
    "other", [replace(NEW, suite="t"), replace(NEW, version="8.6.1"), record("8.6.0", image="sha256:b")]
)
def test_runs_of_other_cases_versions_or_images_say_nothing_of_each_other(other: object) -> None:
    assert NEW.after(other).flaky == ()  # type: ignore[arg-type] # one of its type


DAMAGED = {
    "no gzip": b"no gzip", "no json": gzip.compress(b"no json"), "empty": gzip.compress(b"{}"),
    "nothing beside the schema": gzip.compress(b'{"schema": 1}'),
    "a word": gzip.compress(record_text(OLD).replace('"right"', '"splendid"').encode()),
    "a list": gzip.compress(record_text(replace(OLD, rows={})).replace('s": {},', 's": [],', 1).encode()),
    "no facts": gzip.compress(record_text(replace(OLD, facts={})).encode()),
    "no GPU": gzip.compress(record_text(replace(OLD, facts={**OLD.facts, "gpu": []})).encode()),
    "no version": gzip.compress(record_text(replace(OLD, version="old")).encode()),
    "cut off": gzip.compress(record_text(OLD).encode())[:-20], "too large": gzip.compress(b" " * (1 << 27)),
}  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    file = write_record(tmp_path, OLD)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"operators\.json\.gz: cannot be used: .*\n  move it away"):
        read_operator_records(tmp_path)
    (tmp_path / "local").mkdir()
    with pytest.raises(ConfigError, match="move it away"):
        publish_records(tmp_path)


def test_changes_are_told_from_each_release_to_the_next_that_ran_the_same_suite() -> None:
    other = record("8.5.4", row("test_relu", "Relu", 14, Verdict.CRASHED), suite="t")
    changes = Overview([NEW, other, OLD]).changes
    assert {(change.before, change.after) for change in changes} == {("8.5.3.1", "8.6.0")}


def test_a_record_is_json() -> None:
    data = json.loads(record_text(OLD))
    assert data["cases"]["test_relu"] == ["right", "Relu", 14, 0.01, -1]
