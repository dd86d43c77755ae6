"""The judge: every way to end, what one engine's numbers say, and a tolerance of the user's own."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_record, make_repro, make_version
from model.test_own_model import Opened, npz, opened
from numpy.typing import NDArray
from onnxmodels import mlp, normal

from trtmatrix.common.errors import ConfigError
from trtmatrix.judge.factors import FAIL_FACTOR, PASS_FACTOR
from trtmatrix.judge.judge import Subject, judge, judge_build
from trtmatrix.judge.noise import NO_FLOOR, Calibration, Noise, parse_calibration
from trtmatrix.judge.record import ENDS, Measured, Record, write_number
from trtmatrix.model.own_model import model_repro
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.suite.matrix import Fact
from trtmatrix.suite.model import Cause, Control, Known, Outcome, Product, Verdict
from trtmatrix.suite.repro_files import parse_repro, read_repro
from trtmatrix.suite.repros import Case, Defect
from trtprobe.answer import measure_all
from trtprobe.cell import run_and_measure
from trtprobe.measure import measure_with_signatures

V107 = make_version("10.7.0", library="10.7.0.23")


def judged(case: Case | None = None, library: Any = None, **record: Any) -> Outcome:
    case = case or make_case()
    observed = {} if library is None else {"library": library}
    return one(make_record(make_cell(case=case), observed=observed, **record), case)


def one(record: Record, case: Case, version: Any = V107) -> Outcome:
    return judge([record], replace(make_cell(make_repro(case), case), version=version))


def measurements(outputs: dict[str, dict[str, float]], **scalars: float) -> dict[str, Any]:
    written = {name: {k: write_number(v) for k, v in values.items()} for name, values in outputs.items()}
    return {"outputs": written, "scalars": {k: write_number(v) for k, v in scalars.items()}}


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("bug_is", [frozenset(), frozenset(Cause)], ids=["plain", "bug"])
def test_every_way_to_end_has_one_outcome(ended: str, bug_is: frozenset[Cause]) -> None:
    outcome = judged(make_case(bug_is=bug_is), ended=ended, detail="why")
    match ended:
        case "ran":
            assert outcome == Outcome(verdict=Verdict.PASS, builds=1)
        case "built":
            assert outcome == Outcome(verdict=Verdict.BUILT, reason="why")
        case _ if bug_is:
            assert outcome == Outcome(verdict=Verdict.FAIL, reason=f"{ended}: why")
        case _:
            assert outcome == Outcome(verdict=Verdict.NO_VERDICT, cause=Cause(ended), reason="why")


@pytest.mark.parametrize(
    ("remark", "verdict", "reason"),
    [
        ("fused", Verdict.PASS, ""), ("plain", Verdict.FAIL, "right, but plain, not fused"),
        ("?", Verdict.INVALID, "right, but it cannot be seen whether fused"),
        ("", Verdict.INVALID, "right, but it cannot be seen whether fused"),
    ],
)  # fmt: skip
def test_the_remark_decides_where_the_numbers_pass(remark: str, verdict: Verdict, reason: str) -> None:
    case = make_case(remarks=frozenset({"fused"}))
    right = {**measurements({"y": {"sum_abs": 1.0}}), "remark": remark}
    wrong = {**measurements({"y": {"sum_abs": 1e6}}), "remark": remark}
    failed = int(verdict is Verdict.FAIL)
    expected = Outcome(verdict=verdict, reason=reason, builds=1, failed=failed)
    assert judged(case, measurements=right) == expected
    assert judged(case, measurements=wrong).reason == "sum_abs 1e+06 > 690"
    assert judged(measurements=right).verdict is Verdict.PASS, "any will do where none is asked for"
    record = make_record(make_cell(case=case, version="onnxruntime-1.31.1"))
    outcome = one(record, case, make_version("onnxruntime-1.31.1"))
    assert outcome == Outcome(verdict=Verdict.PASS), "nothing is built there"


def test_some_causes_are_trouble_with_the_machinery() -> None:
    expected = {"interrupted", "launcher failed", "probe failed", "version mismatch", "image missing"}
    assert {cause.value for cause in Cause if cause.is_machinery} == expected


@pytest.mark.parametrize("count", [1, 12, math.nan, math.inf])
def test_nan_where_the_reference_is_finite_fails_below_every_limit(count: float) -> None:
    outputs = {"y": {"sum_abs": 0.0, "count": 12, "nan_unexpected": count}}
    outcome = judged(measurements=measurements(outputs))
    assert outcome.verdict is Verdict.FAIL
    assert "NaN or infinite where the reference is finite" in outcome.reason


@pytest.mark.parametrize(
    ("pinned", "known", "seen", "agrees"),
    [
        ("10.7.0.23", Known.READ, "10.7.0.23", True), ("10.7.0.23", Known.READ, "10.7.0", True),
        ("10.7.0.23", Known.READ, "10.7.0.24", False), ("10.7.0.23", Known.RECALLED, "10.7.0.24", True),
        ("10.7.0.23", Known.INFERRED, "10.7.1.23", False), ("9.2.0.5", Known.READ, "9.2.0.post12.dev5", True),
    ],
)  # fmt: skip
def test_another_library_gives_no_verdict(pinned: str, known: Known, seen: str, agrees: bool) -> None:
    fact = Fact(value=pinned, known=known, source="a")
    version = replace(make_version("10.7.0"), library=fact)
    record = make_record(make_cell(), observed={"library": seen})
    outcome = one(record, make_case(), version)
    assert (outcome.cause is Cause.VERSION_MISMATCH) is not agrees
    assert outcome.verdict is (Verdict.PASS if agrees else Verdict.NO_VERDICT)


RIGHT, WRONG = 175.0, 1373.0


@pytest.mark.parametrize(
    ("engines", "verdict", "builds", "failed"),
    [
        ([(RIGHT, RIGHT, RIGHT)], Verdict.PASS, 3, 0), ([(WRONG,) * 3, (WRONG,)], Verdict.FAIL, 4, 4),
        ([(RIGHT,) * 3, (WRONG,)], Verdict.FLAKY, 4, 1), ([(RIGHT, WRONG)], Verdict.FLAKY, 2, 1),
    ],
)  # fmt: skip
def test_every_engine_of_every_comparable_record_counts(
    engines: list[tuple[float, ...]], verdict: Verdict, builds: int, failed: int
) -> None:
    cell = make_cell()
    runs = (f"20250102t030405-0000000{i}" for i in range(9))
    records = [make_record(cell, first, others=more, run=run)
               for run, (first, *more) in zip(runs, engines, strict=False)]  # fmt: skip
    outcome = judge(records, cell)
    assert (outcome.verdict, outcome.builds, outcome.failed) == (verdict, builds, failed)


def test_the_newest_decides_whether_there_is_a_verdict() -> None:
    cell = make_cell()
    crashed, old = make_record(cell, ended="crashed", run="20250102t030406-00000000"), make_record(cell)
    assert judge([crashed, old], cell).cause is Cause.CRASHED
    outcome = judge([old, crashed], cell)
    assert (outcome.verdict, outcome.builds) == (Verdict.PASS, 1), "what did not run is no engine"


@pytest.mark.parametrize(("value", "verdict", "failed"), [(RIGHT, Verdict.PASS, 0), (WRONG, Verdict.FAIL, 3)])
def test_processes_count_as_engines(value: float, verdict: Verdict, failed: int) -> None:
    outcome = judged(value=value, processes=3)
    assert (outcome.verdict, outcome.builds, outcome.failed) == (verdict, 3, failed)


@pytest.mark.parametrize(("rel_l2", "verdict"), [(4e-3, Verdict.PASS), (8.1e-3, Verdict.FAIL)])
def test_an_older_record_is_judged_by_the_calibrated_floor(rel_l2: float, verdict: Verdict) -> None:
    noise = {"precision": "tf32", "outputs": {"y": {"tf32": 1e-3}}}
    data = {"schema": 1, "seeds": 21, "cases": {"k": {"noise": noise, "envelope": {}}}}
    cell = make_cell(case=make_case(limits={}, noise_key="k"))
    old, calibration = make_record(cell, rel_l2=rel_l2), parse_calibration(data)
    assert judge([old], cell, calibration).verdict is verdict
    assert judge([old], cell).verdict is Verdict.INVALID
    own = make_record(cell, rel_l2=rel_l2, noise={**noise, "outputs": {"y": {"tf32": 0.1}}})
    assert judge([own], cell, calibration).verdict is Verdict.PASS, "its own counts"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"by": "", "why_not": "no kernel of Strange"}, "; no reference: no kernel of Strange"),
        ({"by": "it", "silent": ["y"]}, "; y: its reference has no element but zeros, NaN and infinity"),
        ({"by": "it", "why_not": "opset 9"}, "; no noise floor: opset 9"),
        ({}, "compared with each other only"),
    ],
)
def test_what_says_nothing_for_want_of_a_floor_says_why(told: dict[str, Any], words: str) -> None:
    case = make_case(limits={}, keep=True)
    outcome = judged(case, rel_l2=0.5, noise={"outputs": {}, "precision": "fp32", "reference": told})
    assert outcome.verdict is Verdict.INVALID
    assert words in outcome.reason


# An output of another shape than its reference: a failure and no trouble, believed in time.
SAID = "shape (1, 1, 1), the reference has (2, 24, 1)"
SCALAR = "shape (2,), the reference has ()"
SHAPES = "ms: wrong shape: (1, 1, 1) instead of (2, 24, 1); v.s1: wrong shape: (2,) instead of ()"
MISSHAPEN = "wrong shape: (1, 1, 1) instead of (2, 24, 1)"
CELL = make_cell(case=make_case())


@pytest.mark.parametrize(
    ("ended", "detail", "reason"),
    [
        ("probe failed", f"build 2 of 3: raised ValueError: {SAID}", MISSHAPEN),
        ("probe failed", f"ms: {SAID}; v.s1: {SCALAR}", SHAPES),
        ("probe failed", "raised ValueError: shape (1,), the defect lost has (2,)", ""),
        ("crashed", f"raised ValueError: {SAID}", ""),
    ],
)  # fmt: skip
def test_shapes_are_read_from_what_the_probe_says(ended: str, detail: str, reason: str) -> None:
    record = make_record(CELL, ended=ended, detail=detail)
    outcome = one(record, CELL.case)
    if reason:
        assert (outcome.verdict, outcome.cause, outcome.reason) == (Verdict.FAIL, None, reason)
    else:
        assert (outcome.verdict, outcome.cause) == (Verdict.NO_VERDICT, Cause(ended))


def test_the_probe_names_every_output_of_another_shape_and_measures_the_others() -> None:
    reference = {"ms": np.ones((2, 24, 1)), "v.s1": np.ones(()), "y": np.ones(3)}
    files: Any = SimpleNamespace(reference=reference, defects={})
    odd: list[str] = []
    found = measure_all({"ms": np.ones((1, 1, 1)), "v.s1": np.ones(2), "y": np.ones(3)}, files, odd)
    assert list(found["outputs"]) == ["y"]
    record = make_record(CELL, ended="probe failed", detail="; ".join(odd))
    assert one(record, CELL.case).reason == SHAPES


# What the judge says of one engine's numbers.
FLOOR = 2.0**-10
MEMBERS = {"fp32": FLOOR / 2000, "tf32": FLOOR, "tf32-late": FLOOR / 2, "tf32-truncated": 6 * FLOOR}
KNOWN = {
    "lost-scale": Defect(what="one √scale lost", upstream="NVIDIA/TensorRT#4333"),
    "lost-mask": Defect(what="the mask ignored"),
}


def make_noise(size: float = 8.0, *, bound: float = 0.001, **fields: Any) -> Noise:
    """Noise of a TF32 case with a defect of ``size`` floors; ten times the ensemble's |c| is the bound."""
    return Noise(
        **{
            "key": "k", "precision": "tf32", "outputs": {"y": MEMBERS},
            "defects": {"lost-scale": {"y": size * FLOOR}}, "c": {"lost-scale": {"tf32": bound / 10}},
            **fields,
        }
    )  # fmt: skip


