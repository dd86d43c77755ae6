"""The words of an upgrade report as types, with nothing left to decide, and the report as strict JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from trtmatrix.api.types import ApiSection
from trtmatrix.common.errors import ExitCode, combine_exit_codes
from trtmatrix.common.jsontext import to_json
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.record import write_number
from trtmatrix.model.outcomes import CheckOutcome, WrongLayer
from trtmatrix.suite.model import Cause, Evidence, Product, Verdict

SCHEMA = 2
"""The number of the JSON's shape; docs/upgrade.schema.json describes it."""


class Decision(str, Enum):
    """The answer."""

    GO = "go"
    GO_WITH_WORKAROUNDS = "go with these work-arounds"
    DONT = "don't"
    NOT_ENOUGH = "not enough evidence"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that stands for it."""
        return _CODES[self]


_CODES = {
    Decision.GO: ExitCode.AS_EXPECTED,
    Decision.GO_WITH_WORKAROUNDS: ExitCode.WORKAROUNDS,
    Decision.DONT: ExitCode.DONT,
    Decision.NOT_ENOUGH: ExitCode.NOT_ENOUGH,
}


class Change(str, Enum):
    """How a case stands at the version moved to, against the version moved from."""

    REGRESSED = "regressed"
    UNCHANGED_BAD = "unchanged, bad"
    UNKNOWN = "unknown"
    FIXED = "fixed"
    UNCHANGED_GOOD = "unchanged, good"
    SAYS_NOTHING = "says nothing"


class Weight(str, Enum):
    """What a line does to the decision."""

    AGAINST = "against"
    LACKING = "lacking"
    WORKAROUND = "needs a work-around"
    FOR = "for"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a line's evidence can be read: a cell's id, a record's file, a title, an address (or nothing)."""

    title: str
    url: str = ""

    @property
    def is_record(self) -> bool:
        """Whether it is a record's file."""
        return not self.url and self.title.endswith(".json")


@dataclass(frozen=True, kw_only=True)
class Side:
    """A case at one version. ``verdict`` is None where there is no evidence.

    ``word`` is what a table shows of it (``PASS 1.34``), ``builds`` how many engines it rests on, ``floors``
    the worst error in noise floors, ``reason`` the judge's words, ``driver`` that of the record. ``cause``:
    why there is no verdict. ``counted``: its product builds engines that differ. ``doubted``: a control
    beside it came out wrong. ``absent``: it cannot be tried at this version. ``feared``: what lets its repro
    assume that it fails, where there is no evidence.
    """

    version: str
    verdict: Verdict | None
    evidence: Evidence
    word: str = ""
    reason: str = ""
    builds: int = 0
    failed: int = 0
    floors: float | None = None
    driver: str = ""
    cell: str = ""
    sources: tuple[Source, ...] = ()
    cause: Cause | None = None
    counted: bool = True
    doubted: bool = False
    absent: bool = False
    feared: Source | None = None


@dataclass(frozen=True, kw_only=True)
class WorkaroundLine:
    """A work-around; ``after``: its own case at the version moved to; ``counts``: that passed enough."""

    what: str
    case: str
    after: Side | None
    counts: bool
    source: Source | None = None


