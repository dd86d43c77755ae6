"""Tables for a terminal: their looks, their width, their colours."""

from __future__ import annotations

from builders import make_case, make_cell, make_entry, make_repro, make_unknown
from goldenfile import check_golden
from hypothesis import given
from hypothesis import strategies as st
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, has_evidence
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.render_text import render_text


def test_sample() -> None:
    check_golden("table.txt", render_text(sample_entries()))


def test_sample_with_all_rows() -> None:
    check_golden("table-all-rows.txt", render_text(sample_entries(), all_rows=True))


def test_sample_where_nothing_ran() -> None:
    entries = [make_unknown(entry.cell) for entry in sample_entries()]
    check_golden("table-nothing.txt", render_text(entries))


def test_no_cells_at_all_still_count() -> None:
    assert render_text([]) == "0 TensorRT cells measured\n"


@PATIENT
@given(many_entries(), st.integers(min_value=60, max_value=140), st.booleans())
def test_no_line_is_too_wide(entries: tuple[Entry, ...], width: int, every: bool) -> None:
    lines = render_text(entries, width=width, all_rows=every).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines)


@PATIENT
@given(many_entries())
def test_what_has_evidence_is_shown(entries: tuple[Entry, ...]) -> None:
    text = " ".join(render_text(entries, all_rows=True).split())
    assert all(cell_text(entry) in text for entry in entries if has_evidence(entry))


def test_a_log_cannot_send_escapes_to_the_terminal() -> None:
    entry = make_entry(ended="crashed", detail="\x1b]0;owned\x07\x1b[2J")
    assert "\x1b" not in render_text([entry])


def test_blocks_repeat_the_rows_and_no_column_is_lost() -> None:
    repro = make_repro(make_case("a-case"))
    names = [f"10.{minor}.0" for minor in range(20)]
    lines = render_text([make_entry(make_cell(repro, version=name)) for name in names]).splitlines()
    blocks = [line for line in lines if line.startswith("  a-case")]
    assert len(blocks) == 3
    assert sum(line.count("PASS¹ 175") for line in blocks) == 20
    assert all(any(name in line.split() for line in lines) for name in names)


def twin_entries(names: list[str], reported: dict[str, float], apart: float | None) -> list[Entry]:
    twin = Twin(measure="apart", label="sum of |a - b|", cases=("*",), reported=reported, source="x")
    repro = make_repro(make_case("a-case"), twins=(twin,))
    scalars = {} if apart is None else {"apart": apart}
    return [make_entry(make_cell(repro, version=name), 1, scalars=scalars) for name in names]


def test_a_finding_s_own_figure_has_room() -> None:
    names = [f"10.{minor}.0" for minor in range(14)]
    lines = render_text(twin_entries(names, dict.fromkeys(names, 1234.0), 1373.4)).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.count("1373.4 (1234)") for line in lines) == len(names)


def test_a_finding_s_own_figure_is_shown_where_it_is_all_that_is_known() -> None:
    names = [f"10.{minor}.0" for minor in range(20)]
    first, *others = twin_entries(names, {"10.19.0": 1234.0}, None)
    lines = render_text([first, *(make_unknown(entry.cell) for entry in others)], width=60).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "(1234)" in line]
    assert lines[at - 1].strip() == "NVIDIA/TensorRT#4333"