def make_subject(noise: Noise | None = None, **case: Any) -> Subject:
    fields: dict[str, Any] = {"defects": ("lost-scale",), **case}
    return Subject(
        case=Case(id="c", params={"precision": "tf32"}, **{"limits": {}, **fields}),
        noise=noise or make_noise(), calibration=Calibration(), known=KNOWN, product=Product.TENSORRT,
    )  # fmt: skip


def engine(floors: float = 1.0, c: float = 0.0, explained: float = 0.0, **values: Any) -> Measured:
    outputs = {"y": {"count": 12, "nan_unexpected": 0, "rel_l2": floors * FLOOR, **values}}
    return Measured(
        outputs=outputs, scalars={}, signatures={"lost-scale": {"y": {"c": c, "explained": explained}}}
    )


def numbers_of(build: Measured, **subject: Any) -> Outcome:
    return judge_build(build, make_subject(**subject))


PASS, FAIL, INVALID = Verdict.PASS, Verdict.FAIL, Verdict.INVALID
HIDDEN = {"noise": make_noise(2.9, bound=0.31)}
SMALL = {"noise": make_noise(0.5)}
LIMITED: dict[str, Any] = {"limits": {"rows_differ": 0.0}}
CONTROL: dict[str, Any] = {"control": Control.NEGATIVE, "defect": "lost-scale"}
OTHERWISE = [
    engine(8.0, c=1.0, explained=0.99, **values) for values in ({"nan_unexpected": 12}, {"rows_differ": 3.0})
]
BARE = replace(engine(), signatures={})
SUBJECTS: list[tuple[Measured, dict[str, Any], Verdict, str]] = [
    # the norm is held against the floor
    (engine(0.0), {}, PASS, ""), (engine(PASS_FACTOR), {}, PASS, ""),
    (engine(PASS_FACTOR * 1.01), {}, INVALID, ""), (engine(FAIL_FACTOR * 0.99), {}, INVALID, ""),
    *((engine(floors), {}, FAIL, "") for floors in (FAIL_FACTOR, math.inf, math.nan)),
    # what truncation would explain passes and says so, where no known defect was left out
    (engine(5.8), {}, PASS, "tf32-truncated, which no GPU has shown yet"),
    (replace(engine(5.8), signatures={}), {}, INVALID, "no signature of lost-scale"),
    # below the noise the signature decides
    (engine(1.2, c=0.02, explained=0.2), SMALL, PASS, ""),
    (engine(1.2, c=0.03, explained=0.2), SMALL, INVALID, ""),
    *((engine(1.2, c=c, explained=0.2), SMALL, FAIL, "") for c in (0.041, 1.0, -0.5, math.nan)),
    # one that was not measured is unknown where the norm cannot tell
    (BARE, {"noise": make_noise(4.9)}, INVALID, "unknown"), (BARE, {"noise": make_noise(5.0)}, PASS, ""),
    # a case whose noise hides the defect says nothing; a usable shape or a large defect is enough
    *((engine(floors, c=1.0), HIDDEN, INVALID, "neither its size nor its shape would show")
      for floors in (0.5, 100.0)),
    *((engine(), {"noise": make_noise(size, bound=bound)}, PASS, "")
      for size, bound in ((2.9, 0.3), (3.0, 5.0))),
    # without a known defect the floor must be useful
    (engine(), {"defects": (), "useful": FLOOR}, PASS, ""),
    (engine(), {"defects": (), "useful": FLOOR / 2}, INVALID, "hides too much"),
    (engine(), {"noise": make_noise(1e6, precision="fp32")}, FAIL, "as tf32 computes, which was"),
    # a limit that was not measured says nothing, and one that is NaN fails
    (engine(), LIMITED, INVALID, ""),
    (replace(engine(), scalars={"rows_differ": math.nan}), LIMITED, FAIL, ""),
    # a negative control must fail, by what was put in; where nothing was named, any failure will do
    (engine(8.0, c=1.0, explained=0.99), CONTROL, FAIL, ""),
    (engine(8.0, c=0.5, explained=0.99), CONTROL, INVALID, "c = 0.5 of lost-scale instead of 1"),
    (OTHERWISE[0], CONTROL, INVALID, "it fails, but not by what was put in (lost-scale): "),
    (OTHERWISE[0], {**CONTROL, "defect": ""}, FAIL, ""),
    (OTHERWISE[1], {**CONTROL, **LIMITED}, INVALID, "it fails, but not by what was put in (lost-scale): "),
    (OTHERWISE[1], {**CONTROL, **LIMITED, "defect": ""}, FAIL, ""),
]  # fmt: skip


