"""The command operators over stored records: what it prints and writes, and what it says of a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from onnxmodels import FLOAT, make_model, node, saved
from operators.operatorrecords import NEW, OLD

from trtmatrix.cli import entry as cli
from trtmatrix.operators.records import write_record

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command over two records; only stored ones are shown."""
    monkeypatch.setenv("TRTMATRIX_CACHE", str(tmp_path / "cache"))
    for one in (OLD, NEW):
        write_record(tmp_path / "results", one)
    files = [f"--matrix={ROOT}/matrix.yaml", f"--repros={ROOT}/repros", f"--results={tmp_path}/results"]
    return ["operators", *files]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of Relu, GridSample, Mish and an operator that no test has."""
    nodes = [
        node("Relu", "x", "a"), node("Relu", "a", "b"), node("GridSample", "b g", "c", mode="bicubic"),
        node("Mish", "c", "d"), node("Erf", "d", "y"),
    ]  # fmt: skip
    inputs = {"x": (FLOAT, [1, 1, 4, 4]), "g": (FLOAT, [1, 1, 4, 2])}
    return saved(make_model(nodes, inputs, {"y": (FLOAT, None)}, opset=18), tmp_path / "m.onnx")


def test_the_screen_counts_names_what_is_wrong_and_what_changed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    assert "right WRONG crashed parser builder flaky took 8.5.3.1 2 1 1 1 · · 3 min" in text
    assert "wrong at 8.6.0: Relu (1 test)" in text
    assert "crashed at 8.5.3.1: GRU (1 test)" in text
    assert "8.5.3.1 to 8.6.0, 1 case newly wrong: test_relu" in text
    assert "8.5.3.1 to 8.6.0, 1 case fixed: test_gridsample_bicubic" in text
    assert "8.5.3.1 to 8.6.0, 1 case newly refused: test_gru" in text
    assert "8.5.3.1 to 8.6.0, 1 case newly accepted: test_mish" in text


def test_files_have_every_operator_and_case(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"o.{suffix}" for suffix in ("html", "md", "json")]
    assert cli.run([*words, *(f"--output={file}" for file in files), "--full"]) == 0
    page, markdown, data = (file.read_text() for file in files)
    for text in (page, markdown, capsys.readouterr().out):
        assert "WRONG 1, right 1 (opset 16)" in text
        assert "y has the shape" in text
    assert "&lt;b&gt;assertion&lt;/b&gt;" in page
    assert "<b>" not in page
    assert r"\<b\>assertion" in markdown
    found = json.loads(data)
    assert [one["version"] for one in found["records"]] == ["8.5.3.1", "8.6.0"]
    assert {change["kind"] for change in found["changes"]} == {
        "newly wrong", "fixed", "newly refused", "newly accepted",
    }  # fmt: skip


def test_a_version_without_a_record_shows_nothing_and_the_next_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--trt", "10.8.0", "--no-run"]) == 4
    assert "nox -s operators -- --trt VERSION" in capsys.readouterr().out


def test_a_format_that_is_not_known_is_refused_first(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--output=o.xml"]) == 2
    assert "the suffix must be one of .html, .md, .json" in capsys.readouterr().err


def test_a_model_s_operators_are_held_against_tests_of_its_opset_with_the_static_check(
    words: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, str(model), "--trt", "8.5.3.1,8.6.0,10.8.0"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "GridSample ×1 at 8.5.3.1 wrong in tests: 1 of 2: test_gridsample_bicubic (wrong)" in text
    assert "Relu ×2 at 8.6.0 wrong in tests: 1 of 1: test_relu (wrong)" in text
    assert (
        "8.5.3.1 (nvidia-h200): 1 right, 1 in no test at this opset, 1 refused in every test, 1 wrong" in text
    )
    assert "Not run at 10.8.0: nox -s operators -- --trt 10.8.0" in text
    assert re.search(r"held against \d+ rules at 8\.5\.3\.1, 8\.6\.0, 10\.8\.0", text)
    assert cli.run([*words, str(model), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["nodes"] == {"Erf": 1, "GridSample": 1, "Mish": 1, "Relu": 2}
    assert data["check"]["versions"] == ["8.5.3.1", "8.6.0"]


def test_upgrade_counts_what_is_right_at_both_and_names_the_rest(
    words: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = words[1:]
    move = ["--from=8.5.3.1", "--to=8.6.0", "--gpu=H200", f"--model={model}", "--no-run", "--json"]
    cli.run(["upgrade", *files, *move])
    told = capsys.readouterr().out
    assert "in ONNX's tests at 8.5.3.1 (nvidia-h200): 1 right, 1 in no test at this opset, 1 refused" in told
    assert "Mish at 8.5.3.1 refused in every test: 1 of 1: test_mish (refused by the parser)" in told
