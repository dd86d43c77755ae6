"""The words, the marks, and how entries are grouped and counted."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_case, make_cell, make_entry, make_repro, make_version
from goldenfile import check_golden

from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Evidence
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.remarks import find_contradicted
from trtmatrix.tables.render_html import render_html
from trtmatrix.tables.render_text import render_text
from trtmatrix.tables.table import make_tables
from trtmatrix.upgrade.findings import Entries, make_case_line

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