@pytest.mark.parametrize(("build", "subject", "verdict", "words"), SUBJECTS)
def test_an_engine_s_numbers(build: Measured, subject: dict[str, Any], verdict: Verdict, words: str) -> None:
    outcome = numbers_of(build, **subject)
    assert (outcome.verdict, words in outcome.reason) == (verdict, True), outcome.reason


@pytest.mark.parametrize("c", [0.89, 1.11, 3.66, -0.52, 0.03])
def test_a_known_bug_is_not_named_at_another_c_but_its_shape_is(c: float) -> None:
    assert "4333" not in numbers_of(engine(30.0, c=c, explained=0.98)).reason
    reason = numbers_of(engine(16.0, c=9.0, explained=0.99)).reason
    assert "the shape of lost-scale, 9 times its size" in reason


def test_where_two_known_defects_fit_as_well_both_are_named() -> None:
    pairs = {"lost-scale": (1.0, 0.97), "lost-mask": (1.01, 0.96)}
    noise = make_noise(
        defects={name: {"y": 8 * FLOOR} for name in pairs}, c={name: {"tf32": 0.0} for name in pairs}
    )
    signatures = {name: {"y": {"c": c, "explained": share}} for name, (c, share) in pairs.items()}
    build = replace(engine(8.0), signatures=signatures)
    reason = judge_build(build, make_subject(noise, defects=tuple(pairs))).reason
    assert "#4333" in reason
    assert " or consistent with: the mask ignored" in reason


