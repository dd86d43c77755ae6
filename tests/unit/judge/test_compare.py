"""Records, expectations and exclusions to entries; what is believed of them, surprises and their advice."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    H200,
    VERSION_OF,
    expecting,
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_record,
    make_repro,
    make_unknown,
)
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.compare import (
    OWN_MODEL,
    advise,
    exit_codes,
    is_current,
    is_shared,
    make_entries,
    without_refused,
)
from trtmatrix.judge.controls import apply_controls
from trtmatrix.judge.entry import Entry, Stored, find_expectation
from trtmatrix.judge.record import Record, record_from
from trtmatrix.suite.cells import CONTROLS, Cell
from trtmatrix.suite.model import NO_GPU, Cause, Control, Evidence, Exclusion, Gpu, Outcome, Product, Verdict
from trtmatrix.suite.plan import Excluded
from trtmatrix.suite.repros import Workaround, specified
from trtmatrix.tables.markdown import render_markdown
from trtmatrix.tables.page import render_html
from trtmatrix.tables.render_data import render_json
from trtmatrix.tables.render_text import render_text

GPU_FACTS = {"name": H200.name, "variant": H200.variant, "driver": H200.driver}
CELL = make_cell()
CURRENT = {"repro": "a", "probe": "b", "case": "c", "image": "d"}
ELSEWHERE = Gpu(slug="h200", name="NVIDIA H200", compute="9.0")


def record(
    started: str = "2025-01-01T00:00:00.000Z", run: str = "r1", cell: Cell = CELL, **more: Any
) -> Record:
    return make_record(cell, **{"started": started, "run": run, "gpu": GPU_FACTS, **more})


STORED = st.builds(
    lambda minute, run, local, value: Stored(
        record=record(f"2025-01-01T00:{minute:02}:00.000Z", f"r{run}", value=value), local=local
    ),
    st.integers(0, 3), st.integers(0, 3), st.booleans(), st.floats(0, 1000),
)  # fmt: skip
UNIQUE = st.lists(STORED, max_size=6, unique_by=lambda s: (s.record.started, s.record.run))


@given(UNIQUE)
def test_the_newest_local_record_is_shown_else_the_newest(stored: list[Stored]) -> None:
    (entry,) = make_entries([CELL], stored, {}, [])
    pool = [item for item in stored if item.local] or stored
    if not pool:
        assert entry.evidence is Evidence.NONE
        return
    best = max(pool, key=lambda item: (item.record.started, item.record.run))
    assert entry.record is best.record
    assert entry.evidence is (Evidence.MEASURED if best.local else Evidence.RECORDED)


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("expected", Verdict)
def test_a_surprise_goes_in_both_directions_and_needs_an_answer(verdict: Verdict, expected: Verdict) -> None:
    answers = {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}
    cell = expecting(CELL, expected)
    entry = Entry(cell=cell, evidence=Evidence.MEASURED, outcome=Outcome(verdict=verdict))
    assert entry.surprise is (verdict in answers and verdict is not expected)


@pytest.mark.parametrize(
    ("case", "version", "index"),
    [
        ("sdpa-tf32", "10.7.0", 0), ("sdpa-fp16", "10.7.0", 1), ("explicit", "10.7.0", None),
        ("sdpa-tf32", "tensorrt-rtx-1.4", 3), ("sdpa-tf32", "onnxruntime-1.31.1", None),
    ],
)  # fmt: skip
def test_the_first_expectation_that_fits_counts(case: str, version: str, index: int | None) -> None:
    expectations = (
        make_expectation(Verdict.FAIL, "==10.7.0", "sdpa-tf32", "other"),
        make_expectation(Verdict.FLAKY, "==10.7.0", "sdpa-*"),
        make_expectation(Verdict.FAIL, ">=10.9", "sdpa-*"),
        make_expectation(Verdict.BUILT, "", "*", product=Product.TENSORRT_RTX),
    )
    cell = make_cell(make_repro(make_case(case), expectations=expectations), version=version)
    assert find_expectation(cell) is (None if index is None else expectations[index])


L4 = Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9")
UNKNOWN = Gpu(slug="my-l40s", name="NVIDIA L40S")


@pytest.mark.parametrize(
    ("gpus", "compute", "gpu", "fits"),
    [
        ((), "", L4, True), (("*l4",), "", L4, True), (("*L4",), "", H200, False),
        (("*L4",), "", UNKNOWN, False),
        (("*L4",), "", NO_GPU, True), ((), "==9.0", UNKNOWN, True), (("*L4",), ">=9", L4, False),
        ((), ">8", Gpu(slug="a", name="A", compute="10.0"), True),
    ],
)  # fmt: skip
def test_an_expectation_may_be_of_gpus(gpus: tuple[str, ...], compute: str, gpu: Gpu, fits: bool) -> None:
    said, other = make_expectation(gpus=gpus, compute=specified(compute)), make_expectation(Verdict.PASS)
    cell = make_cell(make_repro(expectations=(said, other)), gpu=gpu)
    assert find_expectation(cell) is (said if fits else other)


def test_nothing_is_current_on_a_gpu_that_is_not_here_but_on_the_cpu() -> None:
    there, cpu = make_cell(gpu=ELSEWHERE), make_cell(version="onnxruntime-1.31.1")
    assert not is_current(record(cell=there, digests=CURRENT), CURRENT, there)
    assert is_current(record(cell=cpu, digests=CURRENT, gpu={}), CURRENT, cpu)


def test_a_change_makes_a_local_record_recorded_and_an_older_current_one_is_preferred() -> None:
    old, new = at(1, digests=CURRENT), at(2, digests={})
    for stored, evidence, shown in (([new, old], Evidence.MEASURED, old), ([new], Evidence.RECORDED, new)):
        (entry,) = make_entries([CELL], stored, {CELL.id: CURRENT}, [])
        assert (entry.evidence, entry.record) == (evidence, shown.record)


def at(minute: int, value: float = 175.0, local: bool = True, **more: Any) -> Stored:
    made = record(f"2025-01-01T00:{minute:02}:00.000Z", f"r{minute}", value=value, **more)
    return Stored(record=made, local=local)


def test_all_comparable_records_of_a_cell_count() -> None:
    stored = [at(1, 1373.0), at(2, others=(175, 176)), at(3)]
    (entry,) = make_entries([CELL], stored, {}, [])
    assert entry.outcome is not None
    assert (entry.outcome.verdict, entry.outcome.builds, entry.outcome.failed) == (Verdict.FLAKY, 5, 1)
    assert [found.run for found in entry.records] == ["r3", "r2", "r1"]
    assert entry.record is entry.records[0]
    assert entry.surprise


@pytest.mark.parametrize(
    "change",
    [
        *({"digests": {**CURRENT, name: "other"}} for name in CURRENT),
        {"digests": {**CURRENT, "runtime": "host"}},
        *({"gpu": {**GPU_FACTS, name: "other"}} for name in GPU_FACTS),
        {"observed": {"library": "10.7.1"}},
    ],
    ids=str,
)
def test_records_that_were_made_otherwise_do_not_count(change: dict[str, Any]) -> None:
    now: dict[str, Any] = {"digests": {**CURRENT, "runtime": "container"}, "observed": {"library": "10.7.0"}}
    old, new = at(1, 1373.0, **{**now, **change}), at(2, **now)
    (entry,) = make_entries([CELL], [old, new], {}, [])
    assert entry.records == (new.record,)
    same = at(1, 1373.0, **now)
    (entry,) = make_entries([CELL], [same, new], {}, [])
    assert entry.records == (new.record, same.record)


SHARED: dict[str, Any] = {"worker": {"position": 1}}
ALONE: dict[str, Any] = {"worker": {"position": 0, "alone": True}}


def test_what_a_shared_process_said_is_set_aside_and_told() -> None:
    doubted, again = at(1, 1373.0, **SHARED), at(2, others=(175, 176), confirms="r1", **ALONE)
    (entry,) = make_entries([CELL], [doubted], {}, [])
    assert (entry.wanted, entry.set_aside, entry.overruled) == (3, (), "")
    (entry,) = make_entries([CELL], [doubted, again], {}, [])
    assert entry.outcome is not None
    assert (entry.outcome.verdict, entry.outcome.builds) == (Verdict.PASS, 3)
    assert (entry.records, entry.set_aside, entry.wanted) == ((again.record,), (doubted.record,), 8)
    line = f"{CELL.id}: a run in a shared process said FAIL (1 build); alone it says PASS (3 builds)"
    for text in (" ".join(render_text([entry]).split()), render_markdown([entry])):
        assert "Set aside" in text
        assert line in text.replace("\\", "")
    assert "said FAIL (1 build); alone it says PASS (3 builds)" in render_html([entry], generated="now")
    (told,) = json.loads(render_json([entry], generated="now"))["cells"]
    assert told["overruled"] == entry.overruled
    older = at(1, confirms="r2", local=False, **ALONE)
    (entry,) = make_entries([CELL], [at(2, 1373.0, **SHARED), older], {}, [])
    assert (entry.record, entry.records) == (older.record, (older.record,)), "though the other is newer"


@pytest.mark.parametrize("where", ["engine", "builds"])
def test_an_engine_that_another_cell_built_is_doubted_as_a_shared_process_is(where: str) -> None:
    """A worker's first cell may be given what an earlier worker has built."""
    engines = {"engines": [{"name": "a-0"}, {"name": "b-0", "shared_with": "r/other"}]}
    first = at(1, 1373.0, worker={"position": 0, "alone": False})
    assert not is_shared(first.record)
    data = dict(first.record.data)
    builds = [{"measurements": data["measurements"], "engine": engines}]
    data.update({"engine": engines} if where == "engine" else {"builds": builds})
    assert is_shared(record_from(data))


