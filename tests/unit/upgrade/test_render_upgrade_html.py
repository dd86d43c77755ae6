"""The page of an upgrade report: whole, safe, without what there is not."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from goldenfile import check_golden
from hypothesis import given
from pagereading import Page, body_of, check_ids, check_safe
from reportparts import FIXED, LONG, ODD
from reports import ERRORS, any_upgrade, bare_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.api.types import ApiSection
from trtmatrix.upgrade.document import deciding, make_document
from trtmatrix.upgrade.render import render_page
from trtmatrix.upgrade.report import Change, Decision, Upgrade, Weight

SECTIONS = {
    "findings": ("findings",),
    "gpu_and_driver": ("gpu",),
    "performance": ("performance",),
    "api": ("api",),
    "engines": ("engines",),
    "model": ("model",),
    "errors": ("plots",),
    "latencies": ("plots",),
    "lacking": ("lacking",),
    "not_looked_at": ("not-looked-at",),
}
"""A report's field → the section of the page that shows it."""
HEAD = {
    "product",
    "before",
    "after",
    "gpu",
    "gpu_note",
    "decision",
    "summary",
    "reasons",
    "command",
    "generated",
}


def shown(upgrade: Upgrade) -> str:
    return render_page(make_document(upgrade))


def page_of(upgrade: Upgrade) -> Page:
    return Page(shown(upgrade))


def sections(page: Page) -> list[str]:
    return [attrs["id"] or "" for attrs in page.all("section")]


def test_sample() -> None:
    check_golden("upgrade.html", body_of(shown(full_upgrade())))


def test_the_page_loads_nothing_and_its_texts_are_no_markup() -> None:
    page = page_of(full_upgrade())
    check_safe(page, scripts=1)
    check_ids(page)
    assert "<script>alert(1)</script> & \"quotes\" 'n' `ticks` | bars | √x ≤ ∞ [31m 日本語 end" in page.text
    links = {attrs["href"] for attrs in page.all("a")}
    assert "https://github.com/NVIDIA/TensorRT/issues/4333" in links
    assert not any("javascript" in str(link) or "example" in str(link) for link in links)


@pytest.mark.parametrize("decision", Decision)
def test_the_decision_comes_first_in_words_and_with_a_sign(decision: Decision) -> None:
    text = page_of(replace(full_upgrade(), decision=decision)).text
    said = decision.value[0].upper() + decision.value[1:]
    place = text.index(said.replace("'", "'"))
    assert text[place - 2] in "✓!✕?"
    assert place < text.index("Why") < text.index("What would tell more")
    assert "Exit code 11" in text, "the sample's code must change"


def test_every_field_has_its_section() -> None:
    assert {field.name for field in fields(Upgrade)} == set(SECTIONS) | HEAD
    shown = sections(page_of(full_upgrade()))
    assert shown == [
        "decision",
        "lacking",
        "model",
        "findings",
        "gpu",
        "performance",
        "api",
        "engines",
        "plots",
        "not-looked-at",
    ]


@pytest.mark.parametrize("name", SECTIONS)
def test_what_a_report_has_not_is_not_shown(name: str) -> None:
    nothing: dict[str, Any] = {"api": ApiSection(), "model": None}
    empty: dict[str, Any] = {name: nothing.get(name, ())}
    shown = sections(page_of(replace(full_upgrade(), **empty)))
    if name in {"errors", "latencies", "performance"}:  # the other plot, and that nothing ran at both
        assert set(SECTIONS[name]) <= set(shown)
    else:
        assert not set(SECTIONS[name]) & set(shown)


def test_a_report_of_nothing_is_a_page_too() -> None:
    page = page_of(bare_upgrade())
    assert sections(page) == ["decision"]
    assert page.all("nav") == page.all("table") == page.all("svg") == []
    assert "Not enough evidence" in page.text
    check_ids(page)


def test_commands_stand_as_they_are_to_be_typed() -> None:
    text = shown(full_upgrade())
    assert "first line \\\n  --second &#39;&lt;line&gt;&#39; &amp;&amp; echo &#34;$HOME&#34;</code>" in text


def test_headers_and_regions_are_named() -> None:
    page = page_of(full_upgrade())
    assert all(attrs.get("scope") in {"col", "row"} for attrs in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    regions = [attrs for _, attrs in page.tags if attrs.get("role") == "region"]
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in regions)
    images = [attrs for attrs in page.all("svg") if attrs.get("aria-hidden") != "true"]
    assert len(images) == 2
    assert all(attrs["role"] == "img" for attrs in images)


def test_long_texts_and_figures_are_all_there() -> None:
    text = page_of(full_upgrade()).text
    for part in (
        LONG,
        "−57%",
        "not comparable: another driver",
        "+0.3%, within the spread",
        "1.27 MiB",
        "NaN s",
        "2 uses must change, 1 should, 1 possible (37 files looked at)",
        "cell 12, line 3",
        "engine.num_io_tensors",
        "since 10.0",
        "mAP = 0.871",
        "not accepted",
        "17 of 64",
        "/blocks.3/attn/MatMul",
        "marking any output cured",
        "2 NaN or infinite",
        "3 of 64",
        "time-out",
        "in doubt: a control",
        "cannot be tried here",
        "assumed to fail",
        "1 of 4 builds fail",
        "recorded elsewhere",
        "consistent with NVIDIA/TensorRT#4333",
        "12.5 noise floors",
    ):
        assert part in text, part


def test_a_findings_cases_fold_under_it() -> None:
    page = page_of(replace(bare_upgrade(), findings=(FIXED,)))
    assert "3 cases of sdpa-scale" in page.text
    assert len(page.all("table")) == 2
    assert "fixed 2 cases." in page.text


def test_plots_mark_the_two_versions() -> None:
    text = shown(replace(bare_upgrade(), before="10.7.0", after="10.8.0", errors=ERRORS))
    assert re.findall(r'<text class="marked"[^>]*>([^<]+)<', text) == ["10.7.0", "10.8.0"]


@PATIENT
@given(any_upgrade())
def test_any_report_is_well_formed_and_can_be_written(upgrade: Upgrade) -> None:
    text = shown(upgrade)
    text.encode("utf-8")
    page = Page(text)
    check_ids(page)
    check_safe(page, scripts=1)


def test_odd_characters_of_the_fixture_are_odd() -> None:
    assert not ODD.isprintable()


def test_a_finding_shows_a_case_of_its_own_change() -> None:
    first, *others = FIXED.cases
    mixed = replace(FIXED, cases=(replace(first, change=Change.REGRESSED), *others), weight=Weight.LACKING)
    shown = deciding(mixed)
    assert shown is not None
    assert (shown.case, shown.change) == ("sdpa-fp16-flag", Change.FIXED)
    assert deciding(FIXED) == first
    assert deciding(replace(FIXED, cases=())) is None
