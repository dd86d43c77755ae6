"""The page of an upgrade report: whole, safe, without what there is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from goldenfile import check_golden
from hypothesis import given
from pagereading import Page, body_of, check_ids, check_safe
from reports import any_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.api.types import ApiSection
from trtmatrix.upgrade.render import render_page
from trtmatrix.upgrade.report import Upgrade

SECTIONS = {
    "findings": "findings", "gpu_and_driver": "gpu", "performance": "performance", "api": "api",
    "engines": "engines", "model": "model", "lacking": "lacking", "not_looked_at": "not-looked-at",
}  # fmt: skip
"""A report's field → the section of the page that shows it."""


def shown(upgrade: Upgrade) -> str:
    return render_page(upgrade)


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


@pytest.mark.parametrize("name", SECTIONS)
def test_what_a_report_has_not_is_not_shown(name: str) -> None:
    nothing: dict[str, Any] = {"api": ApiSection(), "model": None}
    empty: dict[str, Any] = {name: nothing.get(name, ())}
    assert SECTIONS[name] in sections(page_of(full_upgrade()))
    left = sections(page_of(replace(full_upgrade(), **empty)))
    assert (SECTIONS[name] in left) is (name == "performance"), "that nothing ran at both is told"


@PATIENT
@given(any_upgrade())
def test_any_report_is_well_formed_and_can_be_written(upgrade: Upgrade) -> None:
    text = shown(upgrade)
    text.encode("utf-8")
    page = Page(text)
    check_ids(page)
    check_safe(page, scripts=1)
