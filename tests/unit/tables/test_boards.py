"""Tables whose cells were measured on different boards: told above them, marked in them."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden

from trtmatrix.judge.calibration import NOT_CALIBRATED
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Evidence
from trtmatrix.tables.render_data import render_json
from trtmatrix.tables.render_html import render_html
from trtmatrix.tables.render_text import render_text
from trtmatrix.tables.table import make_tables
from trtmatrix.upgrade.findings import Entries, make_case_line

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


@pytest.mark.parametrize("odd", [{"a": [1]}, ["x"], 3, None, "\x1b[2J"])
def test_facts_of_any_shape_do_no_harm(odd: object) -> None:
    gpu = {"name": "NVIDIA H200", "driver": odd, "variant": odd, "host": odd, "uuid_sha256": odd}
    entry = make_entry(make_cell(REPRO), gpu=gpu)
    assert make_tables([entry, mixed()[0]])[0].boards.isprintable()
    assert render_json([entry], generated="now")
    assert render_html([entry], generated="now")
