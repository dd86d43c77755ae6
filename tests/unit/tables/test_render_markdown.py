"""Tables for a pull request."""

from __future__ import annotations

from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden
from hypothesis import given
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.tables.markdown import render_markdown


def test_sample() -> None:
    check_golden("table.md", render_markdown(sample_entries()))


@PATIENT
@given(many_entries())
def test_every_table_row_has_as_many_cells_as_its_header(entries: tuple[Entry, ...]) -> None:
    width = 0
    for line in render_markdown(entries).splitlines():
        if line.startswith("|"):
            width = width or line.count("|")
            assert line.count("|") == width
        else:
            width = 0


def test_texts_cannot_become_markup() -> None:
    repro = make_repro(make_case(), title="<img src=x> *a* [b](c) _d_ e_f", url="http://plain")
    entry = make_entry(make_cell(repro), ended="crashed", detail="see @someone `#1` <b>")
    text = render_markdown([entry])
    assert r"\<img src=x\> \*a\* \[b\](c) \_d\_ e_f · NVIDIA/TensorRT#4333" in text
    assert "`see @someone '#1' <b>`" in text


def test_long_lists_end_with_a_count_and_fit_a_comment() -> None:
    repro = make_repro(*(make_case(f"case-{i}") for i in range(60)))
    names = [f"10.{i}.0" for i in range(11)]
    entries = [make_entry(make_cell(repro, case, name), 1373.4) for case in repro.cases for name in names]
    text = render_markdown(entries)
    assert "- … and 620 more" in text
    assert len(text) < 65_536
