"""A cell is believed only as far as its controls came out as they must."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from builders import VERSION_OF, make_case, make_cell, make_control, make_entry, make_expectation, make_repro

from trtmatrix.judge.compare import OWN_MODEL, advise
from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.cells import CONTROLS
from trtmatrix.suite.model import Control, Evidence, Outcome, Product, Verdict
from trtmatrix.suite.repros import Workaround

COMMON = make_repro(
    make_case("right-tf32", control=Control.POSITIVE), make_control("wrong-tf32"), id=CONTROLS,
)  # fmt: skip
REPRO = make_repro(make_case("sdpa-tf32"), make_control("control-tf32"))
BASE, OWN = REPRO.cases
RIGHT, WRONG = COMMON.cases
ORT = "onnxruntime-1.31.1"
ANSWERS = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}


def entry(case: Any, verdict: Verdict, version: str = "10.7.0", **more: Any) -> Entry:
    repro = COMMON if case in COMMON.cases else REPRO
    made = make_entry(make_cell(repro, case, version), **more)
    return replace(made, outcome=Outcome(verdict=verdict, reason=f"was {verdict.value}", builds=3, failed=1))


def believed(*entries: Entry) -> Outcome:
    """What becomes of the first."""
    outcome = apply_controls(entries)[0].outcome
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(("case", "seen"), list(itertools.product((RIGHT, WRONG, OWN), Verdict)))
@pytest.mark.parametrize("verdict", Verdict)
def test_a_control_that_came_out_wrong_takes_answers_away(case: Any, seen: Verdict, verdict: Verdict) -> None:
    wrong = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY, Verdict.INVALID}
    wrong -= {Verdict.PASS if case is RIGHT else Verdict.FAIL}
    before, control = entry(BASE, verdict), entry(case, seen)
    after = believed(before, control)
    if seen not in wrong or verdict not in ANSWERS:
        assert after == before.outcome
        return
    assert (after.verdict, after.builds, after.failed) == (Verdict.INVALID, 3, 1)
    kind = "positive" if case is RIGHT else "negative"
    must = "PASS" if case is RIGHT else "FAIL"
    assert after.reason == f"the {kind} control {control.cell.id} is {seen.value}, not {must}"


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("seen", Verdict)
def test_a_graph_that_fails_in_onnx_runtime_says_nothing_of_tensorrt(verdict: Verdict, seen: Verdict) -> None:
    before = entry(BASE, verdict)
    after = believed(before, entry(BASE, seen, ORT))
    if seen is Verdict.FAIL and verdict in ANSWERS:
        assert after.verdict is Verdict.INVALID
        assert after.reason == "the graph disagrees with its reference in ONNX Runtime: was FAIL"
    else:
        assert after == before.outcome


@pytest.mark.parametrize("name", ["repro", "case"])
def test_onnx_runtime_speaks_of_its_own_graph_only(name: str) -> None:
    before = entry(BASE, Verdict.PASS, digests={name: "now"})
    assert believed(before, entry(BASE, Verdict.FAIL, ORT, digests={name: "before"})) == before.outcome
    assert believed(before, entry(BASE, Verdict.FAIL, ORT, digests={name: "now"})).verdict is Verdict.INVALID


def test_a_control_of_another_version_time_or_driver_does_not_count() -> None:
    before = entry(BASE, Verdict.PASS, gpu={"driver": "1"})
    for other, counts in (
        (entry(RIGHT, Verdict.FAIL, "10.8.0", gpu={"driver": "1"}), False),
        (entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED), False),
        (entry(WRONG, Verdict.PASS, gpu={"driver": "2"}), False),
        (entry(WRONG, Verdict.PASS, gpu={"driver": "1"}), True),
    ):
        assert (believed(before, other).verdict is Verdict.INVALID) is counts
    recorded = replace(before, evidence=Evidence.RECORDED)
    wrong = entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED)
    assert believed(recorded, wrong).verdict is Verdict.INVALID


def test_what_was_only_reported_is_no_control_and_needs_none() -> None:
    failed, before = entry(RIGHT, Verdict.FAIL), entry(BASE, Verdict.PASS)
    reported, said = (replace(each, record=None, evidence=Evidence.REPORTED) for each in (failed, before))
    assert believed(before, reported) == before.outcome
    assert believed(said, failed) == said.outcome


def test_controls_stay_what_they_are() -> None:
    """That one is wrong must be seen, and stays a surprise."""
    entries = [entry(WRONG, Verdict.PASS), entry(RIGHT, Verdict.FAIL), entry(OWN, Verdict.PASS)]
    assert apply_controls(entries) == tuple(entries)
    assert all(item.surprise for item in entries)


@pytest.mark.parametrize("case", [RIGHT, WRONG, OWN])
def test_a_control_that_says_nothing_is_a_surprise_unless_that_was_expected(case: Any) -> None:
    silent = entry(case, Verdict.INVALID)
    assert silent.surprise
    assert not replace(silent, evidence=Evidence.RECORDED).surprise
    assert not replace(silent, expectation=make_expectation(Verdict.INVALID)).surprise
    assert not entry(BASE, Verdict.INVALID).surprise


# Every surprise says what to do about it, in both directions.


WORKAROUNDS = tuple(Workaround(what="w", case=name) for name in ("a", "sdpa-tf32", "b", "c", "d"))


def entry_of(seen: Verdict, expected: Verdict | None = None, builds: int = 4, **fields: Any) -> Entry:
    """A measured entry with this verdict, where the repro expects another."""
    product, evidence = (fields.pop(name, None) for name in ("product", "evidence"))
    product = product or Product.TENSORRT
    said = [make_expectation(expected, "", product=product)] if expected else []
    more = {"workarounds": fields.pop("workarounds", WORKAROUNDS), "expectations": tuple(said)}
    cell = make_cell(make_repro(make_case(**fields), **more), version=VERSION_OF[product])
    failed = {Verdict.FAIL: builds, Verdict.FLAKY: 1}.get(seen, 0)
    outcome = Outcome(verdict=seen, builds=builds, failed=failed)
    return replace(make_entry(cell, evidence=evidence or Evidence.MEASURED), outcome=outcome)


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
    "no TensorRT is involved: the graph or the reference":
        entry_of(Verdict.PASS, product=Product.ONNXRUNTIME, control=Control.NEGATIVE),
    "the graph is right here: change the": entry_of(Verdict.PASS, Verdict.FAIL, product=Product.ONNXRUNTIME),
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
