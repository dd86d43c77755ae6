"""The command that writes the whole matrix: its files, its exit codes, and what it says of bad ones."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_case, make_cell, make_control, make_entry, make_repro, make_unknown
from goldenfile import check_golden
from hypothesis import given
from pagereading import Page, check_ids, check_safe
from shown import NOISE, PATIENT, many_entries, sample_entries
from test_light import HEAVY, RUNNING, project, store_all, watched

from trtmatrix.cli import entry as cli
from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import record_from
from trtmatrix.tables.matrix_plots import floors_of, latencies_of, make_plots
from trtmatrix.tables.render_report_html import render_report_html

NOW = "2025-01-02 03:04 UTC"
__all__ = ["project"]


def report(entries: tuple[Entry, ...]) -> Page:
    plots = make_plots(entries, NOT_CALIBRATED)
    return Page(render_report_html(entries, plots, generated=NOW, again="nox -s report"))


def test_sample() -> None:
    entries = sample_entries()
    plots = make_plots(entries, NOT_CALIBRATED)
    check_golden("report.html", render_report_html(entries, plots, generated=NOW, again="nox -s report"))


def test_the_page_loads_nothing_and_every_cell_with_evidence_is_in_it_once() -> None:
    entries = sample_entries()
    page = report(entries)
    check_safe(page, scripts=1)
    check_ids(page)
    known = [str(entry.cell.id) for entry in entries if entry.outcome is not None]
    text = page.whole.partition('id="tables"')[2].partition('id="plots"')[0]
    assert all(text.count(f"<dd>{name}<") == 1 for name in known)


def test_the_overview_counts_cases_by_finding_and_version_without_controls() -> None:
    text = re.sub(r"<[^>]*>", " ", report(sample_entries()).whole.partition('id="overview"')[2])
    overview = " ".join(text.partition("What needs attention")[0].split())
    assert "1 PASS" in overview
    assert "1 not as expected" in overview
    assert "control" not in overview


@PATIENT
@given(many_entries())
def test_any_report_is_well_formed(entries: tuple[Entry, ...]) -> None:
    page = report(entries)
    check_ids(page)
    check_safe(page, scripts=1)


def test_errors_are_those_of_the_worst_engine() -> None:
    case = make_case(params={"precision": "fp16-flag"}, limits={})
    entry = make_entry(make_cell(make_repro(case)), rel_l2=8e-4, noise=NOISE, others=(1, 2))
    assert floors_of(entry, NOT_CALIBRATED) == [2.0, 2.0, 2.0]
    (found,) = make_plots([entry], NOT_CALIBRATED)
    (line,) = found.plot.series
    assert (line.label, line.points[0].value, found.finding) == ("sdpa-tf32", 2.0, "sdpa-scale")
    assert (line.points[0].low, line.points[0].high) == (2.0, 2.0)


def test_of_several_outputs_the_worst_counts() -> None:
    case = make_case(params={"precision": "fp16-flag"}, limits={})
    entry = make_entry(make_cell(make_repro(case)), rel_l2=8e-4, noise=NOISE)
    assert entry.record is not None
    data: dict[str, Any] = json.loads(json.dumps(entry.record.data))
    data["measurements"]["outputs"]["z"] = {"rel_l2": 2e-3}
    data["noise"]["outputs"]["z"] = data["noise"]["outputs"]["y"]
    assert floors_of(replace(entry, records=(record_from(data),)), NOT_CALIBRATED) == [5.0]
    data["measurements"]["outputs"]["y"]["rel_l2"] = "NaN"
    (worst,) = floors_of(replace(entry, records=(record_from(data),)), NOT_CALIBRATED)
    assert math.isnan(worst)


def test_latencies_are_of_several_runs_only() -> None:
    cell = make_cell()
    several = {"latency": {"median_ms": 0.25, "low_ms": 0.2, "high_ms": 0.4, "runs": 50}, "run_ms": 3.0}
    assert latencies_of(make_entry(cell, engine=several)) == [0.25]
    assert latencies_of(make_entry(cell, engine={"run_ms": 3.0})) == []
    assert latencies_of(make_entry(cell, scalars={"ms": 0.5})) == [0.5]
    assert latencies_of(make_entry(cell, engine={"latency": "none"})) == []
    assert latencies_of(make_unknown(cell)) == []
    plots = make_plots([make_entry(cell, scalars={"ms": 0.5})], NOT_CALIBRATED)
    assert [found.plot.unit for found in plots] == ["ms"]


def test_negative_controls_are_marked_in_plots() -> None:
    control = make_control()
    entry = make_entry(make_cell(make_repro(control)), rel_l2=8e-4, noise={**NOISE, "precision": "fp16"})
    (found,) = make_plots([entry], NOT_CALIBRATED)
    assert found.plot.must_fail == {control.id}


def test_it_writes_what_it_is_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_all(project)
    assert cli.run(["report"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    Page((project / "report.html").read_text(encoding="utf-8"))
    assert cli.run(["report", "-o", "a.md", "-o", "b.json", "-o", "c.html"]) == 0
    assert (project / "a.md").read_text(encoding="utf-8").startswith("## TensorRT version matrix")
    assert json.loads((project / "b.json").read_text(encoding="utf-8"))["schema"] == 1
    assert (project / "c.html").exists()


def test_without_any_evidence_it_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report"]) == 4
    assert "nox -s matrix runs what can be run here" in capsys.readouterr().out
    Page((project / "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("a.txt", "the suffix must be one of"),
        ("no/a.html", "there is no folder no"),
        ("f.html", "is a folder"),
    ],
)
def test_bad_files_are_told_before_anything_is_read(
    file: str, says: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "f.html").mkdir()
    (project / "matrix.yaml").unlink()
    assert cli.run(["report", "-o", file]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.html").symlink_to(project / "gone" / "b.html")
    assert cli.run(["report", "-o", "a.html"]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_report_imports_nothing_heavy_and_starts_nothing(project: Path) -> None:
    store_all(project)
    found = watched("report")
    assert found.code == 0
    assert found.imported(HEAVY | RUNNING) == set()


def test_a_surprise_is_told_and_is_the_exit_code(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_all(project, 1e9)
    assert cli.run(["report"]) == 1
    assert "cells are not as expected: see what needs attention" in capsys.readouterr().out