def test_what_was_executed_now_is_marked_and_an_exclusion_is_kept() -> None:
    reason = Excluded(cell=CELL, why=Exclusion.NO_ENGINE)
    (entry,) = make_entries([CELL], [at(1)], {}, [reason], frozenset({"r1"}))
    assert (entry.executed, entry.excluded) == (True, reason)
    (entry,) = make_entries([CELL], [at(1)], {}, [], frozenset({"before"}))
    assert not entry.executed


SURPRISING = make_entry(value=9999.0)
BROKEN = make_entry(ended=Cause.LAUNCHER_FAILED.value)
OUT = make_unknown(excluded=Exclusion.IMAGE_NOT_PULLED)
LACKING = make_unknown(excluded=Exclusion.COMPONENT_MISSING)
ELSEWHERE_ONLY = make_unknown(excluded=Exclusion.OTHER_GPU)


def companion(entry: Entry) -> Entry:
    return replace(entry, cell=replace(entry.cell, companion=True))


OK, BAD, TROUBLE, NOTHING = ExitCode.AS_EXPECTED, ExitCode.SURPRISE, ExitCode.MACHINERY, ExitCode.NOTHING


@pytest.mark.parametrize(
    ("entries", "given", "codes"),
    [
        ([make_entry()], "gpu_here ran", {OK}), ([make_entry()], "gpu_here", {OK, NOTHING}),
        ([], "", {OK, NOTHING}), ([SURPRISING, BROKEN], "gpu_here ran", {OK, BAD, TROUBLE}),
        ([make_entry(value=9999.0, evidence=Evidence.RECORDED)], "ran", {OK, NOTHING}),
        ([make_entry(), make_entry(ended=Cause.CRASHED.value)], "gpu_here ran", {OK}),
        ([make_entry(ended=Cause.CRASHED.value)], "gpu_here ran", {OK, TROUBLE}),
        ([make_entry(), OUT], "gpu_here ran", {OK}),
        ([LACKING], "by_name gpu_here", {OK, TROUBLE, NOTHING}),
        ([make_entry(make_cell(version="10.8.0")), LACKING], "by_name gpu_here ran", {OK, TROUBLE}),
        ([OUT], "gpu_here", {OK, TROUBLE, NOTHING}), ([OUT], "", {OK, NOTHING}),
        ([make_entry(), companion(OUT)], "by_name gpu_here ran", {OK}),
        ([make_entry(), companion(SURPRISING)], "gpu_here ran by_name", {OK, BAD}),
        ([OUT, companion(make_entry())], "gpu_here ran", {OK, TROUBLE, NOTHING}),
        # a GPU that is shown for its records alone was not asked for, unless it is named
        ([make_entry(), ELSEWHERE_ONLY], "by_name gpu_here ran", {OK}),
        ([make_entry(), ELSEWHERE_ONLY], "by_name gpu_here ran gpu_named", {OK, TROUBLE}),
    ],
)  # fmt: skip
def test_every_exit_code_that_applies(entries: list[Entry], given: str, codes: set[ExitCode]) -> None:
    flags = {name: name in given.split() for name in ("by_name", "gpu_here", "ran", "gpu_named")}
    assert exit_codes(entries, **flags) == codes


