"""Tables for a terminal: their looks, their width, their colours."""

from __future__ import annotations

from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden
from hypothesis import given
from hypothesis import strategies as st
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, has_evidence
from trtmatrix.tables.render_text import render_text


def test_sample() -> None:
    check_golden("table.txt", render_text(sample_entries()))


@PATIENT
@given(many_entries(), st.integers(min_value=60, max_value=140))
def test_no_line_is_too_wide(entries: tuple[Entry, ...], width: int) -> None:
    lines = render_text(entries, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines)


@PATIENT
@given(many_entries())
def test_what_has_evidence_is_shown(entries: tuple[Entry, ...]) -> None:
    text = " ".join(render_text(entries).split())
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
