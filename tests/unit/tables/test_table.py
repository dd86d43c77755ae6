"""The words, the marks, and how entries are grouped and counted."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    H200,
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)
from goldenfile import check_golden

from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.words import cell_text, legend
from trtmatrix.suite.model import Cause, Evidence, Exclusion, Gpu
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.remarks import find_contradicted
from trtmatrix.tables.render_html import render_html
from trtmatrix.tables.render_text import render_text
from trtmatrix.tables.summary import count_products, headline
from trtmatrix.tables.table import make_tables
from trtmatrix.upgrade.findings import Entries, make_case_line

FAILS_AT_10_7 = make_repro(make_case(), expectations=(make_expectation(),))
MISSING = Exclusion.IMAGE_NOT_PULLED


CONTROL = make_control()
FLAG = make_cell(case=make_case(params={"precision": "fp16-flag"}, limits={}))
NOISE = {"key": "k", "precision": "fp16-flag", "outputs": {"y": {"tf32": 1e-4, "fp16": 4e-4}}}
MARKS: list[tuple[Entry | None, str]] = [
    (make_entry(value=175.2), "PASS¹ 175"),
    (make_entry(value=175.2, others=(175, 175)), "PASS 175"),
    (make_entry(value=1373.4), "FAIL¹! 1373"),
    (make_entry(value=1373.4, others=(175, 176, 175)), "FLAKY! 1/4"),
    (make_entry(make_cell(version="onnxruntime-1.31.1"), 0.17), "PASS 0.17"),
    (make_entry(FLAG, 208, rel_l2=1e-4, noise=NOISE), "PASS¹ tf32 208"),
    (make_entry(make_cell(case=make_case(limits={}))), "INVALID 175"),
    (make_entry(make_cell(FAILS_AT_10_7), 1373.4), "FAIL¹ 1373"),
    (make_entry(make_cell(FAILS_AT_10_7), 175.0), "PASS¹! 175"),
    (make_entry(make_cell(case=CONTROL), 175.0), "PASS¹! 175"),
    (make_entry(evidence=Evidence.RECORDED), "[PASS¹ 175]"),
    (make_entry(value=float("nan"), evidence=Evidence.RECORDED), "[FAIL¹! NaN]"),
    (make_entry(ended=Cause.TIME_OUT.value), "TIME-OUT"),
    (make_entry(ended="built"), "BUILT"),
    (make_reported(make_cell(FAILS_AT_10_7)), "(FAIL)"),
    (make_unknown(), "·"),
    (make_unknown(excluded=Exclusion.UNSUPPORTED_GPU), "–"),
    (None, ""),
]


@pytest.mark.parametrize(("entry", "text"), MARKS, ids=[text or "blank" for _, text in MARKS])
def test_a_cell_shows_its_evidence(entry: Entry | None, text: str) -> None:
    assert cell_text(entry) == text


def test_the_legend_lists_only_what_occurs() -> None:
    assert legend([make_entry(others=(175,))]) == [
        ("plain", "measured here"),
        ("PASS", "right, as far as the precision allows"),
    ]
    assert ("¹", "1 build") in legend([make_entry()])
    fits = [make_entry(FLAG, rel_l2=error, noise=NOISE) for error in (1e-4, 4e-4)]
    assert ("fp16, tf32", "the precision that the outputs show") in legend(fits)
    assert legend([make_unknown()]) == [("·", "no evidence")]
    assert legend([]) == []
    assert legend([make_entry(ended="crashed")]) == [("plain", "measured here")]


def test_one_table_for_each_gpu_and_a_last_one_for_the_cpu() -> None:
    l4 = Gpu(slug="l4", name="L4", compute="8.9")
    cells = [make_cell(version=name, gpu=gpu) for name, gpu in (
        ("onnxruntime-1.31.1", None), ("10.7.0", H200), ("10.7.0", l4), ("tensorrt-rtx-1.4", None),
    )]  # fmt: skip
    assert [table.title for table in make_tables([make_entry(cell) for cell in cells])] == [
        "TensorRT: NVIDIA H200 · compute capability 9.0 · driver 580.159",
        "TensorRT: L4 · compute capability 8.9",
        "CPU: graphs checked (onnxruntime), parsed and built (tensorrt-rtx)",
    ]


def test_a_headline_says_why_cells_were_not_run() -> None:
    cells = [make_cell(case=make_case(f"c{i}")) for i in range(9)]
    entries = [make_entry(cells[0]), make_entry(cells[1], executed=False)]
    entries += [make_entry(cells[2], ended="crashed"), make_entry(cells[3], ended="built")]
    entries += [make_entry(cells[4], evidence=Evidence.RECORDED)]
    entries += [make_unknown(cell, MISSING, str(cell.id)) for cell in cells[5:7]]
    why = "no Torch-TensorRT in the image"
    entries += [make_unknown(cells[7], Exclusion.COMPONENT_MISSING, why), make_unknown(cells[8])]
    (counts,) = count_products(entries)
    assert headline(counts) == (
        "2 TensorRT cells measured, 1 parsed and built, 1 without a verdict, 1 recorded elsewhere "
        "or before a change, 4 not run: 2 image not pulled (doctor says how), "
        "1 no Torch-TensorRT in the image, 1 not tried yet"
    )


TWIN = Twin(
    measure="apart", label="sum of |a - b|", cases=("sdpa-*",), source="thread",
    reported={"10.7.0": 1373.3945, "10.8.0": 0.2232},
)  # fmt: skip
TWINS = make_repro(make_case("explicit"), make_case("sdpa-a"), make_case("sdpa-b"), twins=(TWIN,))


def twin_rows(*entries: Entry) -> list[tuple[str, tuple[str, ...]]]:
    ((section,),) = [table.sections for table in make_tables(entries)]
    return [(row.label, row.texts) for row in section.twins]


def twin_entry(case: int, version: str, apart: float | None = None, **more: object) -> Entry:
    scalars = {} if apart is None else {"apart": apart}
    return make_entry(make_cell(TWINS, TWINS.cases[case], version), scalars=scalars, **more)  # type: ignore[arg-type]  # whatever make_entry takes


def test_a_finding_s_own_figure_stands_below_its_rows_beside_what_was_reported() -> None:
    entries = [
        twin_entry(0, "10.6.0", 9.0), twin_entry(1, "10.6.0", 0.31),
        twin_entry(1, "10.7.0", 1373.4, evidence=Evidence.RECORDED), twin_entry(1, "10.8.0"),
        twin_entry(2, "10.8.0", 0.5),
    ]  # fmt: skip
    assert twin_rows(*entries) == [
        ("= sum of |a - b|: sdpa-a", ("0.31", "[1373.4] (1373.39)", "(0.2232)")),
        ("= sum of |a - b|: sdpa-b", ("", "", "0.5")),
    ]


def test_contradicted_facts_are_told_once_and_only_of_what_was_measured() -> None:
    version = make_version("10.7.0", torch="2.6.0a0")
    cells = [make_cell(case=make_case(name), version=version) for name in "abc"]
    seen = {"torch": "2.7.1"}
    entries = [make_entry(cell, observed=seen) for cell in cells[:2]]
    assert find_contradicted(entries) == ("10.7.0: torch is 2.7.1, matrix.yaml says 2.6.0a0",)
    assert not find_contradicted([make_entry(cells[2], observed=seen, evidence=Evidence.RECORDED)])


REPRO = make_repro(make_case("sdpa-tf32"), make_case("sdpa-fp16"))
NEW, OLD, SMALL = ("580.159.04", "140 GiB"), ("570.86.15", "140 GiB"), ("580.159.04", "70 GiB, MIG on")


def on(board: tuple[str, str], host: str, *, case: int = 0, version: str = "10.7.0", **more: Any) -> Entry:
    """A cell that was measured on a board of a host."""
    gpu = {
        "name": "NVIDIA H200", "driver": board[0], "variant": board[1], "uuid_sha256": f"{host}-uuid",
        **({"host": host} if host else {}),
    }  # fmt: skip
    return make_entry(make_cell(REPRO, REPRO.cases[case], version), gpu=gpu, **more)


def mixed() -> list[Entry]:
    """Six cells of three kinds of boards on three hosts; one was recorded elsewhere and fails."""
    return [
        on(NEW, "aaaa", version="10.7.0"),
        on(OLD, "cccc", version="10.8.0", value=1373, evidence=Evidence.RECORDED),
        on(NEW, "bbbb", version="10.9.0"),
        on(NEW, "aaaa", case=1, version="10.7.0"),
        on(OLD, "cccc", case=1, version="10.8.0", others=(1373, 175)),
        on(SMALL, "dddd", case=1, version="10.9.0"),
    ]


def test_text() -> None:
    check_golden("boards.txt", render_text(mixed()))


def test_html() -> None:
    page = render_html(mixed(), generated="2026-01-02")
    check_golden("boards.html", page[page.index("<caption>TensorRT") :].partition("</table>")[0])


def test_boards_that_are_alike_are_not_told_of() -> None:
    assert make_tables([on(NEW, "aaaa"), on(NEW, "bbbb", version="10.8.0")])[0].boards == ""


@pytest.mark.parametrize("same", [True, False])
def test_an_upgrade_says_where_both_sides_had_different_drivers(same: bool) -> None:
    entries = [on(NEW, "aaaa"), on(NEW if same else OLD, "bbbb", version="10.8.0")]
    line = make_case_line(REPRO.id, REPRO.cases[0], Entries(entries, NOT_CALIBRATED), "10.7.0", "10.8.0")
    told = line.why.endswith("; measured with driver 580.159.04 before, 570.86.15 after")
    assert told is not same
