"""What one cell shows and what was expected of it, and the short words that say so. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version as Release

from trtmatrix.common.text import counted
from trtmatrix.judge.record import Record
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import (
    NO_GPU,
    Basis,
    Cause,
    Control,
    Evidence,
    Exclusion,
    Gpu,
    Outcome,
    Product,
    Verdict,
)
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
    def expectation(self) -> Expectation | None:
        """What its repro says of it."""
        return find_expectation(self.cell)

    @property
    def expected(self) -> Verdict:
        """The verdict that was expected: what the repro says, else a control's verdict, else PASS."""
        if self.expectation is not None:
            return self.expectation.verdict
        return Verdict.FAIL if self.cell.case.control is Control.NEGATIVE else Verdict.PASS

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


def expected_verdict(cell: Cell) -> Verdict:
    """Return what is expected of a cell."""
    return Entry(cell=cell, evidence=Evidence.NONE).expected


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
    return gpu.compute is None or _contains(expectation.compute, Release(gpu.compute))


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


NOT_SUPPORTED = "–"
NO_EVIDENCE = "·"
SURPRISE = "!"
MUST_FAIL = "†"
ONE_BUILD = "¹"
BOARD_MARK = "§"

VERDICT_MEANINGS = {
    Verdict.PASS: "right, as far as the precision allows",
    Verdict.FAIL: "above the noise floor or a limit, a known defect, NaN, or the bug itself",
    Verdict.FLAKY: "k of n builds fail, shown as k/n",
    Verdict.INVALID: "the case can say nothing here",
    Verdict.BUILT: "parsed and built, not run",
    Verdict.NO_VERDICT: "no verdict",
}

CAUSE_WORDS = {
    Cause.UNSUPPORTED_GPU: "WRONG GPU", Cause.UNSUPPORTED_BY_VERSION: "N/A",
    Cause.COMPONENT_MISSING: "MISSING", Cause.DRIVER_TOO_OLD: "DRIVER", Cause.IMAGE_MISSING: "NO IMAGE",
    Cause.OUT_OF_GPU_MEMORY: "GPU OOM", Cause.OUT_OF_HOST_MEMORY: "OOM", Cause.TIME_OUT: "TIME-OUT",
    Cause.BUILD_FAILED: "NO BUILD", Cause.CRASHED: "CRASHED", Cause.INTERRUPTED: "STOPPED",
    Cause.LAUNCHER_FAILED: "NO LAUNCH", Cause.PROBE_FAILED: "NO PROBE", Cause.VERSION_MISMATCH: "MISMATCH",
}  # fmt: skip

PRODUCT_NAMES = {
    Product.TENSORRT: "TensorRT", Product.TENSORRT_RTX: "TensorRT-RTX", Product.ONNXRUNTIME: "ONNX Runtime",
}  # fmt: skip

EVIDENCE_MEANINGS = {
    Evidence.MEASURED: "measured here",
    Evidence.RECORDED: "recorded elsewhere or before a change",
    Evidence.REPORTED: "reported, maybe of another GPU",
    Evidence.NONE: "no evidence",
}

_FRAMES = {Evidence.RECORDED: ("[", "]"), Evidence.REPORTED: ("(", ")")}


def outcome_word(outcome: Outcome) -> str:
    """Return the word of a verdict or of its cause, short enough for a column."""
    return outcome.verdict.value if outcome.cause is None else CAUSE_WORDS[outcome.cause]


_RESTS_ON_BUILDS = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.FLAKY})


def full_words(outcome: Outcome) -> str:
    """Return an outcome's verdict with its cause or the engines that it rests on, as prose has it."""
    if outcome.cause is not None:
        return f"{outcome.verdict.value} ({outcome.cause.value})"
    if outcome.verdict not in _RESTS_ON_BUILDS or not outcome.builds:
        return outcome.verdict.value
    builds = counted(outcome.builds, "build")
    some = f"{outcome.failed} of {builds} fail" if 0 < outcome.failed < outcome.builds else builds
    return f"{outcome.verdict.value} ({some})"


def marked(entry: Entry, text: str) -> str:
    """Put the mark of an entry's evidence around a text."""
    before, after = _FRAMES.get(entry.evidence, ("", ""))
    return before + text + after


def cell_text(entry: Entry | None) -> str:
    """Return what a cell shows: ``PASS¹ tf32 1.4``, ``[FAIL! 9]``, ``FLAKY! 1/4``, a mark or nothing."""
    if entry is None:
        return ""
    outcome = entry.outcome
    if outcome is None or _is_unsupported(entry):
        return NOT_SUPPORTED if _is_unsupported(entry) else NO_EVIDENCE
    one = outcome.builds == 1 and outcome.verdict in _RESTS_ON_BUILDS
    word = outcome_word(outcome) + (ONE_BUILD if one else "")
    parts = [word + (SURPRISE if entry.surprise else ""), outcome.fit, entry.figure, entry.board]
    if outcome.verdict is Verdict.FLAKY and outcome.builds:
        parts[1:3] = [f"{outcome.failed}/{outcome.builds}"]
    return marked(entry, " ".join(part for part in parts if part))


def has_evidence(entry: Entry | None) -> bool:
    """Whether a cell shows a verdict or a cause."""
    return entry is not None and entry.outcome is not None and not _is_unsupported(entry)


def _is_unsupported(entry: Entry) -> bool:
    """Whether an entry without a record is of a GPU that its version does not support."""
    excluded = entry.excluded
    return entry.record is None and excluded is not None and excluded.why is Exclusion.UNSUPPORTED_GPU


def legend(entries: Iterable[Entry | None]) -> list[tuple[str, str]]:
    """Return the marks, then the words, that occur in some cells, each with its meaning.

    Words that explain themselves are left out.
    """
    shown = list(entries)
    there = [entry for entry in shown if entry is not None]
    known, silent = ([e for e in there if has_evidence(e) is wanted] for wanted in (True, False))
    unsupported = sum(map(_is_unsupported, silent))
    outcomes = [entry.outcome for entry in known if entry.outcome is not None]
    fits = sorted({name for outcome in outcomes for name in outcome.fit.split("+") if name})
    negative = any(entry.cell.case.control is Control.NEGATIVE for entry in there)
    seen = {entry.evidence for entry in known}
    marks = [
        *((" ".join(_FRAMES.get(e, ("plain",))), EVIDENCE_MEANINGS[e], e in seen) for e in Evidence),
        (SURPRISE, "not as expected", any(entry.surprise for entry in known)),
        (BOARD_MARK, "another driver or variant, named above its table", any(e.board for e in known)),
        (ONE_BUILD, "1 build", any(o.builds == 1 and o.verdict in _RESTS_ON_BUILDS for o in outcomes)),
        (", ".join(fits), "the precision that the outputs show", bool(fits)),
        (NO_EVIDENCE, EVIDENCE_MEANINGS[Evidence.NONE], len(silent) > unsupported),
        (NOT_SUPPORTED, "the version does not support this GPU", unsupported > 0),
        ("blank", "the case is not for this product or version", None in shown),
        (MUST_FAIL, "a known defect put in: must FAIL", negative),
    ]  # fmt: skip
    meanings = {
        outcome_word(outcome): outcome.cause.value if outcome.cause else VERDICT_MEANINGS[outcome.verdict]
        for outcome in outcomes
    }
    words = [word for word in (*(v.value for v in Verdict), *CAUSE_WORDS.values()) if word in meanings]
    return [(mark, text) for mark, text, occurs in marks if occurs] + [
        (word, meanings[word]) for word in words if meanings[word].lower() != word.lower()
    ]
