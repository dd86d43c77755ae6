"""Reads the calibration that is installed with the package."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import trtmatrix
from trtmatrix.judge.calibration import Calibration, parse_calibration


@cache
def _read() -> dict[str, Any] | None:
    file = Path(trtmatrix.__file__).with_name("calibration.json")
    if not file.is_file():
        return None
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


@cache
def read_calibration() -> Calibration:
    """Return the calibration of the project's repros; an empty one where there is none."""
    data = _read()
    return Calibration() if data is None else parse_calibration(data)


def read_entry(key: str) -> dict[str, Any] | None:
    """Return what the calibration holds of a noise key, as it is written; None where it has none."""
    data = _read()
    return None if data is None else data["cases"].get(key)
