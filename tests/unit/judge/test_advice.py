"""Every surprise says what to do about it, in both directions."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from builders import make_case, make_cell, make_entry, make_expectation, make_repro

from trtmatrix.judge.advice import OWN_MODEL, advise
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Basis, Control, Evidence, Outcome, Product, Verdict
from trtmatrix.suite.repros import Workaround

VERSIONS = {
    Product.TENSORRT: "10.7.0", Product.TENSORRT_RTX: "tensorrt-rtx-1.4",
    Product.ONNXRUNTIME: "onnxruntime-1.31.1",
}  # fmt: skip
CASE = make_case()
WORKAROUNDS = tuple(Workaround(what="w", case=name) for name in ("a", "sdpa-tf32", "b", "c", "d"))


def entry_of(
    seen: Verdict,
    expected: Verdict | None = None,
    *,
    control: Control | None = None,
    basis: Basis = Basis.REPORTED,
    evidence: Evidence = Evidence.MEASURED,
    product: Product = Product.TENSORRT,
    builds: int = 4,
    workarounds: tuple[Workaround, ...] = WORKAROUNDS,
) -> Entry:
    """A measured entry with this verdict, where the repro expects another."""
    said = [make_expectation(expected, "", basis=basis, product=product)] if expected else []
    repro = make_repro(
        replace(CASE, control=control), expectations=tuple(said), workarounds=workarounds
    )  # fmt: skip
    entry = make_entry(make_cell(repro, version=VERSIONS[product]), evidence=evidence)
    failed = {Verdict.FAIL: builds, Verdict.FLAKY: 1}.get(seen, 0)
    return replace(entry, outcome=Outcome(verdict=seen, builds=builds, failed=failed))


@pytest.mark.parametrize("control", [None, *Control])
@pytest.mark.parametrize("evidence", Evidence)
def test_a_surprise_and_nothing_else_has_advice(control: Control | None, evidence: Evidence) -> None:
    for seen, expected, builds in itertools.product(Verdict, (None, *Verdict), (1, 4)):
        entry = entry_of(seen, expected, control=control, evidence=evidence, builds=builds)
        text = advise(entry)
        assert bool(text) is entry.surprise
        assert len(text) <= 180, text


EXPLAINED = {
    "confirmed by 4 builds; look at the reason, try its work-arounds (a, b, c, …)": entry_of(Verdict.FAIL),
    "another GPU or driver (L4); confirm it (--rebuilds 4), then change the expectation in repros/sdpa_":
        entry_of(Verdict.PASS, Verdict.FAIL, builds=1),
    "--rebuilds 10 shows the rate; take it for a FAIL": entry_of(Verdict.FLAKY, workarounds=()),
    "the defect that was put in was not seen": entry_of(Verdict.PASS, control=Control.NEGATIVE),
    "what must be right is not: nothing at 10.7.0 can be": entry_of(Verdict.FAIL, control=Control.POSITIVE),
    "no TensorRT is involved: the graph or": entry_of(Verdict.FAIL, product=Product.ONNXRUNTIME),
    "run it here, with the present repro and driver": entry_of(Verdict.FAIL, evidence=Evidence.RECORDED),
}  # fmt: skip


@pytest.mark.parametrize("words", EXPLAINED)
def test_the_advice_fits_the_surprise(words: str) -> None:
    assert words in advise(EXPLAINED[words])


@pytest.mark.parametrize("product", Product)
def test_a_users_own_model_is_not_sent_to_mend_a_repro(product: Product) -> None:
    entry = entry_of(Verdict.FAIL, product=product)
    own = replace(entry, cell=replace(entry.cell, repro=replace(entry.cell.repro, upstream=OWN_MODEL)))
    assert "upgrade --model" in advise(own)
    assert "repros/" not in advise(own)
