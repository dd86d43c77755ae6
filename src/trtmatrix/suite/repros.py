"""A repro, its cases and rules: the keys of FACTS and of what cases() yields, each with its type. Pure."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version as Release
from pydantic import BeforeValidator, Field, PlainValidator, model_validator
from typing_extensions import Self

from trtmatrix.suite.keys import NotInFile, keys
from trtmatrix.suite.model import Basis, Cause, Control, Part, Product, Verdict

BEYOND = "beyond"  # the measurement of a run that counts elements beyond the case's tolerance
Scalar = str | int | float | bool


def specified(value: object = "") -> SpecifierSet:
    """Return versions such as ``">=10.4,<10.8"``, all where empty; pre-releases are versions too.

    Source: https://packaging.python.org/en/latest/specifications/version-specifiers/.
    """
    try:
        return SpecifierSet(str(value), prereleases=True)
    except InvalidSpecifier as error:
        raise ValueError(f"{value!r} is no specifier such as '==10.7.0', '>=10.4,<10.8', '>=8.9'") from error


def _scalar(value: object) -> object:
    if not isinstance(value, (str, int, float)):
        raise ValueError("must be text, a number, true or false")  # noqa: TRY004 - pydantic's way
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite: strict JSON has no word for it")
    return value


_Scalar = Annotated[Scalar, BeforeValidator(_scalar)]
_Specified = Annotated[SpecifierSet, PlainValidator(specified)]
_Text = Annotated[str, Field(min_length=1)]
_VersionName = Annotated[str, Field(pattern=r"^(?:[a-z]+-)*\d+(?:\.\d+)*$")]
_DefectName = Annotated[str, Field(pattern="^[a-z][a-z0-9]*(?:-+[a-z0-9]+)*$")]
"""It names a folder of the case."""
_Patterns = Annotated[tuple[str, ...], Field(min_length=1)]
_Count = Annotated[int, Field(strict=True, ge=1)]
_Flag = Annotated[bool, Field(strict=True)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""NaN would hold for every value as a limit, infinity too."""


@keys
class Expectation:
    """What a repro says should happen in some cases at some versions and GPUs, and who says so.

    ``gpus``: patterns of names (``"*H200*"``), ``compute``: a specifier of compute capabilities
    (``">=8.9"``); empty: any GPU. ``on`` is the GPU that a report is of, for reading.
    """

    cases: _Patterns
    versions: _Specified = specified()
    gpus: tuple[_Text, ...] = ()
    compute: _Specified = specified()
    product: Product = Product.TENSORRT
    verdict: Verdict
    basis: Basis
    source: str = ""
    on: str = ""
    note: str = ""


@keys
class Workaround:
    """What helps against the finding; ``case`` names the case that tries it.

    ``cases``: the cases that it is for, or patterns (none: all).
    """

    what: str
    case: str | None = None
    cases: tuple[_Text, ...] = ()
    source: str = ""

    def is_for(self, case: str) -> bool:
        """Whether it is for a case of the repro."""
        return not self.cases or any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


@keys
class Case:
    """One set of parameters of a repro: a row of the table; what ``cases()`` yields.

    ``limits`` maps a measurement of the case's own to the largest value that passes; outputs are judged by
    the noise floor of the case's ``precision``. ``defects``: the repro's known defects whose signature is
    looked for; ``defect``: the one that was put into a negative control. ``useful``: the largest noise floor
    (relative L2) at which a case without a known defect says anything. ``noise_key`` names what its noise
    depends on, in the calibration. ``bug_is`` names the causes that are the bug itself, and therefore a FAIL.
    ``remarks``: the words that a run may leave beside the verdict to pass (none: any). ``builds``: engines
    built and run in one process (not given: by its precision); ``processes``: fresh processes whose counts
    are added up. ``seconds`` is the time limit of one build and run. ``dangerous``: it may harm the process
    that it runs in, which serves no other cell afterwards. ``keep``: its outputs are kept, whatever comes
    out. ``needs``: what only some images have, as facts of matrix.yaml and modules are called.
    ``tolerance``: ``atol`` and ``rtol`` by which the user accepts an output, |y − r| ≤ atol + rtol·|r| in
    every element; then that decides, and what the noise floor says is only told.
    """

    id: Part
    params: Mapping[str, _Scalar]
    limits: Mapping[str, _Number] = field(default_factory=dict)
    control: Control | None = None
    defects: tuple[str, ...] = ()
    defect: str = ""
    useful: Annotated[_Number, Field(gt=0)] = 0.1
    noise_key: NotInFile[str] = ""
    builds: _Count = 1
    processes: _Count = 1
    products: Annotated[frozenset[Product], Field(min_length=1)] = frozenset(Product)
    needs: frozenset[Literal["torch", "torch_tensorrt"]] = frozenset()
    bug_is: frozenset[Cause] = frozenset()
    remarks: frozenset[Annotated[str, Field(pattern="^[a-z]{1,8}$")]] = frozenset()
    seconds: Annotated[_Number, Field(gt=0)] = 300.0
    dangerous: _Flag = False
    keep: _Flag = False
    tolerance: Mapping[str, Annotated[_Number, Field(ge=0)]] = field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.tolerance and set(self.tolerance) != {"atol", "rtol"}:
            raise ValueError("tolerance: has two keys, atol and rtol: write 0.0 for one that does not matter")
        if self.defect and (self.defect not in self.defects or self.control is not Control.NEGATIVE):
            raise ValueError("defect: put in on purpose: name it in defects, with control: negative")
        if self.processes > 1 and self.builds > 1:
            raise ValueError("builds: several processes build once each: leave out builds, or processes")
        return self

    @property
    def precision(self) -> str:
        """The precision that is asked of the build (one of the probe's PRECISIONS), or nothing."""
        return str(self.params.get("precision", ""))


