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
from trtmatrix.tables.render_data import render_json
from trtmatrix.tables.render_html import render_html
from trtmatrix.tables.render_text import render_text

NOW = "now"
PAGES: dict[str, Callable[[Sequence[Entry]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "html": lambda entries: render_html(entries, generated=NOW),
}
VERSIONS = {
    Product.TENSORRT: "10.7.0", Product.TENSORRT_RTX: "tensorrt-rtx-1.4",
    Product.ONNXRUNTIME: "onnxruntime-1.31.1",
}  # fmt: skip


def of_verdict(verdict: Verdict) -> Entry:
    entry = replace(make_entry(), outcome=Outcome(verdict=verdict, builds=3, failed=1))
    return replace(entry, expectation=make_expectation(verdict))


def of_evidence(evidence: Evidence) -> Entry:
    match evidence:
        case Evidence.NONE:
            return make_unknown()
        case Evidence.REPORTED:
            return make_reported(make_cell())
        case Evidence.MEASURED | Evidence.RECORDED:
            return make_entry(evidence=evidence)


def of_basis(basis: Basis) -> Entry:
    said = make_expectation(basis=basis, source="a page", on="")
    return make_entry(make_cell(make_repro(expectations=(said,))))


SHOWN: list[tuple[Entry, str]] = [  # an entry, and what every page must say of it
    *((of_verdict(verdict), VERDICT_WORDS[verdict]) for verdict in Verdict),
    *((make_entry(ended=cause.value), CAUSE_WORDS[cause]) for cause in Cause),
    *((make_entry(ended=cause.value), cause.value) for cause in Cause),
    *((of_evidence(evidence), EVIDENCE_MEANINGS[evidence]) for evidence in Evidence),
    *((make_unknown(excluded=why), f"1 {why.value}") for why in Exclusion),
    (make_unknown(excluded=Exclusion.UNSUPPORTED_GPU), NOT_SUPPORTED),
    *(
        (make_entry(make_cell(version=VERSIONS[product])), f"1 {PRODUCT_NAMES[product]} cell")
        for product in Product
    ),
    *((of_basis(basis), f"FAIL ({basis.value}: a page)") for basis in Basis),
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("entry", "words"), SHOWN, ids=[words for _, words in SHOWN])
def test_every_member_has_its_words_on_every_page(entry: Entry, words: str, page: str) -> None:
    other = make_entry(make_cell(version="10.8.0"))
    text = PAGES[page]([entry] if entry.record else [entry, other])
    assert words in " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_occur_is_not_explained(page: str) -> None:
    text = PAGES[page]([make_entry()])
    absent = [EVIDENCE_MEANINGS[Evidence.RECORDED], EVIDENCE_MEANINGS[Evidence.REPORTED], NOT_SUPPORTED]
    assert not [words for words in absent if words in text]


IN_JSON: list[tuple[Entry, str, str]] = [
    *((of_verdict(verdict), "verdict", verdict.value) for verdict in Verdict),
    *((make_entry(ended=cause.value), "cause", cause.value) for cause in Cause),
    *((of_evidence(evidence), "evidence", evidence.value) for evidence in Evidence),
    *((make_entry(make_cell(case=make_case(control=kind))), "control", kind.value) for kind in Control),
    *((make_entry(make_cell(version=VERSIONS[kind])), "product", kind.value) for kind in Product),
    *((make_unknown(excluded=why), "excluded", why.value) for why in Exclusion),
    *((of_basis(basis), "expected", basis.value) for basis in Basis),
]


@pytest.mark.parametrize(("entry", "key", "value"), IN_JSON, ids=[value for *_, value in IN_JSON])
def test_every_member_is_in_the_json(entry: Entry, key: str, value: str) -> None:
    found = json.loads(render_json([entry], generated=NOW))["cells"][0][key]
    assert value in (found.values() if isinstance(found, dict) else [found])
