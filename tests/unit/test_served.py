"""Which records stand for a cell: of the same runtime, confirmed, and not of a trouble that may pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_entry, make_record, make_unknown

from trtmatrix.core.compare import Entry, Stored
from trtmatrix.core.confirm import engines_wanted
from trtmatrix.core.model import Cause, Control, Evidence, Exclusion, Outcome, Verdict
from trtmatrix.core.plan import Engine, Excluded, Host
from trtmatrix.digests import asked_digest, origin_digests
from trtmatrix.perform import Options, is_current_fact, is_served
from trtmatrix.scene import without_superseded

AGAIN = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip
PLAIN = Options()


@pytest.mark.parametrize("cause", Cause)
def test_what_may_come_out_otherwise_is_tried_again(cause: Cause) -> None:
    assert is_served(make_entry(ended=cause.value), PLAIN) is (cause not in AGAIN)


def entry(verdict: Verdict, *records: dict[str, Any], **fields: Any) -> Entry:
    """An entry with a verdict that rests on such records."""
    cell = make_cell(case=make_case())
    made = tuple(make_record(cell, run=f"r{number}", **more) for number, more in enumerate(records))
    outcome = Outcome(verdict=verdict)
    return Entry(
        cell=cell, evidence=Evidence.MEASURED, outcome=outcome, record=made[0], records=made,
        wanted=engines_wanted(cell, outcome, made), **fields,
    )  # fmt: skip


def test_a_failure_is_served_once_it_is_confirmed() -> None:
    once, twice = entry(Verdict.FAIL, {}), entry(Verdict.FAIL, {"confirms": "r1"}, {})
    assert is_served(entry(Verdict.PASS, {}), PLAIN)
    assert not is_served(once, PLAIN)
    assert is_served(twice, PLAIN)
    assert is_served(once, Options(confirm=False))


def test_a_failure_that_cannot_be_run_here_is_served_as_it_is() -> None:
    failed = entry(Verdict.FAIL, {})
    excluded = Excluded(cell=failed.cell, why=Exclusion.IMAGE_NOT_PULLED)
    assert is_served(replace(failed, excluded=excluded), PLAIN)


@pytest.mark.parametrize(
    ("records", "served"),
    [([{}], False), ([{}, {}], False), ([{}, {}, {}], True), ([{"processes": 3}], True)],
)
def test_with_rebuilds_as_many_engines_must_be_there(records: list[dict[str, Any]], served: bool) -> None:
    assert is_served(entry(Verdict.PASS, *records), Options(rebuilds=3)) is served


def test_only_what_was_measured_here_is_a_fact() -> None:
    assert is_current_fact(entry(Verdict.FAIL, {}))
    assert not is_current_fact(replace(entry(Verdict.FAIL, {}), evidence=Evidence.RECORDED))
    assert not is_served(make_unknown(), PLAIN)


def test_a_record_whose_outputs_were_measured_again_counts_no_more() -> None:
    cell, other = make_cell(), make_cell(case=make_case("other"))
    old, new = make_record(cell, run="r1"), make_record(cell, run="r2", remeasured_from="r1")
    same_run = make_record(other, run="r1")
    stored = [Stored(record=record, local=True) for record in (old, new, same_run)]
    assert [item.record for item in without_superseded(stored)] == [new, same_run]


def test_a_record_of_a_host_interpreter_is_never_a_container_s() -> None:
    cell = make_cell(gpu=H200)
    host = Host(engine=Engine(available=True), gpus=(H200,))
    assert origin_digests(cell, host, on_host=True) == {"runtime": "host"}
    assert origin_digests(cell, host, on_host=False) == {"runtime": "container"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"limits": {"sum_abs": 1.0}}, True),
        ({"useful": 0.5}, True),
        ({"control": Control.NEGATIVE}, True),
        ({"bug_is": frozenset(Cause)}, True),
        ({"remarks": frozenset({"fused"})}, True),
        ({"dangerous": True}, True),
        ({"needs": frozenset({"torch"})}, True),
        ({"defects": ("lost-scale",)}, False),
        ({"builds": 3}, False),
        ({"processes": 3}, False),
        ({"seconds": 600.0}, False),
    ],
    ids=lambda value: (
        next(iter(value)) if isinstance(value, dict) else str(value)
    ),  # the same in each process
)
def test_what_is_asked_of_a_measurement_has_a_digest_and_what_judges_it_is_no_part(
    change: dict[str, Any], same: bool
) -> None:
    assert (asked_digest(replace(make_case(), **change)) == asked_digest(make_case())) is same
