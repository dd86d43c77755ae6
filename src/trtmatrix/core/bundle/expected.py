"""``expected.json``: what an archive's script is told of its case, and by which numbers it judges. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.factors import (
    ALLOWED,
    CLOSER_BOUND,
    FAIL_FACTOR,
    FIT,
    NAMED,
    PASS_FACTOR,
    POSSIBLE,
    SIGNATURE_FLOORS,
)
from trtmatrix.core.garbage import GARBAGE
from trtmatrix.core.judge import subject_of
from trtmatrix.core.manner import Manner
from trtmatrix.core.model import Control, Product
from trtmatrix.core.noise import Noise, precision_of
from trtmatrix.core.numbers import Subject, read_signs, says_nothing
from trtmatrix.core.record import RAN, Measured, Record, write_number
from trtmatrix.standalone.judging import FAIL, judge_build
from trtmatrix.standalone.telling import figures_of

SCHEMA = 1
NOTHING = Measured(outputs={}, scalars={})


def make_expected(
    entry: Entry, calibration: Calibration, files: Mapping[str, str], manner: Manner | None = None
) -> dict[str, Any]:
    """Return what ``expected.json`` holds, as strict JSON can hold it.

    ``files``: the SHA-256 of each file that the script reads, by its name in the archive. ``manner``: in
    which way the cell fails, for its words. ``ValueError`` where the cell has no record or no verdict.

    ``rules``: what :func:`trtmatrix.standalone.judging.judge_build` goes by. ``fails``: in which ways the
    recorded engines fail, as it says them; of garbage, any of its ways. ``figures``: the least and the
    largest of each over these engines.
    """
    record, outcome = entry.record, entry.outcome
    if record is None or outcome is None:
        raise ValueError(f"{entry.cell.id} has no record")
    case, repro = entry.cell.case, entry.cell.repro
    rules = make_rules(subject_of(record, case, repro, calibration))
    ran = [one for one in entry.records or (record,) if one.ended == RAN]
    builds = [as_found(build) for one in ran for build in one.builds]
    ways = {way for verdict, way, _ in (judge_build(build, rules) for build in builds) if verdict == FAIL}
    if record.ended in rules["bug_is"]:
        ways.add(f"ended: {record.ended}")
    if manner is not None and manner.unsteady:
        ways |= {kind.value for kind in GARBAGE}
    return {
        "schema": SCHEMA, "cell": str(entry.cell.id), "product": record.product.value,
        "title": f"{repro.title} ({repro.upstream})", "repro_file": f"{repro.id.replace('-', '_')}.py",
        "params": {**case.params, **case.tolerance}, "precision": case.precision, "needs": sorted(case.needs),
        "builds": case.builds, "processes": case.processes, "seconds": case.seconds,
        "verdict": outcome.verdict.value, "reason": outcome.reason, "ended": record.ended,
        "manner": _manner(manner), "fails": sorted(ways), "rules": rules,
        "engines": sum(one.engines for one in ran), "figures": _ranges(builds, rules),
        "environment": _environment(record), "files": dict(files),
    }  # fmt: skip


def make_rules(subject: Subject) -> dict[str, Any]:
    """Return the numbers by which the script judges one engine: the judge's own, for this case."""
    case, noise = subject.case, subject.noise
    on_tensorrt = subject.product is Product.TENSORRT
    signs = list(read_signs(NOTHING, subject, noise)) if noise else []
    outputs = dict(_floors(subject, noise)) if noise else {}
    defects = [
        {
            "name": sign.name, "output": sign.output, "usable": sign.usable,
            "bound": write_number(sign.bound), "hidden": sign.size < SIGNATURE_FLOORS,
        }
        for sign in signs
    ]  # fmt: skip
    return {
        "pass": PASS_FACTOR, "fail": FAIL_FACTOR, "closer": CLOSER_BOUND, "near": FIT, "named": list(NAMED),
        "limits": dict(case.limits), "tolerance": dict(case.tolerance),
        "outputs": outputs, "defects": defects,
        "must_give": sorted(outputs) if on_tensorrt else [],
        "remarks": sorted(case.remarks) if on_tensorrt else [],
        "exact_passes": case.keep, "says_nothing": says_nothing(subject, noise, signs) if noise else "",
        "put_in": case.defect if case.control is Control.NEGATIVE else "",
        "bug_is": sorted(cause.value for cause in case.bug_is),
    }  # fmt: skip


def _floors(subject: Subject, noise: Noise) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each output's noise floor, and errors above it that would be explained."""
    for name, members in noise.outputs.items():
        explained = [
            float(error) for member, error in members.items()
            if member in POSSIBLE and precision_of(member) in ALLOWED.get(subject.precision, ())
        ]  # fmt: skip
        yield name, {"floor": noise.floor(name, subject.precision), "explained": explained}


def as_found(build: Measured) -> dict[str, Any]:
    """Return what was measured of an engine as the script has it."""
    return {
        "outputs": {name: dict(values) for name, values in build.outputs.items()},
        "scalars": dict(build.scalars), "remark": build.remark,
        "signatures": {
            defect: {output: dict(values) for output, values in by_output.items()}
            for defect, by_output in build.signatures.items()
        },
    }  # fmt: skip


def _manner(manner: Manner | None) -> dict[str, Any]:
    if manner is None:
        return {}
    return {
        "kind": manner.kind.value, "what": manner.what, "outputs": list(manner.outputs),
        "sizes": [write_number(size) for size in manner.sizes], "message": manner.message,
        "words": manner.words,
    }  # fmt: skip


def _ranges(builds: list[dict[str, Any]], rules: Mapping[str, Any]) -> dict[str, list[float | str]]:
    """Return the least and the largest of each figure; NaN, which is worse than all, is largest."""
    seen: dict[str, list[float]] = {}
    for build in builds:
        for name, value in figures_of(build, dict(rules)).items():
            seen.setdefault(name, []).append(value)
    return {name: list(_ends(values)) for name, values in seen.items()}


def _ends(values: list[float]) -> Iterator[float | str]:
    numbers = [value for value in values if not math.isnan(value)]
    nan = [value for value in values if math.isnan(value)]
    yield write_number(min(numbers or nan))
    yield write_number(max(nan or numbers, default=0.0))


def _environment(record: Record) -> dict[str, Any]:
    """Return where it was recorded, as far as a reader compares it with what he has."""
    seen = {name: record.observed.get(name) for name in ("library", "bindings", "driver", "cuda", "python")}
    return {**seen, "gpu": record.data.get("engine", {}).get("gpu") or record.gpu.get("name")}