@keys
class Defect:
    """A known defect: what it is, in words, and where it was reported (nothing: known by its mathematics)."""

    what: _Text
    upstream: str = ""


@keys
class Twin:
    """A finding's own figure: a measurement of cases that compare themselves with an equal formulation.

    ``reported`` maps a version's name to the value that ``source`` reports of it.
    """

    measure: _Text
    label: _Text
    cases: _Patterns
    reported: Mapping[_VersionName, _Number] = field(default_factory=dict)
    source: str = ""


@keys
class Figure:
    """The measurement that a repro's cells show, and what it is called."""

    measure: str
    label: str


class Effect(str, Enum):
    """What a version does with a node that a rule describes."""

    IGNORED = "ignored"
    WRONG = "wrong"
    REFUSED = "refused"


Condition = Literal[
    "some axes", "part of the shape", "uneven parts", "one row or column", "several rows",
    "bounded from 0", "turned back", "scaled alike", "no output", "moves data", "upper left out",
    "an integer, not 0",
]  # fmt: skip
"""What a node is asked beside its operator; :mod:`trtmatrix.onnxmodel.matching` answers."""


@keys
class Step:
    """One node of a chain: its operator (one of ``op``), and what else must hold of it.

    It takes what the step before it gives, directly or through operators of ``skip``. ``opset``: of ONNX's
    own operators. ``attributes``: name → the values that fit; one that the node does not have fits never.
    ``given``: inputs that are there. ``constant``: inputs of which one at least does not depend on the
    graph's inputs. ``types``: input → types that fit, as ONNX calls them (``"float16"``). ``rank``: the
    dimensions of its first input. ``after`` and ``not_after``: operators that all, and that none, of its
    inputs come from that are not constant. ``named``: the node that is told of the chain (none: its last).
    """

    op: _Patterns
    opset: _Specified = specified()
    attributes: Mapping[str, tuple[_Scalar, ...]] = field(default_factory=dict)
    given: tuple[int, ...] = ()
    constant: tuple[int, ...] = ()
    types: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    rank: int | None = None
    after: tuple[str, ...] = ()
    not_after: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    skip: tuple[str, ...] = ()
    named: _Flag = False


@keys
class RuleAt:
    """What becomes of a rule's nodes at some versions, and how that is known.

    ``read``: in the sources of the parser. ``compute``: on GPUs of these compute capabilities alone.
    ``source``: where not the rule's own says so.
    """

    versions: _Specified
    effect: Effect
    basis: Literal["measured", "reported", "read", "assumed"]
    source: str = ""
    on: str = ""
    compute: _Specified = specified()


@keys
class Rule:
    """Nodes that versions get wrong, as a graph shows them: ``graph`` is a chain, each fed by the one before.

    ``what`` happens to them; of ``at`` the first that fits a version counts. ``depends``: what it takes
    beside that no graph tells. ``instead``: what helps. ``same``, ``differ``: it takes two such nodes, which
    share this input, or whose inputs of this number have different values.
    """

    what: _Text
    graph: Annotated[tuple[Step, ...], Field(min_length=1)]
    at: Annotated[tuple[RuleAt, ...], Field(min_length=1)]
    source: _Text
    instead: str = ""
    depends: str = ""
    same: int | None = None
    differ: int | None = None

    def at_version(self, release: Release, compute: str = "") -> RuleAt | None:
        """Return what is known of a version, on a GPU of a compute capability where that is known."""
        for item in self.at:
            elsewhere = compute and not item.compute.contains(Release(compute))
            if item.versions.contains(release) and not elsewhere:
                return item
        return None


@keys
class Facts:
    """FACTS: what a repro says of its finding.

    ``exclusive``: cases, or patterns, whose outcome depends on what else runs on the GPU; such a cell never
    shares it with another.
    """

    title: str
    upstream: str
    url: str
    summary: str
    figure: Figure
    expectations: tuple[Expectation, ...] = ()
    workarounds: tuple[Workaround, ...] = ()
    defects: Mapping[_DefectName, Defect] = field(default_factory=dict)
    twins: tuple[Twin, ...] = ()
    rules: tuple[Rule, ...] = ()
    exclusive: tuple[_Text, ...] = ()


@keys
class Repro(Facts):
    """One finding: facts, expectations and cases."""

    id: str
    cases: tuple[Case, ...]
