"""The page: whole, safe, and readable without colours, scripts or a network."""

from __future__ import annotations

from collections import Counter

from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden
from hypothesis import given
from pagereading import Page, check_ids, check_safe
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.tables.render_html import render_html

NOW = "2025-01-02 03:04 UTC"


def test_sample() -> None:
    check_golden("table.html", render_html(sample_entries(), generated=NOW))


def test_the_only_addresses_are_links_to_https() -> None:
    page = Page(render_html(sample_entries(), generated=NOW))
    hrefs = {attrs["href"] for attrs in page.all("a")}
    assert hrefs == {"https://github.com/NVIDIA/TensorRT/issues/4333"}
    check_safe(page, scripts=0)
    check_ids(page)


def test_headers_have_a_scope() -> None:
    page = Page(render_html(sample_entries(), generated=NOW))
    scopes = Counter(attrs.get("scope") for attrs in page.all("th"))
    assert set(scopes) == {"col", "row", "rowgroup"}
    assert len(page.all("caption")) == len(page.all("table")) == 2


def test_each_cell_says_all_about_itself_once() -> None:
    entry = make_entry(value=1373.4)
    page = Page(render_html([entry], generated=NOW))
    (cell,) = page.all("td")
    assert (cell["class"], cell["data-v"]) == ("fail measured surprise", "FAIL")
    record = "h200/10.7.0/sdpa-scale/sdpa-tf32/20250102t030405-00000000.json"
    for part in (str(entry.cell.id), "measured here", record):
        assert page.texts.count(part) == 1
    for part in ("sum_abs 1373.4 > 690", "PASS (assumed)"):
        assert part in page.text


def test_texts_cannot_become_markup() -> None:
    script = "<script>alert(1)</script>"
    repro = make_repro(title=script, url="javascript:alert(1)", upstream="'\">")
    entry = make_entry(make_cell(repro), ended="crashed", detail='"><img src=x onerror=y>')
    page = Page(render_html([entry], generated="<b>"))
    assert page.all("script") == page.all("img") == page.all("a") == page.all("b") == []


def test_folded_rows_are_listed() -> None:
    text = render_html(sample_entries(), generated=NOW)
    folded = "… 2 more cases without evidence here</summary>sdpa-fp16<br>explicit-fp16</details>"
    assert folded in text


@PATIENT
@given(many_entries())
def test_any_page_is_well_formed(entries: tuple[Entry, ...]) -> None:
    page = Page(render_html(entries, generated=NOW, all_rows=True))
    assert sum("class" in attrs for attrs in page.all("td")) == len(entries)
    check_ids(page)
    assert all((attrs["href"] or "").startswith("https://") for attrs in page.all("a"))


def test_no_cells_at_all_still_count() -> None:
    page = Page(render_html([], generated=NOW))
    assert "0 TensorRT cells measured" in page.texts
    assert make_case().id not in page.texts
