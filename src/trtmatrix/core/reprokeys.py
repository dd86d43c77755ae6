"""The keys that a repro's FACTS and cases may have, with the type and the rule of each."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trtmatrix.core.model import PART, Basis, Cause, Control, Product, Scalar, Verdict, release_of


class Strict(BaseModel):
    """Knows its keys and refuses others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no version specifier such as '==10.7.0' or '>=10.4,<10.8'") from error
    return text


def _compute(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no specifier of compute capabilities such as '>=8.9'") from error
    return text


def _part(text: str) -> str:
    if not PART.fullmatch(text):
        raise ValueError(f"{text!r} must match [a-z0-9.-]+: it is part of every cell's id")
    return text


def _version(text: str) -> str:
    try:
        release_of(_part(text))
    except (InvalidVersion, ValueError) as error:
        raise ValueError(f"{text!r} is no version's name such as '10.7.0'") from error
    return text


def _defect(text: str) -> str:
    if not text[:1].isalpha() or not PART.fullmatch(text) or "." in text:
        raise ValueError(f"{text!r} must match [a-z][a-z0-9-]*: it names a folder of the case")
    return text


_Specifier = Annotated[str, AfterValidator(_specifier)]
_Name = Annotated[str, Field(min_length=1)]
_DefectName = Annotated[str, AfterValidator(_defect)]

_Limit = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""NaN would hold for every value, infinity too."""

_Count = Annotated[int, Field(strict=True, ge=1)]


class ExpectationKeys(Strict):
    """An item of ``expectations``."""

    cases: Annotated[tuple[str, ...], Field(min_length=1)]
    versions: _Specifier = ""
    gpus: tuple[_Name, ...] = ()
    compute: Annotated[str, AfterValidator(_compute)] = ""
    product: Product = Product.TENSORRT
    verdict: Verdict
    basis: Basis
    source: str = ""
    on: str = ""
    note: str = ""


class WorkaroundKeys(Strict):
    """An item of ``workarounds``."""

    what: str
    case: str | None = None
    source: str = ""


class FigureKeys(Strict):
    """What ``figure`` holds."""

    measure: str
    label: str


class DefectKeys(Strict):
    """A value of ``defects``."""

    what: _Name
    upstream: str = ""


class TwinKeys(Strict):
    """An item of ``twins``."""

    measure: _Name
    label: _Name
    cases: Annotated[tuple[str, ...], Field(min_length=1)]
    reported: dict[Annotated[str, AfterValidator(_version)], _Limit] = {}
    source: str = ""


class FactsKeys(Strict):
    """FACTS."""

    title: str
    upstream: str
    url: str
    summary: str
    figure: FigureKeys
    related: tuple[str, ...] = ()
    expectations: tuple[ExpectationKeys, ...] = ()
    workarounds: tuple[WorkaroundKeys, ...] = ()
    defects: dict[_DefectName, DefectKeys] = {}
    twins: tuple[TwinKeys, ...] = ()


class ToleranceKeys(Strict):
    """What ``tolerance`` of a case holds: |y − r| ≤ atol + rtol·|r|."""

    atol: Annotated[_Limit, Field(ge=0)]
    rtol: Annotated[_Limit, Field(ge=0)]


Need = Literal["torch", "torch_tensorrt"]
"""What only some images have: facts of matrix.yaml, and the modules of that name."""


def _finite(value: Scalar) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a parameter must be finite: strict JSON has no word for it")
    return value


class CaseKeys(Strict):
    """What ``cases()`` yields. ``builds`` is None where the case leaves it to its precision."""

    id: Annotated[str, AfterValidator(_part)]
    params: dict[str, Annotated[Scalar, AfterValidator(_finite)]]
    limits: dict[str, _Limit] = {}
    control: Control | None = None
    defects: tuple[str, ...] = ()
    defect: str = ""
    useful: Annotated[_Limit, Field(gt=0)] = 0.1
    builds: _Count | None = None
    processes: _Count = 1
    products: Annotated[tuple[Product, ...], Field(min_length=1)] = tuple(Product)
    needs: tuple[Need, ...] = ()
    bug_is: tuple[Cause, ...] = ()
    remarks: tuple[Annotated[str, Field(pattern="^[a-z]{1,8}$")], ...] = ()
    seconds: Annotated[_Limit, Field(gt=0)] = 300.0
    dangerous: Annotated[bool, Field(strict=True)] = False
    keep: Annotated[bool, Field(strict=True)] = False
    tolerance: ToleranceKeys | None = None


def keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that FACTS may have beside one that it may not."""
    models: dict[object, type[BaseModel]] = {
        "figure": FigureKeys, "expectations": ExpectationKeys, "workarounds": WorkaroundKeys,
        "defects": DefectKeys, "twins": TwinKeys,
    }  # fmt: skip
    model = models.get(loc[0], FactsKeys) if len(loc) > 1 else FactsKeys
    return list(model.model_fields)
