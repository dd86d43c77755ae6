"""What is known of a case's noise before it runs, its calibration, and what of it fits an engine's error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Strict, TypeAdapter
from typing_extensions import TypedDict

import trtmatrix
from trtmatrix.judge.factors import ALLOWED, FIT, LEAST_BOUND, MARGIN, POSSIBLE, ROUNDING, UNCALIBRATED_MARGIN

NO_FLOOR = "no floor: versions compared with each other only"
"""What is said of a user's model whose noise cannot be known."""
NO_FLOOR_OF = "no noise floor is known of"
"""What is said where all is right that has a noise floor, and other outputs are not the reference itself."""
HIDES = "it hides too much"
"""What is said of a noise floor above the case's useful limit."""
Outputs = Mapping[str, Mapping[str, Any]]
"""Measurements by output, as a record has them."""


Number = Annotated[float, Strict()]
_Numbers = Mapping[str, Mapping[str, Number]]


class _Reference(TypedDict, total=False):
    silent: list[str]
    not_finite: dict[str, Number]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What is known of a case before it runs; all errors are relative L2 errors to the float64 reference.

    ``outputs``: output → member of the ensemble → its error. ``defects``: defect → output → the size of the
    defect. ``c``: defect → member → how much of the defect the member's error seems to contain.
    ``types``: the own types of outputs that hold real numbers, by NumPy's names, where they are known.
    ``reference``: how its reference was computed, and what that could not do.
    """

    key: str = ""
    precision: str = ""
    outputs: _Numbers = field(default_factory=dict)
    defects: _Numbers = field(default_factory=dict)
    c: _Numbers = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    reference: _Reference = field(default_factory=_Reference)

    def __post_init__(self) -> None:
        if self.outputs and not self.precision:
            raise ValueError("its noise names no precision")

    def floor(self, output: str, precision: str = "") -> float | None:
        """Return the worst member's error of an output, None where the output was not emulated.

        It is never below the rounding of the output's own type: a member may happen to be exact where another
        right way of computing is not. ``precision``: that of the graph as the product computes it, if it is
        not the one asked for.
        """
        asked, members = precision or self.precision, self.outputs.get(output, {})
        allowed = [float(error) for member, error in members.items() if is_allowed(member, asked)]
        return max(*allowed, ROUNDING.get(self.types.get(output, ""), 0.0)) if allowed else None

    def size(self, defect: str, precision: str = "") -> tuple[str, float]:
        """Return the output that a defect changes most, and the defect's size there in noise floors.

        It is infinite where the floor is 0, as of outputs that are only copied or compared.
        """
        sizes = self.defects.get(defect, {})
        output = max(sorted(sizes), key=lambda name: sizes[name], default="")
        floor, size = self.floor(output, precision), sizes.get(output, 0.0)
        return ("", 0.0) if floor is None or not size else (output, size / floor if floor else math.inf)


@lru_cache(maxsize=1024)
def is_allowed(member: str, precision: str) -> bool:
    """Whether a member of the ensemble is how a build of this precision may compute."""
    return member not in POSSIBLE and precision_of(member) in ALLOWED.get(precision, ())


def precision_of(member: str) -> str:
    """Return the precision that a member's name starts with: ``"fp16-blocks-late"`` gives fp16."""
    return member.partition("-")[0]


_NOISE = TypeAdapter(Noise)


def read_noise(data: Mapping[str, Any]) -> Noise | None:
    """Read a record's or a case's noise; None where it has none, ``ValueError`` where it is no noise."""
    return _NOISE.validate_python(data) if data.get("outputs") else None


