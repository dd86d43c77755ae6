"""What an archive tells of a cell: environment, outputs, versions, the nearest good, why not the latest."""

from __future__ import annotations

import math
from typing import Any

import pytest
from builders import (
    make_case,
    make_cell,
    make_entry,
    make_expectation,
    make_record,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)

from trtmatrix.core.bundle.lines import (
    environment_of,
    failing_build,
    kind_word,
    latest_tried,
    nearest_good,
    on_cpu_words,
    output_lines,
    version_lines,
    why_not_latest,
)
from trtmatrix.core.entry import Entry
from trtmatrix.core.judge import NOT_CALIBRATED
from trtmatrix.core.manner import Kind, Manner
from trtmatrix.core.model import Exclusion, Verdict

GOOD, BAD = 175.0, 1373.0


def row(*values: float | None) -> list[Entry]:
    """Entries of 10.0.0, 10.1.0 and so on: a sum of errors each, None where nothing is known."""
    repro = make_repro()
    cells = [make_cell(repro, version=f"10.{minor}.0") for minor in range(len(values))]
    return [
        make_unknown(cell) if value is None else make_entry(cell, value)
        for cell, value in zip(cells, values, strict=True)
    ]


def version_of(entry: Entry | None) -> str:
    return entry.cell.version.name if entry else ""


@pytest.mark.parametrize(
    ("values", "this", "good"),
    [
        ((GOOD, BAD), 1, "10.0.0"),
        ((GOOD, BAD, BAD, BAD, GOOD), 2, "10.0.0"),  # equally near: the older
        ((GOOD, BAD, BAD, GOOD), 2, "10.3.0"),
        ((BAD, BAD), 0, ""),
        ((None, BAD, None), 1, ""),
    ],
)
def test_the_nearest_version_that_passes_is_found(
    values: tuple[float | None, ...], this: int, good: str
) -> None:
    entries = row(*values)
    assert version_of(nearest_good(entries, entries[this])) == good


def test_what_is_only_reported_to_be_good_is_not_the_nearest_good() -> None:
    repro = make_repro(expectations=(make_expectation(Verdict.PASS, "==10.0.0"),))
    entries = [
        make_reported(make_cell(repro, version="10.0.0"), Verdict.PASS),
        make_entry(make_cell(repro), BAD),
    ]
    assert entries[0].outcome is not None
    assert entries[0].outcome.verdict is Verdict.PASS
    assert nearest_good(entries, entries[1]) is None


def test_versions_without_evidence_are_not_listed_and_this_one_is_marked() -> None:
    entries = row(GOOD, None, BAD)
    lines = version_lines(entries, entries[2])
    assert [(line.version, line.verdict, line.is_this) for line in lines] == [
        ("10.0.0", Verdict.PASS, False), ("10.2.0", Verdict.FAIL, True),
    ]  # fmt: skip
    assert lines[0].figure == "175"


def test_a_reported_version_names_its_source() -> None:
    repro = make_repro(expectations=(make_expectation(Verdict.FAIL, "==10.7.0"),))
    (line,) = version_lines([make_reported(make_cell(repro))], make_entry())
    assert line.source.startswith("https://")
    assert line.image == ""


def test_the_image_is_named_with_the_digest_that_ran() -> None:
    digests = {"image": "sha256:abc", "runtime": "container"}
    entry = make_entry(digests=digests)
    assert version_lines([entry], entry)[0].image == "example.org/tensorrt:10.7.0 sha256:abc"
    outside = make_entry(
        make_cell(version="onnxruntime-1.31.1"), digests={"image": "1f", "runtime": "wheels"}
    )
    assert version_lines([outside], outside)[0].image == ""


def test_the_latest_that_was_run_is_told_and_why_newer_ones_were_not() -> None:
    entries = [*row(GOOD, BAD), make_unknown(make_cell(version="11.0.0"), Exclusion.NO_GPU, "no GPU")]
    assert version_of(latest_tried(entries)) == "10.1.0"
    words = why_not_latest(entries, "11.4.0")
    assert "11.0.0 was not run: no GPU" in words
    assert "11.4.0 is the newest release that is known of" in words
    assert why_not_latest(entries[:2], "") == ""
    assert why_not_latest(entries[:2], "10.1.0") == ""
    assert latest_tried(row(None)) is None


