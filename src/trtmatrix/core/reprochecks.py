"""What the parts of a repro say of each other: names that are there, claims with their source."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterator, Sequence

from trtmatrix.core.model import Basis, Case, Control
from trtmatrix.core.reprokeys import FactsKeys

Problem = tuple[tuple[int | str, ...], str]
"""A path inside FACTS and what is wrong there."""


def check_facts(facts: FactsKeys, cases: Sequence[Case]) -> Iterator[Problem]:
    """Check that FACTS names cases that are there, and who reported what."""
    known = [case.id for case in cases]
    for i, workaround in enumerate(facts.workarounds):
        if workaround.case is not None and workaround.case not in known:
            yield ("workarounds", i, "case"), f"no case {workaround.case!r}{near(workaround.case, known)}"
    for i, expectation in enumerate(facts.expectations):
        yield from _check_patterns(expectation.cases, known, ("expectations", i, "cases"))
        if expectation.basis is Basis.REPORTED and not expectation.source:
            yield ("expectations", i, "source"), "is missing: what is reported names who says so"
    for i, twin in enumerate(facts.twins):
        yield from _check_patterns(twin.cases, known, ("twins", i, "cases"))
        if twin.reported and not twin.source:
            yield ("twins", i, "source"), "is missing: what is reported names who says so"


def _check_patterns(
    patterns: Sequence[str], known: Sequence[str], path: tuple[int | str, ...]
) -> Iterator[Problem]:
    for j, pattern in enumerate(patterns):
        if not fnmatch.filter(known, pattern):
            yield (*path, j), f"{pattern!r} fits no case{near(pattern, known)}"


def check_cases(facts: FactsKeys, cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Yield a case's id with what is wrong with its defects."""
    known = list(facts.defects)
    for case in cases:
        for name in case.defects:
            if name not in known:
                yield case.id, f"defects: {name!r} is not among FACTS['defects']{near(name, known)}"
        if case.defects and not case.noise_key:
            yield case.id, "defects: nothing emulates them: write emulate() and NOISE, give a precision"
        if case.defect and case.defect not in case.defects:
            yield case.id, f"defect: {case.defect!r} is not among the case's defects: add it there"
        if case.defect and case.control is not Control.NEGATIVE:
            yield case.id, 'defect: only a negative control has one put in: "control": "negative"'
        if case.processes > 1 and case.builds > 1:
            yield case.id, "builds: several processes build once each: leave out builds, or processes"


def check_noise(noise: object, emulates: bool, cases: Sequence[Case]) -> Iterator[str]:
    """Check a module's NOISE; ``emulates``: it has emulate()."""
    if noise is None:
        if emulates:
            yield 'emulate() needs NOISE = (..., "precision"): the params that it depends on'
        return
    if not emulates:
        yield "NOISE without emulate(): write emulate(), or leave NOISE out"
    if not _is_names(noise):
        yield f'NOISE must be a tuple of different names such as ("batch", "precision"), not {noise!r}'
        return
    names = [str(name) for name in noise] if isinstance(noise, (tuple, list)) else []
    if "precision" not in names:
        yield 'NOISE lacks "precision": every noise depends on it'
    params = sorted({name for case in cases for name in case.params})
    for name in names:
        if name not in params and params:
            yield f"NOISE: no case has the param {name!r}{near(name, params)}"


def _is_names(noise: object) -> bool:
    if not isinstance(noise, (tuple, list)) or not noise:
        return False
    return all(isinstance(name, str) for name in noise) and len(set(noise)) == len(noise)


def near(word: str, known: Sequence[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""