def noise_troubles(noise: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what of the reference or the floor could not be computed, or has nothing to be compared with."""
    about = noise.get("reference", {})
    troubles = [
        f"{name}: its reference has no element but zeros, NaN and infinity in a sample: that says nothing"
        for name in about.get("silent", ())
    ]
    troubles += [
        f"{name}: {share:.1%} of its reference is NaN or infinite: there only infinities are compared"
        for name, share in about.get("not_finite", {}).items()
    ]
    if about.get("instead"):
        troubles.append(
            "the reference is no independent one: onnx.reference cannot compute this model, so "
            f"{about['by']} did: {about['instead']}"
        )
    if about.get("why_not") and about.get("by"):  # where there is no reference, that line says why
        few = "the noise floor is of fewer ways of computing" if noise.get("outputs") else "no noise floor"
        troubles.append(f"{few}: {about['why_not']}")
    return tuple(troubles)


def fits(noise: Noise, outputs: Outputs) -> dict[str, str]:
    """Return the member of the ensemble whose error is nearest to each output's (by their quotient).

    Where members of several precisions are about as near (see FIT), float16 is told from the others by the
    output's values: a result that was kept in float16 has 10 bits.
    """
    known, found = noise.outputs, {}
    for name, values in outputs.items():
        if not known.get(name) or "rel_l2" not in values:
            continue
        error, share_10_bits = float(values["rel_l2"]), values.get("share_10_bits")
        nearest = sorted((_distance(error, size), member) for member, size in known[name].items())
        least, found[name] = nearest[0]
        if share_10_bits is not None and not math.isinf(least):
            near = [member for distance, member in nearest if distance <= least + math.log(FIT)]
            half = [member for member in near if (precision_of(member) == "fp16") == (share_10_bits > 0.5)]
            found[name] = (half or near)[0]
    return found


def _distance(error: float, member: float) -> float:
    """Return how far two errors are apart, as the logarithm of their quotient; equal ones are 0."""
    if error == member:
        return 0.0
    if error <= 0 or member <= 0 or not math.isfinite(error):
        return math.inf
    return abs(math.log(error / member))


def is_near(error: float, member: float, factor: float = FIT) -> bool:
    """Whether two errors fit: their quotient is at most ``factor``."""
    return _distance(error, member) <= math.log(factor)


SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The ensemble over many seeds of weights and inputs, by the noise keys of cases.

    ``envelopes``: key → defect → member → the largest |c|. ``noises``: key → the noise with the largest
    error of each member.
    """

    envelopes: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    noises: Mapping[str, Noise] = field(default_factory=dict)

    def bound(self, noise: Noise, defect: str, precision: str = "") -> float:
        """Return the |c| that a right engine stays below: the envelope with its margin.

        A case that was not calibrated has its own ensemble with one seed, and a larger margin; infinite where
        nothing was emulated.
        """
        known, asked = self.envelopes.get(noise.key, {}).get(defect), precision or noise.precision
        members, margin = (known, MARGIN) if known else (noise.c.get(defect, {}), UNCALIBRATED_MARGIN)
        sizes = [abs(c) for name, c in members.items() if is_allowed(name, asked)]
        return max(LEAST_BOUND, margin * max(sizes)) if sizes else float("inf")


NOT_CALIBRATED = Calibration()


def parse_calibration(data: Mapping[str, Any]) -> Calibration:
    """Read what ``bench/calibrate.py`` wrote; ``ValueError`` where it is of another schema."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"the calibration has schema {data.get('schema')!r}, expected {SCHEMA}")
    noises = {key: read_noise({**entry["noise"], "key": key}) for key, entry in data["cases"].items()}
    return Calibration(
        envelopes={key: entry["envelope"] for key, entry in data["cases"].items()},
        noises={key: noise for key, noise in noises.items() if noise is not None},
    )


@cache
def read_calibration() -> Calibration:
    """Return the calibration of the project's repros, which is installed with the package."""
    return parse_calibration(_installed())


def read_entry(key: str) -> dict[str, Any] | None:
    """Return what the calibration holds of a noise key, as it is written; None where it has none."""
    cases: dict[str, dict[str, Any]] = _installed()["cases"]
    return cases.get(key)


@cache
def _installed() -> Any:  # noqa: ANN401 - JSON of ours
    return json.loads(Path(trtmatrix.__file__).with_name("calibration.json").read_text(encoding="utf-8"))
