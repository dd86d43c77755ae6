"""What an archive tells of a cell, taken from its records and its row of the table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trtmatrix.core.bundle.facts import Environment, OutputLine, VersionLine
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.entry import Entry
from trtmatrix.core.judge import subject_of
from trtmatrix.core.manner import Kind, Manner
from trtmatrix.core.model import Cause, Evidence, Product, Verdict
from trtmatrix.core.numbers import judge_build, read_floors
from trtmatrix.core.record import Record
from trtmatrix.core.words import PRODUCT_NAMES, full_words

Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Output → dtype and shape."""

_KINDS = {
    Kind.SHAPE: "Output shape",
    Kind.NOT_FINITE: "NaN",
    Kind.ZEROS: "All-zero output",
    Kind.DEFECT: "Accuracy",
    Kind.LIMIT: "Correctness",
    Kind.REMARK: "Fusion",
    Kind.WRONG: "Accuracy",
}

_ENDS = {Cause.BUILD_FAILED.value: "Build", Cause.CRASHED.value: "Crash", Cause.TIME_OUT.value: "Time-out"}


def kind_word(manner: Manner) -> str:
    """Return the word for a failure that stands in an issue's title."""
    if manner.kind is Kind.ENDED:
        return _ENDS.get(manner.what, "Run")
    return _KINDS[manner.kind]


def environment_of(record: Record, version: Version, os: str) -> Environment:
    """Return what ran a cell, as its record has it; ``os``: the image's, which no record has.

    Where nothing in the image says its CUDA it is what the version is pinned for. Clocks are those under
    load, where the run has seen them (idle ones say nothing of it), with the power limit.
    """
    seen, gpu, data = record.observed, record.gpu, record.data
    engine = (data.get("builds") or [data])[0].get("engine") or {}
    variant = str(gpu.get("variant") or "")
    memory, _, mig = variant.partition(", ")
    return Environment(
        library=_text(seen, "library"), bindings=_text(seen, "bindings"), gpu=_text(gpu, "name"),
        gpu_count=1 if gpu.get("name") else 0, compute=_text(gpu, "compute"), variant=memory, mig=mig,
        driver=_text(gpu, "driver") or _text(seen, "driver"), driver_cuda=_text(engine, "driver_cuda"),
        libcuda=_text(seen, "libcuda"), clocks={**(gpu.get("clocks") or {}), **(engine.get("clocks") or {})},
        cuda=_text(seen, "cuda") or (version.cuda.value if version.cuda else ""),
        cudnn=_text(seen, "cudnn"), os=os, machine=_text(seen, "machine"), python=_text(seen, "python"),
        numpy=_text(seen, "numpy"), torch=_text(seen, "torch"), torch_tensorrt=_text(seen, "torch_tensorrt"),
        variables={name: str(value) for name, value in (data.get("environment") or {}).items()},
    )  # fmt: skip


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return "" if value is None else str(value)


def failing_build(record: Record, entry: Entry, calibration: Calibration) -> int:
    """Return the number of the first engine of a record that fails by itself; 0 where none does."""
    cell = entry.cell
    subject = subject_of(record, cell.case, cell.repro, calibration)
    verdicts = [judge_build(build, subject).verdict for build in record.builds]
    return verdicts.index(Verdict.FAIL) if Verdict.FAIL in verdicts else 0


def output_lines(
    record: Record, entry: Entry, build: int, layout: Layout, calibration: Calibration
) -> tuple[OutputLine, ...]:
    """Return how each output of one engine of a record stands to its reference."""
    cell = entry.cell
    subject = subject_of(record, cell.case, cell.repro, calibration)
    measured = record.builds[build]
    floors = read_floors(measured, subject, subject.noise) if subject.noise else {}
    return tuple(
        OutputLine(
            name=name, dtype=layout.get(name, ("", ()))[0], shape=layout.get(name, ("", ()))[1],
            rel_l2=values.get("rel_l2"), floors=floors.get(name), max_abs=values.get("max_abs"),
            nan=int(values.get("nan", 0)) + int(values.get("inf", 0)), worst_at=values.get("worst_at"),
            worst_y=values.get("worst_y"), worst_r=values.get("worst_r"),
        )
        for name, values in measured.outputs.items()
    )  # fmt: skip


def version_lines(row: Sequence[Entry], this: Entry) -> tuple[VersionLine, ...]:
    """Return what is known of the case at each version, oldest first, where anything is."""
    return tuple(_version_line(entry, entry is this) for entry in row if entry.evidence is not Evidence.NONE)


def _version_line(entry: Entry, is_this: bool) -> VersionLine:
    version, record, outcome = entry.cell.version, entry.record, entry.outcome
    source = entry.expectation.source if entry.evidence is Evidence.REPORTED and entry.expectation else ""
    return VersionLine(
        version=version.name, verdict=outcome.verdict if outcome else None,
        cause=outcome.cause.value if outcome and outcome.cause else "",
        reason=outcome.reason if outcome else "", builds=outcome.builds if outcome else 0,
        figure=entry.figure, evidence=entry.evidence, source=source, is_this=is_this,
        library=_text(record.observed, "library") if record else version.library.value,
        driver=_text(record.gpu, "driver") if record else "",
        image=_image_text(entry, record) if record else "",
    )  # fmt: skip


def _image_text(entry: Entry, record: Record) -> str:
    """Return the image that a record was made in, by its name and its own digest; nothing for wheels."""
    origin, digest = entry.cell.version.origin, record.digests.get("image", "")
    if not isinstance(origin, ImageOrigin) or record.digests.get("runtime") != "container":
        return ""
    return f"{origin.image} {digest}".strip()


def nearest_good(row: Sequence[Entry], this: Entry) -> Entry | None:
    """Return the entry of the nearest version that passes with a record; of two equally near the older."""
    here = row.index(this)
    good = [
        (abs(place - here), place, entry) for place, entry in enumerate(row)
        if entry.record is not None and entry.outcome is not None and entry.outcome.verdict is Verdict.PASS
    ]  # fmt: skip
    return min(good, key=lambda item: item[:2])[2] if good else None


def latest_tried(row: Sequence[Entry]) -> Entry | None:
    """Return the entry of the newest version that was run."""
    tried = [entry for entry in row if entry.record is not None]
    return tried[-1] if tried else None


def why_not_latest(row: Sequence[Entry], newest_known: str) -> str:
    """Say why the newest known version was not run, where it was not; it may be in no column."""
    newest, tried = row[-1], latest_tried(row)
    words = []
    if newest is not tried:
        excluded = newest.excluded
        why = (excluded.detail or excluded.why.value) if excluded else "nobody ran it"
        words.append(f"{newest.cell.version.name} was not run: {why} (on the host that wrote this)")
    if newest_known and newest_known != newest.cell.version.name:
        words.append(f"{newest_known} is the newest release that is known of, and no image of it is pinned")
    return "; ".join(words)


def on_cpu_words(others: Sequence[Entry]) -> str:
    """Return what ONNX Runtime makes of the same graph; nothing where it did not run it."""
    told = [
        f"{PRODUCT_NAMES[Product.ONNXRUNTIME]} {_text(entry.record.observed, 'library')} on the CPU: "
        f"{full_words(entry.outcome)}, {entry.figure or '?'} ({entry.cell.repro.figure.label})"
        for entry in others
        if entry.cell.version.product is Product.ONNXRUNTIME and entry.outcome and entry.record
    ]
    return "; ".join(told)
