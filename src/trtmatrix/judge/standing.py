"""How the results of a version are known: measured, reported, or not yet at all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import Basis
from trtmatrix.suite.repros import Repro


class Standing(str, Enum):
    """What stands behind a column, the best that there is."""

    MEASURED = "measured"
    REPORTED = "reported"
    PLANNED = "planned"


def standing_of(version: Version, repros: Iterable[Repro], recorded: Collection[str]) -> Standing:
    """Return how results of a version are known; ``recorded``: the versions that there are records of.

    It is reported where an expectation that rests on a report or a measurement names it or a range with it;
    one of all versions says nothing of this one.
    """
    if version.name in recorded:
        return Standing.MEASURED
    said = (
        expectation
        for repro in repros for expectation in repro.expectations
        if expectation.basis is not Basis.ASSUMED and expectation.product is version.product
    )  # fmt: skip
    if any(each.versions.text and each.versions.contains(version.release) for each in said):
        return Standing.REPORTED
    return Standing.PLANNED
