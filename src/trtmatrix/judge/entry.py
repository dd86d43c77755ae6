"""What one cell shows and what was expected of it; how the results of a version are known. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from trtmatrix.judge.record import Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import NO_GPU, Basis, Control, Evidence, Gpu, Outcome, Product, Verdict
from trtmatrix.suite.plan import Excluded
from trtmatrix.suite.repros import Expectation, Repro


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A record with where it lies: measured on this host, or published."""

    record: Record
    local: bool


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one cell shows: its outcome and how that is known, what was expected, why it did not run.

    ``record`` is the one shown; ``records`` holds it and those that are comparable with it, on all of which
    the outcome rests. ``figure`` is its figure as shown, ``value`` the same as a number. ``wanted``: engines
    that must be built alone in a fresh process before it is believed; often 0. What a shared process said is
    ``set_aside`` once it was tried again alone: the run that was confirmed, and older ones that were doubtful
    and never confirmed (a run that was interrupted leaves such). ``overruled`` says in a sentence what the
    newest of these said, where something else is believed. ``board``: the mark of its board, in a table whose
    cells were not all measured on boards alike.
    """

    cell: Cell
    evidence: Evidence
    outcome: Outcome | None = None
    figure: str = ""
    value: float | None = None
    record: Record | None = None
    records: tuple[Record, ...] = ()
    wanted: int = 0
    set_aside: tuple[Record, ...] = ()
    overruled: str = ""
    expectation: Expectation | None = None
    excluded: Excluded | None = None
    executed: bool = False
    board: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of its outcome."""
        return self.outcome.verdict if self.outcome else None

    @property
    def word(self) -> str:
        """The cause of its having no verdict, else the verdict."""
        return (self.outcome.cause or self.outcome.verdict).value if self.outcome else ""

    @cached_property
    def expected(self) -> Verdict:
        """The verdict that was expected."""
        return expected_verdict(self.cell, self.expectation)

    @cached_property
    def surprise(self) -> bool:
        """Whether a measured or recorded verdict differs from the expectation, either way.

        BUILT and INVALID say nothing about numbers, NO VERDICT says nothing about the version: neither is a
        surprise; FLAKY always is, unless it was expected. A control of TensorRT that was measured and says
        nothing is one too: its verdict is known beforehand.
        """
        if self.verdict is Verdict.INVALID and self.evidence is Evidence.MEASURED:
            on_trt = self.cell.version.product is Product.TENSORRT
            return on_trt and self.cell.case.control is not None and self.expected is not Verdict.INVALID
        answered = self.verdict in {Verdict.PASS, Verdict.FAIL, Verdict.FLAKY}
        return self.evidence.is_record and answered and self.verdict is not self.expected


def expected_verdict(cell: Cell, expectation: Expectation | None) -> Verdict:
    """Return what is expected: what the repro says, else a control's verdict, else PASS."""
    if expectation is not None:
        return expectation.verdict
    return Verdict.FAIL if cell.case.control is Control.NEGATIVE else Verdict.PASS


def find_expectation(cell: Cell) -> Expectation | None:
    """Return the first expectation of the repro that fits the case, the version and the GPU."""
    version = cell.version
    fitting = (
        each for each in cell.repro.expectations
        if each.product is version.product
        and any(fnmatch.fnmatchcase(cell.case.id, pattern) for pattern in each.cases)
        and _contains(each.versions, version.release) and _fits_gpu(each, cell.gpu)
    )  # fmt: skip
    return next(fitting, None)


@lru_cache(maxsize=4096)
def _contains(versions: SpecifierSet, release: Release) -> bool:
    """Whether a version is among those of an expectation: the same is asked for every case."""
    return versions.contains(release)


def _fits_gpu(expectation: Expectation, gpu: Gpu) -> bool:
    """Whether an expectation is about a GPU; what is not known of a GPU fits."""
    if gpu == NO_GPU:
        return True
    names = (gpu.name.lower(), gpu.slug.lower())
    patterns = (pattern.lower() for pattern in expectation.gpus)
    if expectation.gpus and not any(fnmatch.filter(names, pattern) for pattern in patterns):
        return False
    try:
        return gpu.compute is None or _contains(expectation.compute, Release(gpu.compute))
    except InvalidVersion:
        return True


def is_digest_of(recorded: object, wanted: str) -> bool:
    """Whether a record's digest is the wanted one, or one of several with blanks between: IDs of an image."""
    return recorded == wanted or recorded in wanted.split()


DIGESTS = ("repro", "case", "asked", "probe", "image", "runtime")
"""What a record is made with."""
BOARD = ("name", "variant", "driver")
"""What of a record's GPU makes it another one."""


def are_comparable(record: Record, other: Record, digests: Sequence[str] = DIGESTS) -> bool:
    """Whether two records were made under the same conditions: digests, library, GPU, variant and driver.

    What only one of them knows is not compared.
    """
    parts = (
        (record.gpu, other.gpu, BOARD), (record.digests, other.digests, digests),
        (record.observed, other.observed, ("library",)),
    )  # fmt: skip
    return all(
        ours is theirs or all(ours[n] == theirs[n] for n in names if n in ours and n in theirs)
        for ours, theirs, names in parts
    )


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
    if any(each.versions and each.versions.contains(version.release) for each in said):
        return Standing.REPORTED
    return Standing.PLANNED
