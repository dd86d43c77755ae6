"""Failures that differ from engine to engine: figures as TensorRT 8.5.3.1 and 8.6.0 gave them on an H200."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from bugs.test_manner import AS_BUG, NAN, NOISE, RIGHT, WRONG, ZERO, engine, failing
from builders import make_case
from judge.test_published import entries

from trtmatrix.bugs.manner import Kind, Manner, manner_of, same_manner
from trtmatrix.judge.calibration import read_calibration

CASE = make_case(limits={}, defects=("lost-scale",))


def off(error: float, nan: int = 0) -> Any:
    return engine(y={**RIGHT, "rel_l2": error, "nan_unexpected": nan})


RECORDED = [off(2.06e23, nan=2), off(1.48e11, nan=1), off(1.04e23)]
AGAIN = [off(1.0439, nan=2), off(1.0439, nan=1), off(1.0439)]


def seen(*engines: Any) -> Manner:
    return failing(*engines, case=CASE, noise=NOISE)


UNSTEADY = {
    "NaN, and huge numbers": RECORDED,
    "NaN, and wrong numbers": AGAIN,
    "NaN, and zeros": [engine(y=NAN), engine(y=ZERO)],
    "orders apart": [off(1.04), off(300.0)],
    "NaN in each, orders apart": RECORDED[:2],
    "absurd, and not agreed on": [off(2e4), off(3e4)],
}
STEADY = {
    "NaN in each": [engine(y=NAN), engine(y=NAN)],
    "somewhat apart": [off(0.5), off(1.5)],
    "absurd, of a single engine": [off(5.3e25)],
    "large, of a single engine": [off(900.0)],
    "huge, but agreed on": [off(5e6), off(5e6)],
    "a known defect": [AS_BUG, AS_BUG],
    "a known defect, and NaN": [AS_BUG, engine(y=NAN)],
    "other outputs": [engine(y=NAN), engine(z=WRONG)],
    "one of several is right": [engine(), off(0.5)],
}


@pytest.mark.parametrize("name", [*UNSTEADY, *STEADY])
def test_what_is_unsteady(name: str) -> None:
    found = seen(*(UNSTEADY | STEADY)[name])
    assert found.unsteady == (name in UNSTEADY)
    assert ("garbage that differs from run to run" in found.words) == (name in UNSTEADY)
    assert same_manner(found, found) == ""


def test_garbage_comes_back_by_any_of_its_ways() -> None:
    for wanted in (RECORDED, AGAIN, [off(5.3e25), off(2e9)]):
        for found in (*UNSTEADY.values(), [engine(y=NAN)], [off(1.05)], [engine(y=ZERO)], [off(4.7e23)]):
            assert same_manner(seen(*wanted), seen(*found)) == ""


def test_what_is_no_garbage_is_not_the_same() -> None:
    wanted = seen(*RECORDED)
    assert "relative error" in same_manner(wanted, seen(engine(y=WRONG)))
    assert "lost" in same_manner(wanted, seen(AS_BUG))
    assert same_manner(wanted, None) == "it does not fail"
    for kind in {*Kind} - {Kind.NOT_FINITE, Kind.ZEROS, Kind.WRONG}:
        assert same_manner(wanted, Manner(kind=kind))


def test_a_steady_failure_stays_strict() -> None:
    assert "before: y: wrong" in same_manner(seen(off(0.5), off(0.5)), seen(*RECORDED))
    assert "instead of 0.5" in same_manner(seen(off(0.5), off(0.5)), seen(off(5.3e25)))
    nan = replace(seen(off(0.5)), errors=(math.nan,))
    assert "instead of 0.5" in same_manner(seen(off(0.5)), nan)


def test_no_published_failure_is_garbage() -> None:
    calibration = read_calibration()
    found = [manner for entry in entries() if (manner := manner_of(entry, calibration)) is not None]
    assert found
    assert [manner.words for manner in found if manner.unsteady] == []