def test_a_cell_that_was_to_run_again_and_was_refused_is_not_run() -> None:
    ran = replace(make_entry(make_cell(version="10.8.0")), executed=True)
    refused = replace(make_entry(excluded=Exclusion.NO_MEMORY), executed=False)
    for entries in ([ran, refused], [refused]):
        shown = without_refused(entries)
        assert shown[:-1] == tuple(entries[:-1])
        assert (shown[-1].evidence, shown[-1].outcome, shown[-1].record) == (Evidence.NONE, None, None)
        assert shown[-1].excluded == refused.excluded
        assert TROUBLE in exit_codes(shown, by_name=True, gpu_here=True, ran=len(entries) > 1)
    tried = replace(refused, executed=True)
    assert without_refused([tried, OUT]) == (tried, OUT)


# A cell is believed only as far as its controls came out as they must.
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


HERE = entry(BASE, Verdict.PASS, gpu={"driver": "1"})
MADE: dict[str, Any] = {"digests": {"repro": "now", "case": "now"}}
CHECKED = [  # an entry, another, and whether that one counts
    *((entry(BASE, Verdict.PASS, **MADE),
       entry(BASE, Verdict.FAIL, ORT, digests={**MADE["digests"], **changed}), not changed)
      for changed in ({}, {"repro": "before"}, {"case": "before"})),
    (HERE, entry(RIGHT, Verdict.FAIL, "10.8.0", gpu={"driver": "1"}), False),
    (HERE, entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED), False),
    (HERE, entry(WRONG, Verdict.PASS, gpu={"driver": "2"}), False),
    (HERE, entry(WRONG, Verdict.PASS, gpu={"driver": "1"}), True),
    (replace(HERE, evidence=Evidence.RECORDED), entry(WRONG, Verdict.PASS, evidence=Evidence.RECORDED), True),
    (HERE, replace(entry(RIGHT, Verdict.FAIL), record=None, evidence=Evidence.REPORTED), False),
    (replace(HERE, record=None, evidence=Evidence.REPORTED), entry(RIGHT, Verdict.FAIL), False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "other", "counts"), CHECKED)
def test_only_what_was_made_alike_and_measured_counts(before: Entry, other: Entry, counts: bool) -> None:
    """ONNX Runtime speaks of its own graph; controls of their version, time and driver."""
    after = believed(before, other)
    assert after.verdict is Verdict.INVALID if counts else after == before.outcome


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
    assert not replace(silent, cell=expecting(silent.cell, Verdict.INVALID)).surprise
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
    "look at the reason, try its work-arounds (a, b, c and 1 more), file it": entry_of(Verdict.FAIL),
    "confirm it (--rebuilds 4), then change the expectation in repros/sdpa_":
        entry_of(Verdict.PASS, Verdict.FAIL, builds=1),
    "--rebuilds 10 shows the rate; take it for a FAIL": entry_of(Verdict.FLAKY, workarounds=()),
    "the self-check fails: nothing of sdpa-scale": entry_of(Verdict.PASS, control=Control.NEGATIVE),
    "at 10.7.0 can be believed; ask doctor": entry_of(Verdict.FAIL, control=Control.POSITIVE),
    "no TensorRT is involved: mend": entry_of(Verdict.FAIL, product=Product.ONNXRUNTIME),
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
