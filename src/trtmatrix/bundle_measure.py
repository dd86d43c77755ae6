"""Measures on this host what a run of an archive gave: figures are not believed, outputs are looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.bundle import facts
from trtmatrix.core.model import Cause
from trtmatrix.core.record import RAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIKE = 0.01
"""By which share a figure of the script may differ from what its outputs measure here: sums are rounded."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """What the probe's measuring asks of a case's files, from an archive's folder."""

    reference: Mapping[str, NDArray[Any]]
    defects: Mapping[str, Mapping[str, NDArray[Any]]]


def measure_here(folder: Path, out: Path, result: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a run's result with errors and signatures measured from the outputs that it saved.

    Also why that could not be done, or where the script's own figures say otherwise. Nothing is measured of
    a run that ended early. What the repro counts by itself is not in its outputs and stays as it was told.
    """
    if result.get("ended") != RAN:
        return dict(result), []
    files = _read_files(folder)
    builds, problems = [], list[str]()
    for number, build in enumerate(result.get("builds") or [result], 1):
        name = f"outputs-{number}.npz"
        try:
            outputs = _read_npz(out / name)
            found = _measure(outputs, files)
            told = build.get("measurements", {})
            problems += _otherwise(told, found, number)
            builds.append({**build, "measurements": {**told, **found}})
        except Exception as error:  # noqa: BLE001 - it may hold anything; whatever it is, it is told
            trouble = f"{facts.SCRIPT} left nothing that can be measured: engine {number}, {name}: {error}"
            return {**result, "ended": Cause.PROBE_FAILED.value, "detail": trouble, "builds": []}, [trouble]
    changed = {**result, "measurements": builds[0]["measurements"]}
    if result.get("builds"):
        changed["builds"] = builds
    return changed, problems


def _measure(outputs: dict[str, Any], files: Files) -> dict[str, Any]:
    from trtprobe.cell import measure_all

    return measure_all(outputs, files)  # type: ignore[arg-type]  # what it reads of a case's files


def _read_files(folder: Path) -> Files:
    defects: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in _read_there(folder / facts.DEFECTS).items():
        defect, _, output = name.partition("/")
        defects.setdefault(defect, {})[output] = array
    return Files(reference=_read_there(folder / facts.REFERENCE), defects=defects)


def _read_there(file: Path) -> dict[str, NDArray[Any]]:
    return _read_npz(file) if file.is_file() else {}


def _read_npz(file: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    if file.is_symlink() or not file.is_file():
        raise FileNotFoundError("it is not there")
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _otherwise(told: Mapping[str, Any], found: Mapping[str, Any], number: int) -> list[str]:
    """Return the outputs whose error the script tells otherwise than it is."""
    said, problems = told.get("outputs", {}), []
    for name, values in found["outputs"].items():
        here = float(values.get("rel_l2", 0))
        there = float(said.get(name, {}).get("rel_l2", math.nan if "rel_l2" in values else 0))
        same = here == there or (math.isnan(here) and math.isnan(there))
        if not same and not abs(here - there) <= LIKE * max(here, there):
            problems.append(
                f"engine {number}: {facts.SCRIPT} says {name}: relative L2 error {there:.6g}, and its "
                f"outputs have {here:.6g}"
            )
    return problems
