"""How large the signature of a defect comes out in right engines: the bounds, learnt from many seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import trtmatrix
from trtmatrix.judge.factors import LEAST_BOUND, MARGIN, UNCALIBRATED_MARGIN
from trtmatrix.judge.noise import Noise, is_allowed, read_noise

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