def test_the_environment_is_the_records() -> None:
    record = make_record(
        make_cell(), observed={"library": "10.7.0", "cuda": None, "python": "3.12.3"},
        gpu={"name": "NVIDIA H200", "variant": "140 GiB, MIG on", "driver": "580.1",
             "clocks": {"sm_mhz": 345, "power_limit_w": 700.0}},
        engine={"driver_cuda": "13.0", "clocks": {"sm_mhz": 1980}}, environment={"NVIDIA_TF32_OVERRIDE": "1"},
    )  # fmt: skip
    found = environment_of(record, make_version("10.7.0", cuda="12.6.3"), "Ubuntu 24.04")
    assert (found.library, found.cuda, found.os, found.python) == (
        "10.7.0",
        "12.6.3",
        "Ubuntu 24.04",
        "3.12.3",
    )
    assert (found.gpu, found.gpu_count, found.variant, found.mig) == ("NVIDIA H200", 1, "140 GiB", "MIG on")
    assert (found.driver, found.driver_cuda) == ("580.1", "13.0")
    assert found.clocks == {"sm_mhz": 1980, "power_limit_w": 700.0}, "under load"
    assert found.variables == {"NVIDIA_TF32_OVERRIDE": "1"}


def test_what_a_record_does_not_know_is_empty() -> None:
    found = environment_of(make_record(make_cell()), make_version(), "")
    assert (found.gpu, found.gpu_count, found.driver, found.cuda, found.os) == ("", 0, "", "", "")


def test_the_first_engine_that_fails_is_the_one_that_is_shown() -> None:
    entry = make_entry(value=GOOD, others=(BAD, BAD))
    record = entry.record
    assert record is not None
    assert failing_build(record, entry, NOT_CALIBRATED) == 1
    right = make_entry(value=GOOD)
    assert right.record is not None
    assert failing_build(right.record, right, NOT_CALIBRATED) == 0


def test_an_output_has_its_layout_its_error_and_its_worst_element() -> None:
    noise: dict[str, Any] = {
        "key": "k", "precision": "fp32", "outputs": {"y": {"fp32": 1e-6}}, "defects": {}, "c": {},
    }  # fmt: skip
    case = make_case(params={"precision": "fp32"}, limits={})
    entry = make_entry(make_cell(make_repro(case)), BAD, rel_l2=5e-6, noise=noise)
    assert entry.record is not None
    (line,) = output_lines(entry.record, entry, 0, {"y": ("float32", (3, 4))}, NOT_CALIBRATED)
    assert (line.name, line.dtype, line.shape, line.rel_l2) == ("y", "float32", (3, 4), 5e-6)
    assert line.floors is not None
    assert math.isclose(line.floors, 5.0)
    (bare,) = output_lines(entry.record, entry, 0, {}, NOT_CALIBRATED)
    assert (bare.dtype, bare.shape) == ("", ())


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_failure_has_a_word_for_the_title(kind: Kind) -> None:
    assert kind_word(Manner(kind=kind, what="build failed"))[0].isupper()


@pytest.mark.parametrize(
    ("cause", "word"),
    [("build failed", "Build"), ("crashed", "Crash"), ("time-out", "Time-out"), ("?", "Run")],
)
def test_how_it_ended_is_the_word(cause: str, word: str) -> None:
    assert kind_word(Manner(kind=Kind.ENDED, what=cause)) == word


def test_what_onnx_runtime_says_of_the_graph_is_told() -> None:
    cell = make_cell(version="onnxruntime-1.31.1")
    words = on_cpu_words(
        [make_entry(cell, GOOD, observed={"library": "1.31.1"}), make_entry(), make_unknown(cell)]
    )
    assert words == "ONNX Runtime 1.31.1 on the CPU: PASS, 175 (sum of |y - float64|)"
    assert on_cpu_words([]) == ""
