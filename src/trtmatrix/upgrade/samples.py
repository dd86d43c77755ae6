"""The user's own model in words and figures: reference, floor, each output's error over samples. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtmatrix.common.words import short
from trtmatrix.judge.calibration import Calibration
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.judge import subject_of
from trtmatrix.judge.noise import NO_FLOOR, read_noise
from trtmatrix.judge.numbers import computed_in, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.suite.model import Evidence, Product
from trtmatrix.upgrade.report import SampleFigure

FLOORS, RELATIVE = "floors", "relative L2 error"
PRECISIONS: Mapping[str, str] = {
    "fp32": "float32", "tf32": "TF32", "fp16": "float16", "bf16": "bfloat16",
    "fp16-flag": "float32, TF32 or float16",
}  # fmt: skip
"""How a floor's precision is called."""


def reference_words(noise: Mapping[str, Any]) -> str:
    """Say who computed the reference, how exactly, and with which error of its own; or why nobody did."""
    told = noise.get("reference", {})
    if not told:
        return "not computed yet: nothing has run"
    if not told.get("by"):
        return f"none: {told.get('why_not') or 'it could not be computed'}"
    errors = [float(error) for error in told.get("own_error", {}).values()]
    words = f"{told['by']}, {told['precision']}"
    if not errors:
        return f"{words}; its own error is not known"
    meaning = told.get("own_error_means", "")
    return f"{words}; relative L2 error of its own at most {short(max(errors))} ({meaning})"


def floor_words(
    noise: Mapping[str, Any], outputs: Mapping[str, str], product: Product = Product.TENSORRT
) -> str:
    """Say what the noise floor of a product comes from and how large it is, or that there is none.

    ``outputs``: names in records → those of the graph.
    """
    known = read_noise(noise)
    if known is None:
        return NO_FLOOR
    precision = computed_in(known.precision, product)
    floors = {name: floor for name in known.outputs if (floor := known.floor(name, precision)) is not None}
    kinds, worst = PRECISIONS.get(precision, precision), max(floors.values(), default=0.0)
    words = f"the same graph computed in {kinds} on the CPU: relative L2 error up to {short(worst)}"
    lacking = sorted(set(outputs) - {split_name(name)[0] for name in floors})
    return f"{words}; none of {', '.join(outputs[name] for name in lacking)}" if lacking else words


def split_name(name: str) -> tuple[str, int]:
    """Return an output's name in records without its sample, and the sample's number."""
    mark = re.search(r"\.s(\d+)$", name)
    return (name[: mark.start()], int(mark.group(1))) if mark else (name, 0)


def make_samples(
    entries: Iterable[Entry], outputs: Mapping[str, str], calibration: Calibration
) -> tuple[SampleFigure, ...]:
    """Return each output's error at each version over all samples: the worst of all engines of each.

    ``outputs``: names in records → those of the graph. In noise floors where every sample has one.
    """
    figures = []
    for entry in entries:
        if entry.evidence not in {Evidence.MEASURED, Evidence.RECORDED}:
            continue
        floors, errors = _read_errors(entry, calibration)
        for file, name in outputs.items():
            by_sample, unit = errors.get(file, {}), RELATIVE
            if by_sample and floors.get(file, {}).keys() == by_sample.keys():
                by_sample, unit = floors[file], FLOORS
            if not by_sample:
                continue
            ordered = sorted(by_sample.values())
            worst = max(by_sample, key=lambda sample: (by_sample[sample], -sample))
            figure = SampleFigure(
                output=name, version=entry.cell.version.name, unit=unit, median=quantile(ordered, 0.5),
                p90=quantile(ordered, 0.9), worst=by_sample[worst], worst_sample=worst, samples=len(ordered),
            )  # fmt: skip
            figures.append(figure)
    return tuple(figures)


BySample = dict[str, dict[int, float]]


def _read_errors(entry: Entry, calibration: Calibration) -> tuple[BySample, BySample]:
    """Return output → sample → the worst error over all engines, in noise floors and as relative L2 error.

    What is NaN where it must not be is infinitely wrong.
    """
    floors: BySample = {}
    errors: BySample = {}
    for record in entry.records:
        if record.ended != RAN:
            continue
        subject = subject_of(record, entry.cell.case, entry.cell.repro, calibration)
        for build in record.builds:
            relative = {name: float(v["rel_l2"]) for name, v in build.outputs.items() if "rel_l2" in v}
            in_floors = read_floors(build, subject)
            for found, values in ((errors, relative), (floors, in_floors)):
                for name, value in values.items():
                    spoilt = bool(build.outputs[name].get("nan_unexpected")) or math.isnan(value)
                    output, sample = split_name(name)
                    known = found.setdefault(output, {})
                    known[sample] = max(known.get(sample, 0.0), math.inf if spoilt else value)
    return floors, errors


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted numbers: the smallest that at least this share of them does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
