"""What a step of --explain reads from a record, and hands to the next run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from builders import make_case, make_cell, make_entry, make_record, make_repro

from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.model.explain import errors_of
from trtmatrix.suite.model import Cause

NAMES = {"y": "y/0", "act": "/0/act", "flat": "flat"}
NOISE = {
    "key": "k", "precision": "fp16", "defects": {}, "c": {},
    "outputs": {"y": {"fp16": 1e-3}, "act": {"fp16": 1e-3}, "flat": {"fp16": 0.0}},
}  # fmt: skip


def measured(**errors: float) -> dict[str, Any]:
    outputs = {name: {"count": 1, "nan_unexpected": 0, "rel_l2": error} for name, error in errors.items()}
    return {"outputs": outputs, "signatures": {}, "scalars": {}}


def read(*builds: dict[str, Any], mark: str = "", **fields: Any) -> Mapping[str, float] | str:
    repro = make_repro(make_case("fp16", limits={}, params={"precision": "fp16"}))
    cell = make_cell(repro)
    engines = {"builds": [{"measurements": build, "engine": {}} for build in builds]} if builds[1:] else {}
    record = make_record(cell, **{"noise": NOISE, **engines, **fields})
    if builds and not engines:
        record = make_record(cell, noise=NOISE, builds=[{"measurements": builds[0], "engine": {}}])
    entry: Entry = make_entry(cell)
    found = errors_of(record, entry, NAMES, Calibration(), frozenset({"y/0"}), mark)
    return found if isinstance(found, str) else found.floors


def test_of_several_builds_the_one_counts_whose_outputs_are_furthest_off() -> None:
    found = read(measured(y=1e-3, act=1.0), measured(y=1e-1, act=1e-3))
    assert isinstance(found, dict)
    assert found == pytest.approx({"y/0": 100.0, "/0/act": 1.0})


def test_an_inner_tensor_may_be_off_by_one_rounding_though_its_floor_is_zero() -> None:
    found = read(measured(y=1e-3, flat=2.0**-11))
    assert isinstance(found, dict)
    assert found["flat"] == 1.0


def test_nan_is_no_number_of_floors() -> None:
    wrong = measured(y=0.0)
    wrong["outputs"]["y"]["nan_unexpected"] = 1
    found = read(wrong)
    assert isinstance(found, dict)
    assert math.isnan(found["y/0"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ended": Cause.BUILD_FAILED.value, "detail": "no kernel"}, "build failed: no kernel"),
        ({"ended": "built"}, "built"),
        ({"noise": {}}, "no noise floor is known"),
    ],
)
def test_what_tells_nothing_is_said_in_words(fields: dict[str, Any], words: str) -> None:
    assert read(**fields) == words
