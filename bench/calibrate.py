"""Learns the bounds on signatures: the ensemble over 21 seeds of weights and inputs, for every noise key.

``python -m bench.calibrate`` writes src/trtmatrix/calibration.json (about a quarter of an hour on two cores).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy: a process a core
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from bench.groups import Group, read_groups  # noqa: E402
from trtmatrix.authoring.arithmetic import FLOAT64  # noqa: E402
from trtmatrix.judge.noise import SCHEMA  # noqa: E402
from trtmatrix.prepare.noise import emulation_digest, measure_members, other_scales  # noqa: E402

TARGET = Path(__file__).resolve().parent.parent / "src" / "trtmatrix" / "calibration.json"
SEEDS = tuple(range(21))
"""Of the calibration; the benchmark of the verdicts uses others."""

ByMember = Mapping[str, Mapping[str, float]]


def calibrate(group: Group, seeds: Iterable[int] = SEEDS) -> dict[str, Any]:
    """Return the largest |c| and the largest error of each member over the seeds, and the case's noise."""
    sizes = {name: size for name in group.case.defects if (size := defect_sizes(group, name))}
    shown = {name: max(by_output, key=lambda output: by_output[output]) for name, by_output in sizes.items()}
    found = [measure_members(group.emulate_by, group.params, shown, seed) for seed in seeds]
    scales = other_scales(group.loaded, group.case, shown)
    noise = {"precision": group.case.precision, "defects": sizes, "outputs": _largest([e for e, _ in found])}
    code = emulation_digest(group.loaded)
    return {"code": code, "noise": {**noise, **scales}, "envelope": _largest([c for _, c in found])}


def defect_sizes(group: Group, name: str) -> dict[str, float]:
    """Return the relative L2 size of a defect in each output that it changes, on the small part."""
    right, wrong = group.emulate(FLOAT64), group.emulate(FLOAT64, name)
    norms = {output: np.linalg.norm(wrong[output] - y) / np.linalg.norm(y) for output, y in right.items()}
    return {output: float(f"{norm:.4g}") for output, norm in norms.items() if norm}


def _largest(measured: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the largest size of each number, with four digits."""
    return {
        name: {
            member: float(f"{max(abs(each[name].get(member, 0.0)) for each in measured):.4g}")
            for member in members
        }
        for name, members in measured[0].items()
    }


def _one(key: str) -> tuple[str, dict[str, Any]]:
    group = next(group for group in read_groups() if group.key == key)
    return key, calibrate(group)


def is_current(group: Group, entries: Mapping[str, Any]) -> bool:
    """Whether a group's entry was made by the present code and has all its defects."""
    entry = entries.get(group.key, {})
    if entry.get("code") != emulation_digest(group.loaded):
        return False
    return all(name in entry["envelope"] or not defect_sizes(group, name) for name in group.case.defects)


def main() -> int:
    """Calibrate every group, or those whose key contains the word given, and write the file."""
    parser = argparse.ArgumentParser(prog="python -m bench.calibrate", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="keys that contain this; the others stay")
    parser.add_argument(
        "--changed", action="store_true", help="only those whose code or defects changed since"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    groups = read_groups()
    old = json.loads(TARGET.read_text())["cases"] if TARGET.is_file() else {}
    kept = {group.key: old[group.key] for group in groups if group.key in old}
    keys = [
        group.key
        for group in groups
        if args.only in group.key and not (args.changed and is_current(group, kept))
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        done = {}
        for key, entry in pool.map(_one, keys):
            print(key, file=sys.stderr, flush=True)
            done[key] = entry
    data = {"schema": SCHEMA, "seeds": len(SEEDS), "cases": {**kept, **done}}
    TARGET.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
