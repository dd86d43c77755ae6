"""The page: whole, safe, and readable without colours, scripts or a network."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden
from hypothesis import given
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.core.entry import Entry
from trtmatrix.core.render_html import render_html

NOW = "2025-01-02 03:04 UTC"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Collects tags and texts, and fails where a tag is not closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_sample() -> None:
    check_golden("table.html", render_html(sample_entries(), generated=NOW))


def test_the_only_addresses_are_links_to_https() -> None:
    page = Page(render_html(sample_entries(), generated=NOW))
    hrefs = {attrs["href"] for attrs in page.all("a")}
    assert hrefs == {"https://github.com/NVIDIA/TensorRT/issues/4333"}
    assert not any({"src", "srcset", "style"} & attrs.keys() for _, attrs in page.tags)
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(tag for tag, _ in page.tags)
    text = render_html(sample_entries(), generated=NOW)
    assert "url(" not in text
    assert "@import" not in text


def test_headers_have_a_scope() -> None:
    page = Page(render_html(sample_entries(), generated=NOW))
    scopes = Counter(attrs.get("scope") for attrs in page.all("th"))
    assert set(scopes) == {"col", "row", "rowgroup"}
    assert len(page.all("caption")) == len(page.all("table")) == 2


def test_each_cell_says_all_about_itself() -> None:
    entry = make_entry(value=1373.4)
    page = Page(render_html([entry], generated=NOW))
    (cell,) = page.all("td")
    title = cell["title"] or ""
    for part in (str(entry.cell.id), "sum_abs 1373.4 > 690", "measured here", "PASS (assumed)"):
        assert part in title
        assert part in " ".join(page.texts)
    assert "h200/10.7.0/sdpa-scale/sdpa-tf32/" in title


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
    shown = [attrs for attrs in page.all("td") if "title" in attrs]
    assert len(shown) == len(entries)
    assert all((attrs["href"] or "").startswith("https://") for attrs in page.all("a"))


def test_no_cells_at_all_still_count() -> None:
    page = Page(render_html([], generated=NOW))
    assert "0 TensorRT cells measured" in page.texts
    assert make_case().id not in page.texts
