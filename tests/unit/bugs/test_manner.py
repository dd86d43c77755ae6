"""In which way a cell fails: each kind, all published failures, garbage, and what counts as the same."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders import make_case, make_cell, make_entry, make_record, make_repro
from goldenfile import check_golden
from judge.test_judge import FLOOR, KNOWN, MEMBERS
from judge.test_published import entries

from trtmatrix.bugs.manner import Kind, Manner, manner_of, same_manner
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import judge
from trtmatrix.judge.noise import Calibration, read_calibration
from trtmatrix.suite.model import Cause, Verdict
from trtmatrix.suite.repros import Case

NOISE = {
    "key": "k", "precision": "tf32", "outputs": {"y": MEMBERS, "z": MEMBERS},
    "defects": {"lost-scale": {"y": 100 * FLOOR}}, "c": {"lost-scale": {"tf32": 0.0001}},
}  # fmt: skip
RIGHT = {"count": 12, "nan_unexpected": 0, "zeros": 0, "rel_l2": FLOOR}
WRONG = {**RIGHT, "rel_l2": 100 * FLOOR}


def engine(remark: str = "", c: float = 0.0, explained: float = 0.0, **outputs: Mapping[str, Any]) -> Any:
    """What was measured of one engine: outputs y and z, a signature of the lost scale in y, a count."""
    return {
        "outputs": {"y": RIGHT, "z": RIGHT, **outputs}, "scalars": {"wrong": 0.0}, "remark": remark,
        "signatures": {"lost-scale": {"y": {"c": c, "explained": explained}}},
    }  # fmt: skip


def entry_of(*engines: Any, case: Case | None = None, noise: Any = NOISE, **fields: Any) -> Entry:
    case = case or make_case(limits={}, defects=("lost-scale",), bug_is=frozenset({Cause.BUILD_FAILED}))
    repro = make_repro(case, defects=KNOWN)
    cell = make_cell(repro, case)
    if engines:
        fields["builds"] = [{"measurements": measured, "engine": {}} for measured in engines]
    record = make_record(cell, **{"noise": noise, **fields})
    outcome = judge([record], cell)
    return replace(make_entry(cell), record=record, records=(record,), outcome=outcome)


def failing(*engines: Any, **fields: Any) -> Manner:
    found = manner_of(entry_of(*engines, **fields), Calibration())
    assert found is not None
    return found


LIMITED = make_case(limits={"wrong": 0.0}, defects=("lost-scale",))
FUSED = make_case(limits={}, remarks=frozenset({"fused"}), defects=("lost-scale",))
TOLERANT = make_case(limits={"beyond": 0.0}, tolerance={"atol": 0.0, "rtol": 1e-5}, defects=("lost-scale",))
NAN = {**RIGHT, "nan_unexpected": 3, "nan": 3}
ZERO = {**RIGHT, "zeros": 12, "rel_l2": 1.0}
AS_BUG = engine(c=1.01, explained=0.99, y=WRONG)


def test_each_kind_is_told_by_what_the_judge_goes_by() -> None:
    """Of several engines those count that fail in the commonest way; an error is told by its message."""
    detail = "build 2 of 3: Error Code 10: no implementation for node {n12} at 0x7f12 (/tmp/a/b.cpp:31)"
    found = [
        failing(engine(y=NAN)), failing(engine(z=ZERO, y=WRONG)), failing(AS_BUG), failing(engine(z=WRONG)),
        failing(engine(c=0.5, explained=0.99, y=WRONG)), failing(engine(c=0.5, explained=0.1, y=WRONG)),
        failing({**engine(y=WRONG), "scalars": {"wrong": 7.0}}, case=LIMITED),
        failing({**engine(z=WRONG), "scalars": {"beyond": 7.0}}, case=TOLERANT),
        failing(engine(remark="plain"), case=FUSED), failing(ended=Cause.BUILD_FAILED.value, detail=detail),
        failing(engine(), engine(y=NAN), AS_BUG, engine(c=0.98, explained=0.99, y=WRONG)),
    ]  # fmt: skip
    lines = [
        f"{each.kind.name} {each.what or '-'} "
        f"errors {[f'{error:.4g}' for error in each.errors]}\n"
        f"  {each.words}\n"
        for each in found
    ]
    check_golden("manners.txt", "".join(lines))
    for ended in (Cause.TIME_OUT.value, "built"):  # that is no bug of this case
        entry = entry_of(ended=ended)
        assert manner_of(entry, Calibration()) is None


def test_every_published_failure_has_a_manner_and_nothing_else_has() -> None:
    calibration = read_calibration()
    kinds: Counter[tuple[str, Kind]] = Counter()
    for entry in entries():
        found = manner_of(entry, calibration)
        fails = entry.outcome is not None and entry.outcome.verdict in {Verdict.FAIL, Verdict.FLAKY}
        assert (found is not None) == (fails and entry.record is not None), entry.cell.id
        if found is not None:
            kinds[entry.cell.repro.id, found.kind] += 1
            assert found.words
            assert same_manner(found, found) == ""
    assert {repro for repro, _ in kinds} >= {"controls", "sdpa-scale", "streams", "flash-attention"}
    assert {kind for repro, kind in kinds if repro == "streams"} == {Kind.OWN}
    assert {kind for repro, kind in kinds if repro in {"sdpa-scale", "controls"}} == {Kind.WRONG}
    assert kinds["flash-attention", Kind.OWN]


BASE = Manner(kind=Kind.WRONG, errors=(0.5,), words="y: wrong")
SMALL = replace(BASE, errors=(0.01,))
LIMIT = Manner(kind=Kind.OWN, what="wrong", errors=(0.3,))
ENDED = Manner(kind=Kind.ENDED, what="build failed", words="Error Code 10: no implementation for node a")

CHANGED: list[tuple[Manner, dict[str, Any]]] = [
    (BASE, {"words": ""}), (BASE, {"errors": (900.0,)}), (SMALL, {"errors": (1.4,)}),
    (SMALL, {"errors": (50.0,)}), (BASE, {"kind": Kind.NOT_FINITE}), (LIMIT, {"what": "ratio"}),
    (ENDED, {"what": "crashed"}),
    (ENDED, {"words": "Error Code 10: no implementation for node b"}),
    (ENDED, {"words": "Error Code 4: no implementation for node a"}),
    (ENDED, {"words": "Error Code 10: the plugin was not found there"}),
]  # fmt: skip


def test_what_is_the_same_failure() -> None:
    found = [(change, same_manner(wanted, replace(wanted, **change))) for wanted, change in CHANGED]
    check_golden("same-manner.txt", "".join(f"{change}: {said or 'the same'}\n" for change, said in found))


CASE = make_case(limits={}, defects=("lost-scale",))


def off(error: float, nan: int = 0) -> Any:
    return engine(y={**RIGHT, "rel_l2": error, "nan_unexpected": nan})


RECORDED = [off(2.06e23, nan=2), off(1.48e11, nan=1), off(1.04e23)]
AGAIN = [off(1.0439, nan=2), off(1.0439, nan=1), off(1.0439)]


GARBAGE = {"NaN, and huge numbers": RECORDED, "absurd, of a single engine": [off(5.3e25)]}
PLAIN = {
    "NaN in each": [engine(y=NAN), engine(y=NAN)], "large, of a single engine": [off(900.0)],
    "a known defect": [AS_BUG, AS_BUG], "one of several is right": [engine(), off(0.5)],
}  # fmt: skip


@pytest.mark.parametrize("name", [*GARBAGE, *PLAIN])
def test_what_is_garbage(name: str) -> None:
    found = failing(*(GARBAGE | PLAIN)[name], case=CASE)
    assert found.is_garbage == (name in GARBAGE)
    assert same_manner(found, found) == ""


def test_garbage_comes_back_by_any_of_its_ways() -> None:
    for wanted in GARBAGE.values():
        for found in (*GARBAGE.values(), AGAIN, [engine(y=NAN)], [engine(y=ZERO)], [off(4.7e23)]):
            assert same_manner(failing(*wanted, case=CASE), failing(*found, case=CASE)) == ""


def test_what_is_no_garbage_is_not_the_same() -> None:
    wanted = failing(*RECORDED, case=CASE)
    assert "relative error" in same_manner(wanted, failing(engine(y=WRONG), case=CASE))
    for kind in {*Kind} - {Kind.NOT_FINITE, Kind.ZEROS, Kind.WRONG}:
        assert same_manner(wanted, Manner(kind=kind))
