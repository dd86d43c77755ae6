"""Every member of every enum that a cell can show is in the tables, in each of their shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from builders import (
    make_case,
    make_cell,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
)

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import CAUSE_WORDS, EVIDENCE_MEANINGS, NOT_SUPPORTED, PRODUCT_NAMES, VERDICT_WORDS
from trtmatrix.suite.model import Basis, Cause, Control, Evidence, Exclusion, Outcome, Product, Verdict
from trtmatrix.tables.markdown import render_markdown
from trtmatrix.tables.render_data import render_json, render_junit
from trtmatrix.tables.render_html import render_html
from trtmatrix.tables.render_text import render_text

NOW = "now"
PAGES: dict[str, Callable[[Sequence[Entry]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "html": lambda entries: render_html(entries, generated=NOW),
}
DATA: dict[str, Callable[[Sequence[Entry]], str]] = {
    "json": lambda entries: render_json(entries, generated=NOW),
    "junit": render_junit,
}
VERSIONS = {
    Product.TENSORRT: "10.7.0", Product.TENSORRT_RTX: "tensorrt-rtx-1.4",
    Product.ONNXRUNTIME: "onnxruntime-1.31.1",
}  # fmt: skip


def of_verdict(verdict: Verdict) -> Entry:
    return replace(make_entry(), outcome=Outcome(verdict=verdict, builds=3, failed=1))


def of_evidence(evidence: Evidence) -> Entry:
    match evidence:
        case Evidence.NONE:
            return make_unknown()
        case Evidence.REPORTED:
            return make_reported(make_cell())
        case Evidence.MEASURED | Evidence.RECORDED:
            return make_entry(evidence=evidence)


def plain(text: str) -> str:
    """A page's text as one line, without what it escapes."""
    return " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_its_word(page: str, verdict: Verdict) -> None:
    others = [word for word in VERDICT_WORDS.values() if word != VERDICT_WORDS[verdict]]
    text = PAGES[page]([replace(of_verdict(verdict), expectation=make_expectation(verdict))])
    assert VERDICT_WORDS[verdict] in text
    assert not any(f" {word} " in plain(text) for word in others)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_its_word_and_stands_in_full(page: str, cause: Cause) -> None:
    text = plain(PAGES[page]([make_entry(ended=cause.value)]))
    assert CAUSE_WORDS[cause] in text
    assert cause.value in text


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("evidence", Evidence)
def test_every_kind_of_evidence_is_explained(page: str, evidence: Evidence) -> None:
    entry = of_evidence(evidence)
    entries = [entry, make_entry(make_cell(version="10.8.0"))]
    text = plain(PAGES[page](entries))
    assert EVIDENCE_MEANINGS[evidence] in text
    other = Evidence.RECORDED if evidence is not Evidence.RECORDED else Evidence.REPORTED
    assert EVIDENCE_MEANINGS[other] not in text


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("exclusion", Exclusion)
def test_every_reason_not_to_run_is_told(page: str, exclusion: Exclusion) -> None:
    cell = make_cell(version="10.8.0")
    text = plain(PAGES[page]([make_entry(), make_unknown(cell, exclusion)]))
    assert f"1 {exclusion.value}" in text
    assert (NOT_SUPPORTED in text) is (exclusion is Exclusion.UNSUPPORTED_GPU)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("product", Product)
def test_every_product_is_counted(page: str, product: Product) -> None:
    cell = make_cell(make_repro(make_case()), version=VERSIONS[product])
    assert f"1 {PRODUCT_NAMES[product]} cell" in plain(PAGES[page]([make_entry(cell)]))


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("basis", Basis)
def test_a_surprise_tells_what_its_expectation_rests_on(page: str, basis: Basis) -> None:
    repro = make_repro(expectations=(make_expectation(basis=basis, source="a page", on=""),))
    assert f"FAIL ({basis.value}: a page)" in plain(PAGES[page]([make_entry(make_cell(repro))]))


@pytest.mark.parametrize("shape", DATA)
@pytest.mark.parametrize("member", [*Verdict, *Cause])
def test_every_outcome_is_in_the_data(shape: str, member: Verdict | Cause) -> None:
    entry = make_entry(ended=member.value) if isinstance(member, Cause) else of_verdict(member)
    assert member.value in DATA[shape]([entry])


@pytest.mark.parametrize("member", [*Evidence, *Exclusion, *Control, *Basis, *Product])
def test_every_other_member_is_in_the_json(member: Evidence | Exclusion | Control | Basis | Product) -> None:
    match member:
        case Evidence():
            entry = of_evidence(member)
        case Exclusion():
            entry = make_unknown(excluded=member)
        case Control():
            entry = make_entry(make_cell(case=make_case(control=member)))
        case Basis():
            entry = make_entry(make_cell(make_repro(expectations=(make_expectation(basis=member),))))
        case Product():
            entry = make_entry(make_cell(version=VERSIONS[member]))
    cell = json.loads(render_json([entry], generated=NOW))["cells"][0]
    assert member.value in {
        cell["evidence"], (cell["excluded"] or {}).get("why"), cell["control"], cell["expected"]["basis"],
        cell["product"],
    }  # fmt: skip
