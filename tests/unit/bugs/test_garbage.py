"""Failures whose numbers are absurd: figures as TensorRT 8.5.3.1 and 8.6.0 gave them on an H200."""

from __future__ import annotations

from typing import Any

import pytest
from bugs.test_manner import AS_BUG, NAN, NOISE, RIGHT, WRONG, ZERO, engine, failing
from builders import make_case

from trtmatrix.bugs.manner import Kind, Manner, same_manner

CASE = make_case(limits={}, defects=("lost-scale",))


def off(error: float, nan: int = 0) -> Any:
    return engine(y={**RIGHT, "rel_l2": error, "nan_unexpected": nan})


RECORDED = [off(2.06e23, nan=2), off(1.48e11, nan=1), off(1.04e23)]
AGAIN = [off(1.0439, nan=2), off(1.0439, nan=1), off(1.0439)]


def seen(*engines: Any) -> Manner:
    return failing(*engines, case=CASE, noise=NOISE)


GARBAGE = {"NaN, and huge numbers": RECORDED, "absurd, of a single engine": [off(5.3e25)]}
PLAIN = {
    "NaN in each": [engine(y=NAN), engine(y=NAN)],
    "large, of a single engine": [off(900.0)],
    "a known defect": [AS_BUG, AS_BUG],
    "one of several is right": [engine(), off(0.5)],
}


@pytest.mark.parametrize("name", [*GARBAGE, *PLAIN])
def test_what_is_garbage(name: str) -> None:
    found = seen(*(GARBAGE | PLAIN)[name])
    assert found.is_garbage == (name in GARBAGE)
    assert same_manner(found, found) == ""


def test_garbage_comes_back_by_any_of_its_ways() -> None:
    for wanted in GARBAGE.values():
        for found in (*GARBAGE.values(), AGAIN, [engine(y=NAN)], [engine(y=ZERO)], [off(4.7e23)]):
            assert same_manner(seen(*wanted), seen(*found)) == ""


def test_what_is_no_garbage_is_not_the_same() -> None:
    wanted = seen(*RECORDED)
    assert "relative error" in same_manner(wanted, seen(engine(y=WRONG)))
    assert "lost" in same_manner(wanted, seen(AS_BUG))
    assert same_manner(wanted, None) == "it does not fail"
    for kind in {*Kind} - {Kind.NOT_FINITE, Kind.ZEROS, Kind.WRONG}:
        assert same_manner(wanted, Manner(kind=kind))
