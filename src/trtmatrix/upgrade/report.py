"""An upgrade report as types, with nothing left to decide, and as strict JSON.

docs/upgrade.schema.json says what each field holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from trtmatrix.api.types import ApiSection
from trtmatrix.common.errors import ExitCode, combine_exit_codes
from trtmatrix.common.text import to_json
from trtmatrix.judge.differences import Difference
from trtmatrix.judge.record import write_number
from trtmatrix.model.outcomes import CheckOutcome, Integers, WrongLayer
from trtmatrix.suite.model import Cause, Evidence, Product, Verdict

SCHEMA = 5
"""The number of the JSON's shape."""


class Decision(str, Enum):
    """The answer."""

    GO = "go"
    GO_WITH_WORKAROUNDS = "go with these work-arounds"
    DONT = "don't"
    NOT_ENOUGH = "not enough evidence"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that stands for it."""
        codes = (ExitCode.AS_EXPECTED, ExitCode.WORKAROUNDS, ExitCode.DONT, ExitCode.NOT_ENOUGH)
        return codes[list(Decision).index(self)]


class Change(str, Enum):
    """How a case stands at the version moved to, against the version moved from."""

    REGRESSED = "regressed"
    BAD_AFTER = "bad, not known before"
    UNCHANGED_BAD = "unchanged, bad"
    FIXED = "fixed"
    UNCHANGED_GOOD = "unchanged, good"
    UNKNOWN = "unknown"
    SAYS_NOTHING = "says nothing"


class Weight(str, Enum):
    """What a line does to the decision, the weightiest first."""

    AGAINST = "against"
    LACKING = "lacking"
    WORKAROUND = "needs a work-around"
    FOR = "for"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where evidence can be read: a record's file, or a title with its address."""

    title: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A case at one version; ``verdict`` is None where there is no evidence, ``word`` what a table shows.

    ``counted``: its product's builds differ. ``doubted``: a control beside it came out wrong. ``absent``: it
    cannot be tried here. ``feared``: why its repro assumes that it fails, where there is no evidence.
    """

    version: str
    verdict: Verdict | None
    evidence: Evidence
    word: str = ""
    reason: str = ""
    builds: int = 0
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
    """One finding: its worst known change, its weightiest case's weight, and why in words."""

    repro: str
    title: str
    source: Source
    change: Change
    weight: Weight
    why: str
    cases: tuple[CaseLine, ...]
    workarounds: tuple[WorkaroundLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FactLine:
    """A reason, or a fact beside the findings; ``known``: how it is known (``"read"``, ``"measured"``)."""

    topic: str = ""
    text: str
    weight: Weight = Weight.NOTE
    known: str = Evidence.NONE.value
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over several engines."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class PerformanceLine:
    """One figure of one case; ``ratio``: after ÷ before of the medians; ``why_not``: why not comparable.

    ``more_engines``: it seems beyond the limit, and more engines than these would make sure of it.
    ``by_turns``: the engines were built and timed A B A B; others may tell of a busy host.
    """

    repro: str
    case: str
    measure: str
    unit: str
    before: Spread | None
    after: Spread | None
    ratio: float | None = None
    told_apart: bool = False
    p_value: float | None = None
    beyond_limit: bool = False
    more_engines: bool = False
    by_turns: bool = False
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class SampleFigure:
    """An output's error over all samples, in noise floors (``unit`` "floors") or as relative L2 error."""

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
    """A model of the user's own; ``facts``: pairs to show, ``nodes``: what repros know of its operators.

    ``decision`` and ``reasons`` are those of the model by itself; ``mistake``: why it could not be asked
    about, which is for the user to mend.
    """

    name: str
    repro: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    reference: str = ""
    floor: str = ""
    cases: tuple[CaseLine, ...] = ()
    samples: tuple[SampleFigure, ...] = ()
    differences: tuple[Difference, ...] = ()
    check: CheckOutcome | None = None
    wrong_layers: tuple[WrongLayer, ...] = ()
    troubles: tuple[str, ...] = ()
    nodes: tuple[FactLine, ...] = ()
    integers: tuple[Integers, ...] = ()
    tags: tuple[str, ...] = ()
    mistake: str = ""
    decision: Decision | None = None
    reasons: tuple[FactLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """Evidence that is lacking, and the command that would supply it, or nothing where none can."""

    what: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What keeps from moving, since the report in ``file`` was accepted: what is new, gone and the same."""

    file: str
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """The whole report: the answer in one sentence, why (the weightiest first), and what there is to know."""

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
    models: tuple[ModelSection, ...] = ()
    baseline: Baseline | None = None
    lacking: tuple[Lacking, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    command: str = ""
    generated: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """What ``upgrade`` ends with: the answer's code, 11 where code must change first, 2 for a mistake.

        It is 0 where nothing is new since an accepted report, whose mistakes are no reason for 2.
        """
        if self.baseline is not None and not self.baseline.new:
            return ExitCode.AS_EXPECTED
        gate = {ExitCode.DONT} if self.api.must_change else set[ExitCode]()
        mistakes = {mistake_words(model.name, model.mistake) for model in self.models if model.mistake}
        if self.baseline is not None:
            mistakes &= {*self.baseline.new}
        gate |= {ExitCode.USAGE} if mistakes else set()
        return combine_exit_codes({self.decision.exit_code, *gate})


def mistake_words(name: str, mistake: str) -> str:
    """Return a model's mistake as a baseline tells it."""
    return f"{name}: mistake: {mistake}"


def upgrade_json(upgrade: Upgrade) -> str:
    """Return the report as JSON: the fields of :class:`Upgrade`, ``schema`` and ``exit_code``."""
    return to_json({"schema": SCHEMA, "exit_code": int(upgrade.exit_code), **plain(upgrade)})


def plain(value: Any) -> Any:  # noqa: ANN401 - any field of the report, and JSON
    """Return a value as JSON has it: an enum's value, and NaN and infinity as strings."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return write_number(value)
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value