@pytest.mark.parametrize(
    ("floors", "share", "fit"),
    [(1.0, 0.0, "tf32"), (1.05, 1.0, "fp16"), (3.0, 1.0, "fp16"), (0.0005, 0.0, "fp32"), (5.0, 1.0, "")],
)
def test_under_the_flag_the_precision_that_shows_is_said(floors: float, share: float, fit: str) -> None:
    members = {**MEMBERS, "fp16": 1.1 * FLOOR, "fp16-blocks": 3 * FLOOR}
    noise = make_noise(1e4, precision="fp16-flag", outputs={"y": members})
    outcome = numbers_of(engine(floors, share_10_bits=share), noise=noise)
    assert (outcome.verdict, outcome.fit) == (Verdict.PASS, fit)


def test_on_onnx_runtime_a_float32_graph_has_the_floor_of_float32() -> None:
    subject = replace(make_subject(make_noise(1e6)), product=Product.ONNXRUNTIME)
    assert judge_build(engine(1.0), subject).verdict is Verdict.FAIL
    assert judge_build(engine(0.001), subject).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("wrong", "verdict", "reason"),
    [
        (0, PASS, "none of 30 trials: a rate above 9.5% is excluded with 95%, if they are independent"),
        (1, FAIL, "wrong 1 > 0 (of 30 trials)"),
    ],
)
def test_trials_say_what_they_exclude(wrong: int, verdict: Verdict, reason: str) -> None:
    build = Measured(outputs={}, scalars={"wrong": wrong, "trials": 30})
    outcome = numbers_of(build, limits={"wrong": 0.0}, defects=())
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


