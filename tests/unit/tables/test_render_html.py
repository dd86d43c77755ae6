"""The page: whole, safe, and readable without colours, scripts or a network; plots of what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from builders import make_case, make_cell, make_entry, make_repro, make_unknown
from goldenfile import check_golden
from hypothesis import given
from pagereading import Page, body_of, check_ids, check_safe
from shown import NOISE, PATIENT, many_entries, sample_entries

from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.record import record_from
from trtmatrix.suite.model import Verdict
from trtmatrix.tables.plots import floors_of, latency_of, make_plots
from trtmatrix.tables.render_html import render_html

NOW = "2025-01-02 03:04 UTC"


def markup(entries: tuple[Entry, ...]) -> str:
    plots = make_plots(entries, NOT_CALIBRATED)
    return render_html(entries, plots, generated=NOW, again="nox -s report")


def test_sample() -> None:
    check_golden("report.html", body_of(markup(sample_entries())))


def test_the_page_loads_nothing_and_every_cell_with_evidence_is_in_it_once() -> None:
    entries = sample_entries()
    page = Page(markup(entries))
    check_safe(page, scripts=1)
    check_ids(page)
    known = [
        str(entry.cell.id) for entry in entries
        if entry.outcome is not None and entry.outcome.verdict is not Verdict.BUILT
    ]  # fmt: skip
    text = page.whole.partition('id="tables"')[2].partition('id="plots"')[0]
    assert all(text.count(f"<dd>{name}<") == 1 for name in known)
    outside = {attrs["href"] for attrs in page.all("a") if not (attrs["href"] or "").startswith("#")}
    assert outside == {"https://github.com/NVIDIA/TensorRT/issues/4333"}


def test_texts_cannot_become_markup() -> None:
    script = "<script>alert(1)</script>"
    repro = make_repro(title=script, url="javascript:alert(1)", upstream="'\">")
    entry = make_entry(make_cell(repro), ended="crashed", detail='"><img src=x onerror=y>')
    page = Page(render_html([entry], generated="<b>", again="<i>"))
    assert page.all("img") == page.all("b") == page.all("i") == []
    assert all((attrs["href"] or "").startswith("#") for attrs in page.all("a"))
    check_safe(page, scripts=1)


@PATIENT
@given(many_entries())
def test_any_page_is_well_formed(entries: tuple[Entry, ...]) -> None:
    page = Page(markup(entries))
    check_ids(page)
    check_safe(page, scripts=1)


def test_of_several_outputs_the_worst_counts() -> None:
    case = make_case(params={"precision": "fp16-flag"}, limits={})
    entry = make_entry(make_cell(make_repro(case)), rel_l2=8e-4, noise=NOISE)
    assert entry.record is not None
    data: dict[str, Any] = json.loads(json.dumps(entry.record.data))
    data["measurements"]["outputs"]["z"] = {"rel_l2": 2e-3}
    data["noise"]["outputs"]["z"] = data["noise"]["outputs"]["y"]
    assert floors_of(replace(entry, records=(record_from(data),)), NOT_CALIBRATED) == 5.0
    data["measurements"]["outputs"]["y"]["rel_l2"] = "NaN"
    worst = floors_of(replace(entry, records=(record_from(data),)), NOT_CALIBRATED)
    assert str(worst) == "nan"


def _later(entry: Entry) -> Entry:
    """The same at a later version."""
    later = make_cell(version="10.8.0").version
    return replace(entry, cell=replace(entry.cell, version=later))


def test_latencies_are_of_several_runs_only() -> None:
    cell = make_cell()
    several = {"latency": {"median_ms": 0.25, "low_ms": 0.2, "high_ms": 0.4, "runs": 50}, "run_ms": 3.0}
    assert latency_of(make_entry(cell, engine=several)) == 0.25
    assert latency_of(make_entry(cell, engine={"run_ms": 3.0})) is None
    assert latency_of(make_entry(cell, scalars={"ms": 0.5})) == 0.5
    assert latency_of(make_entry(cell, engine={"latency": "none"})) is None
    assert latency_of(make_unknown(cell)) is None
    entry = make_entry(cell, scalars={"ms": 0.5})
    assert [found.unit for found in make_plots([entry, _later(entry)], NOT_CALIBRATED)] == ["ms"]
    assert make_plots([entry], NOT_CALIBRATED) == ()  # one version is no line