@dataclass(frozen=True, kw_only=True)
class CaseLine:
    """One case at both versions, what that does to the decision, and why in words."""

    repro: str
    case: str
    change: Change
    weight: Weight
    before: Side
    after: Side
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class FindingLine:
    """One finding: its cases together.

    ``change`` is the worst that is known of its cases, ``weight`` that of the case that weighs most.
    """

    repro: str
    title: str
    upstream: str
    url: str
    change: Change
    weight: Weight
    why: str
    cases: tuple[CaseLine, ...]
    workarounds: tuple[WorkaroundLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FactLine:
    """A fact beside the findings: of GPU and driver, engines to rebuild, behaviour.

    ``known`` says how it is known, in words (``"read"``, ``"measured"``; see matrix.yaml).
    """

    topic: str
    text: str
    weight: Weight
    known: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over several measurements: median, smallest, largest, and how many there are."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class PerformanceLine:
    """One figure of one case at both versions.

    ``measure``: latency (ms), build time (s), engine size (bytes), device memory (bytes). ``ratio`` is after
    over before, of the medians. ``told_apart``: significantly different, with the rank test's ``p_value``;
    ``beyond_limit``: significantly more than --max-slowdown times the figure before. ``clocks``: those of
    both in words; ``why_not``: why the two must not be compared (other or unknown clocks), or nothing.
    """

    repro: str
    case: str
    measure: str
    unit: str
    before: Spread | None
    after: Spread | None
    ratio: float | None
    told_apart: bool
    p_value: float | None = None
    beyond_limit: bool = False
    clocks: str = ""
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class SampleFigure:
    """An output's error over all samples, in noise floors (``unit`` "floors") or as relative L2 error.

    ``worst_sample`` is the index of the worst.
    """

    output: str
    version: str
    unit: str
    median: float
    p90: float
    worst: float
    worst_sample: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """The user's own model. All texts are whole sentences or short phrases for people.

    ``facts`` are pairs to show (file, opset, inputs, outputs, weights, profiles, samples and where they come
    from). ``reference`` says who computed it, in which precision, with which error of its own; ``floor``
    what the noise floor comes from, or ``"no floor: versions compared with each other only"``. ``nodes``:
    what is known of its nodes by their operators alone, a line a group of them.
    """

    name: str
    repro: str
    facts: tuple[tuple[str, str], ...]
    reference: str
    floor: str
    cases: tuple[CaseLine, ...]
    samples: tuple[SampleFigure, ...] = ()
    differences: tuple[Difference, ...] = ()
    check: CheckOutcome | None = None
    wrong_layers: tuple[WrongLayer, ...] = ()
    troubles: tuple[str, ...] = ()
    nodes: tuple[FactLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """Evidence that is not there, why it is needed, and the exact command that would supply it.

    ``command`` is empty where none of this tool's can. ``whole``: it stands for all that follow.
    """

    what: str
    command: str
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The whole report. ``summary`` is the answer in one sentence, ``reasons`` why, the weightiest first.

    ``gpu`` is the GPU's name, ``gpu_note`` what is known of it (compute capability, driver, whether it is
    here). ``not_looked_at``: what this report says nothing about, a sentence each. ``command``: what made
    this report.
    """

    product: Product
    before: str
    after: str
    gpu: str
    gpu_note: str
    decision: Decision
    summary: str
    reasons: tuple[FactLine, ...]
    findings: tuple[FindingLine, ...]
    gpu_and_driver: tuple[FactLine, ...] = ()
    performance: tuple[PerformanceLine, ...] = ()
    api: ApiSection = field(default_factory=ApiSection)
    engines: tuple[FactLine, ...] = ()
    model: ModelSection | None = None
    lacking: tuple[Lacking, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    command: str = ""
    generated: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """What ``upgrade`` ends with: the answer's code, or 11 where the user's code must change first."""
        gate = {ExitCode.DONT} if self.api.must_change else set[ExitCode]()
        return combine_exit_codes({self.decision.exit_code, *gate})


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 case``, ``3 cases``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def upgrade_json(upgrade: Upgrade) -> str:
    """Return the report as a JSON object with ``schema`` and the fields of :class:`Upgrade`.

    Enums are their values, what is not known is null, and a number that JSON cannot hold is one of the
    strings NaN, Infinity and -Infinity. ``exit_code`` is what the command ends with.
    """
    return to_json({"schema": SCHEMA, "exit_code": int(upgrade.exit_code), **plain(upgrade)})


def plain(value: Any) -> Any:  # noqa: ANN401 - any field of the report, and JSON
    """Return a value of the report as JSON has it; ``TypeError`` on what the report's types do not have."""
    match value:
        case Enum():
            return value.value
        case str():  # halves of a character are what no file in UTF-8 can hold
            return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)
        case float():
            return write_number(value)
        case None | int():
            return value
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"a report does not hold {type(value).__name__}")
