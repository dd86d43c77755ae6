"""Which records stand for a cell: of the same runtime, confirmed, and not of a trouble that may pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_entry, make_record, make_version

from trtmatrix.judge.compare import is_current
from trtmatrix.judge.confirm import assess
from trtmatrix.judge.entry import Entry
from trtmatrix.plan.stale import find_changes, origin_digests
from trtmatrix.run.perform import Options, why_run
from trtmatrix.suite.matrix import ImageOrigin, Pin
from trtmatrix.suite.model import Cause, Evidence, Outcome, Verdict
from trtmatrix.suite.plan import Engine, Host

AGAIN = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip
PLAIN = Options()


def is_served(entry: Entry, options: Options) -> bool:
    return why_run(entry, options) is None


@pytest.mark.parametrize("cause", Cause)
def test_what_may_come_out_otherwise_is_tried_again(cause: Cause) -> None:
    assert is_served(make_entry(ended=cause.value), PLAIN) is (cause not in AGAIN)


def entry(verdict: Verdict, *records: dict[str, Any], **fields: Any) -> Entry:
    """An entry with a verdict that rests on such records."""
    cell, value = make_cell(case=make_case()), 9999.0 if verdict is Verdict.FAIL else 1.0
    made = tuple(make_record(cell, value, run=f"r{number}", **more) for number, more in enumerate(records))
    outcome = Outcome(verdict=verdict)
    return Entry(
        cell=cell, evidence=Evidence.MEASURED, outcome=outcome, record=made[0], records=made,
        wanted=assess(cell, made).wanted, **fields,
    )  # fmt: skip


def test_a_failure_is_served_once_it_is_confirmed() -> None:
    once, twice = entry(Verdict.FAIL, {}), entry(Verdict.FAIL, {"confirms": "r1"}, {})
    assert is_served(entry(Verdict.PASS, {}), PLAIN)
    assert not is_served(once, PLAIN)
    assert is_served(twice, PLAIN)
    assert is_served(once, Options(confirm=False))


LOCK = Pin(manifest="sha256:m", ids=("sha256:c", "sha256:m", "sha256:i"))


@pytest.mark.parametrize(
    ("image", "current"),
    [("sha256:c", True), ("sha256:m", True), ("sha256:old", False), ("sha256:c sha256:m", False)],
)
@pytest.mark.parametrize("ids", [frozenset[str](), frozenset({"sha256:c"})])
def test_a_locked_image_is_known_also_where_it_is_gone(
    image: str, current: bool, ids: frozenset[str]
) -> None:
    origin = ImageOrigin(image="nvcr.io/nvidia/pytorch:24.12-py3", pin=LOCK)
    cell = make_cell(version=replace(make_version(), origin=origin), gpu=H200)
    wanted = origin_digests(cell, Host(engine=Engine(available=True, ids=ids), gpus=(H200,)), on_host=False)
    board = {name: getattr(H200, name) for name in ("name", "variant", "driver")}
    record = make_record(cell, digests={"runtime": "container", "image": image}, gpu=board)
    assert is_current(record, wanted, cell) is current
    assert bool(find_changes(record, wanted, cell)) is not current