def rounded(y: NDArray[Any], reference: NDArray[Any], kind: str = "float32", member: float = 0.0) -> Outcome:
    """Judge an output of a user's model whose floor is of one member, which may have been exact."""
    noise = Noise(key="", precision="fp32", outputs={"y": {"fp32": member}}, defects={}, types={"y": kind})
    values = measure_with_signatures(y, reference, {})[0]
    build = Measured(outputs={"y": values}, scalars={})
    return numbers_of(build, noise=noise, defects=(), keep=True)


@pytest.mark.parametrize(
    ("kind", "rounding"), [("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)]
)
def test_no_floor_is_below_the_rounding_of_the_outputs_own_type(kind: str, rounding: float) -> None:
    reference = np.linspace(1, 2, 50)
    for floors, verdict in ((0.0, Verdict.PASS), (3.9, Verdict.PASS), (8.1, Verdict.FAIL)):
        assert rounded(reference * (1 + floors * rounding), reference, kind).verdict is verdict
    assert rounded(reference * (1 + 2.0e-7), reference).verdict is Verdict.PASS  # a second right engine
    assert rounded(reference * 1.01, reference, member=0.01).verdict is Verdict.PASS  # a floor may be higher


def test_an_infinity_that_the_output_lacks_is_wrong() -> None:
    r = np.array([1.0, math.inf, 2.0])
    for found, reason in ((1.0, "y: 1 of 3 not infinite as the reference is"), (math.inf, "")):
        values, _ = measure_with_signatures(np.array([1.0, found, 2.0], np.float32), r, {})
        outcome = judge_build(Measured(outputs={"y": values}, scalars={}), make_subject(defects=()))
        assert (outcome.verdict is Verdict.FAIL, outcome.reason) == (bool(reason), reason)


def test_an_integer_beyond_2_to_the_53_that_is_off_by_one_does_not_pass() -> None:
    subject = replace(make_subject(keep=True), noise=None)
    for off, verdict in ((0, Verdict.PASS), (1, Verdict.INVALID)):
        values, _ = measure_with_signatures(np.array([2**60 + off]), np.array([2**60]), {})
        assert judge_build(Measured(outputs={"y": values}, scalars={}), subject).verdict is verdict


TWO = make_noise(outputs={"y": MEMBERS, "z": MEMBERS})


def with_outputs(**rel_l2: float) -> Measured:
    outputs = {name: {"nan_unexpected": 0, "rel_l2": error} for name, error in rel_l2.items()}
    return replace(engine(), outputs=outputs)


@pytest.mark.parametrize(
    ("outputs", "noise", "verdict", "reason"),
    [
        ({"y": FLOOR, "z": FLOOR}, TWO, Verdict.PASS, ""),
        ({"y": FLOOR}, TWO, Verdict.INVALID, "the run did not give z"),
        *(
            ({"y": FLOOR, "z": error}, noise, Verdict.INVALID, "no noise floor is known of z")
            for noise in (make_noise(), replace(TWO, outputs={"y": MEMBERS, "z": {}}))
            for error in (1.0, math.inf, math.nan)
        ),
        ({"y": 9 * FLOOR}, TWO, Verdict.FAIL, "y: 9 noise floors"),  # whatever was not seen
        ({"y": 9 * FLOOR, "z": FLOOR, "w": 1.0}, TWO, Verdict.FAIL, "y: 9 noise floors"),
    ],
)
def test_an_output_that_is_not_there_or_has_no_floor_is_no_pass(
    outputs: Mapping[str, float], noise: Noise, verdict: Verdict, reason: str
) -> None:
    outcome = numbers_of(with_outputs(**outputs), noise=noise)
    assert (outcome.verdict, outcome.reason.startswith(reason)) == (verdict, True), outcome.reason


@pytest.mark.parametrize(("size", "verdict"), [(4.9, Verdict.INVALID), (5.0, Verdict.PASS)])
def test_a_defect_added_since_is_unknown_where_noise_could_hide_it(size: float, verdict: Verdict) -> None:
    """The record's own noise is older than the defect; how large it is, the calibration knows."""
    today = make_noise(defects={"lost-mask": {"y": size * FLOOR}}, c={"lost-mask": {"tf32": 0.001}})
    calibration = Calibration(noises={"k": today})
    case: dict[str, Any] = {"defects": ("lost-scale", "lost-mask"), "noise_key": "k"}
    subject = replace(make_subject(make_noise(), **case), calibration=calibration)
    outcome = judge_build(engine(), subject)
    assert outcome.verdict is verdict
    assert ("no signature of lost-mask" in outcome.reason) is (verdict is Verdict.INVALID)


# The user's own tolerance decides; the noise floor is told beside it; outputs are kept.
__all__ = ["opened"]

NOISE = {"precision": "tf32", "outputs": {"y": {"fp32": 1e-7, "tf32": 1e-4}}}
OWN: dict[str, Any] = {"limits": {}, "keep": True}
WITHIN: dict[str, Any] = {"limits": {"beyond": 0.0}, "tolerance": {"atol": 1e-3, "rtol": 0.01}, "keep": True}


@pytest.mark.parametrize(
    ("rel_l2", "reason"),
    [
        (1e-4, ""),
        (5e-4, "within atol 0.001, rtol 0.01; the noise floor does not decide: y: 5 noise floors"),
        (1e-2, "within atol 0.001, rtol 0.01; the noise floor fails it: y: 100 noise floors"),
    ],
)
def test_what_is_within_the_tolerance_passes_whatever_the_floor_says(rel_l2: float, reason: str) -> None:
    outcome = judged(make_case(**WITHIN), rel_l2=rel_l2, noise=NOISE, scalars={"beyond": 0.0})
    assert outcome.verdict is Verdict.PASS
    assert outcome.reason.startswith(reason)
    assert bool(outcome.reason) == bool(reason)


def test_one_element_beyond_fails_however_small_the_error_is() -> None:
    outcome = judged(make_case(**WITHIN), rel_l2=1e-9, noise=NOISE, scalars={"beyond": 1.0})
    assert (outcome.verdict, outcome.reason) == (Verdict.FAIL, "beyond 1 > 0")


def test_without_a_floor_the_tolerance_alone_decides_and_else_only_what_is_exact_passes() -> None:
    outcome = judged(make_case(**WITHIN), rel_l2=0.5, scalars={"beyond": 0.0})
    assert outcome.verdict is Verdict.PASS
    assert "there is no noise floor" in outcome.reason
    for rel_l2 in (1e-9, None):
        outcome = judged(make_case(**OWN), rel_l2=rel_l2)
        assert outcome == Outcome(verdict=Verdict.INVALID, reason=NO_FLOOR, builds=1)
    assert judged(make_case(**OWN), rel_l2=0.0).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("nan", "zeros", "silent"), [(3, 0, True), (0, 3, True), (1, 2, True), (1, 1, False)]
)
def test_exact_outputs_of_nothing_but_zeros_and_nan_say_nothing(nan: int, zeros: int, silent: bool) -> None:
    seen = {"count": 3, "nan": nan, "inf": 0, "zeros": zeros, "nan_unexpected": 0, "rel_l2": 0.0}
    seen["share_10_bits"] = 1.0  # as real numbers have it
    outcome = judged(make_case(**OWN), measurements=measurements({"y": seen}))
    assert (outcome.verdict is Verdict.INVALID) is silent


SOURCE = """FACTS = {
    "title": "t", "upstream": "u", "url": "", "summary": "s", "figure": {"measure": "m", "label": "l"}
}"""


def parsed(**case: Any) -> Case:
    raw = {"id": "a", "params": {"precision": "tf32"}, **case}
    return parse_repro(SOURCE, "f.py", "f", [raw]).cases[0]


def test_a_tolerance_is_a_limit_and_outputs_may_be_kept() -> None:
    case = parsed(keep=True, tolerance={"atol": 1e-3, "rtol": 0.0}, limits={"slow": 2.0})
    assert (case.keep, case.limits, parsed().keep) == (True, {"slow": 2.0, "beyond": 0.0}, False)


def test_a_repros_noise_comes_from_one_function(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    body = "def cases(): yield {'id': 'a', 'params': {}}\ndef prepare(p): ...\ndef run(p, f, t): ...\n"
    file.write_text(f"{SOURCE}\n{body}def noise(p): ...\ndef emulate(p, a): ...\n")
    with pytest.raises(ConfigError, match="go together"):
        read_repro(file)


@pytest.mark.parametrize(("atol", "verdict"), [("1e-4", Verdict.PASS), ("1e-12", Verdict.FAIL)])
def test_a_run_is_judged_by_tolerance(atol: str, verdict: Verdict, opened: Opened, tmp_path: Path) -> None:
    for number in range(2):
        npz(tmp_path / "in" / f"{number}.npz", x=normal(number + 1, 64, seed=number))
    context = opened(mlp(), "--inputs", str(tmp_path / "in"), "--atol", atol)
    loaded = model_repro(context)
    (case,) = loaded.repro.cases
    folder = CaseCache(context.project.cache).prepare(loaded, case)
    result = run_and_measure({
        "product": "onnxruntime", "repro": str(loaded.file), "params": {**case.params, **case.tolerance},
        "files": str(folder), "keep_outputs": True,
    })  # fmt: skip
    assert result["ended"] == "ran", result["detail"]
    assert set(result["measurements"]["outputs"]) == set(result["kept"]) == {"y.s0", "y.s1"}
    outcome = judged(case, noise=read_noise_file(folder), measurements=result["measurements"])
    assert outcome.verdict is verdict
    assert (result["measurements"]["scalars"]["beyond"] > 0) is (verdict is Verdict.FAIL)


def test_every_element_counts_and_nan_never_is_near(opened: Opened) -> None:
    beyond = model_repro(opened(mlp())).module.beyond
    r = np.array([1.0, -10.0, 0.0, np.inf, np.nan, 2.0])
    y = np.array([1.1, -11.0, 0.1, np.inf, np.nan, np.nan], np.float32)
    assert beyond(y, r, {"atol": 0.11, "rtol": 0.1}) == 2
    assert beyond(y, r, {"atol": 0.0, "rtol": 0.101}) == 3


@pytest.mark.parametrize("bad", [{"atol": -1.0, "rtol": 0.0}, {"atol": math.nan, "rtol": 0.0}, {"atol": 1.0}])
def test_a_tolerance_that_is_none_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="tolerance"):
        parsed(tolerance=bad)
