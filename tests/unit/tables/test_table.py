"""The words, the marks, and how entries are grouped and counted."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from builders import make_case, make_cell, make_entry, make_repro
from goldenfile import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from pagereading import Page, check_ids
from reports import ODD
from shown import PATIENT

from trtmatrix.judge.entry import Entry
from trtmatrix.judge.noise import NOT_CALIBRATED
from trtmatrix.suite.model import Evidence, Verdict
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.page import (
    FLOORS,
    GLYPHS,
    Plot,
    Point,
    make_style,
    read_template,
    render_figure,
    render_html,
)
from trtmatrix.tables.render_text import render_text
from trtmatrix.tables.table import make_tables
from trtmatrix.upgrade.document import TONES
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import Change, Decision, Weight

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


REPRO = make_repro(make_case("sdpa-tf32"), make_case("sdpa-fp16"))
NEW, OLD, SMALL = ("580.159.04", "140 GiB"), ("570.86.15", "140 GiB"), ("580.159.04", "70 GiB, MIG on")


def on(board: tuple[str, str], host: str, *, case: int = 0, version: str = "10.7.0", **more: Any) -> Entry:
    """A cell that was measured on a board of a host."""
    gpu = {
        "name": "NVIDIA H200", "driver": board[0], "variant": board[1], "uuid_sha256": f"{host}-uuid",
        **({"host": host} if host else {}),
    }  # fmt: skip
    return make_entry(make_cell(REPRO, REPRO.cases[case], version), gpu=gpu, **more)


MIXED = [  # six cells of three kinds of boards on three hosts; one was recorded elsewhere and fails
    on(NEW, "aaaa", version="10.7.0"),
    on(OLD, "cccc", version="10.8.0", value=1373, evidence=Evidence.RECORDED),
    on(NEW, "bbbb", version="10.9.0"),
    on(NEW, "aaaa", case=1, version="10.7.0"),
    on(OLD, "cccc", case=1, version="10.8.0", others=(1373, 175)),
    on(SMALL, "dddd", case=1, version="10.9.0"),
]


def test_kinds_of_boards_are_told() -> None:
    check_golden("boards.txt", render_text(MIXED))
    page = render_html(MIXED, generated="2026-01-02")
    check_golden("boards.html", page[page.index("<caption>TensorRT") :].partition("</table>")[0])


@pytest.mark.parametrize("same", [True, False])
def test_an_upgrade_says_where_both_sides_had_different_drivers(same: bool) -> None:
    entries = [on(NEW, "aaaa"), on(NEW if same else OLD, "bbbb", version="10.8.0")]
    line = make_case_line(REPRO.id, REPRO.cases[0], Entries(entries, NOT_CALIBRATED), "10.7.0", "10.8.0")
    told = line.why.endswith("; measured with driver 580.159.04 before, 570.86.15 after")
    assert told is not same
    assert bool(make_tables(entries)[0].boards) is not same


# Plots: where points stand, which shape they have, what is said instead of them, and their data.


LINES = {f"a/{ODD}": [Point(version="8.6.0", value=1.0, word="PASS 1")]}
PLOT = Plot(name="p", title="Error <over> versions", unit=FLOORS, lines=LINES)


def drawn(plot: Plot) -> str:
    return "<svg" + render_figure(plot).partition("\n<svg")[2].partition("\n</div>")[0]


def parse(plot: Plot) -> ET.Element:
    """Read the plot as XML, which is stricter than HTML."""
    return ET.fromstring(drawn(plot))  # noqa: S314 - our own text


def test_shapes_tell_verdicts_apart() -> None:
    points = tuple(
        Point(version=str(number), value=1.0, word=word)
        for number, word in enumerate(("PASS 1", "[PASS¹ 1]", "(FAIL)", "FLAKY 1/4", ""))
    )
    root = parse(replace(PLOT, lines={"x": points}))
    shapes = [list(group)[1] for group in root.iter("g")]
    assert [shape.attrib["class"] for shape in shapes] == ["good", "good", "bad", "other", "other"]
    root = parse(replace(PLOT, must_fail=frozenset(LINES)))
    assert {list(group)[1].attrib["class"] for group in root.iter("g")} == {"must"}


POINTS = st.builds(
    Point, version=st.sampled_from(("8.6.0", "9.2.0", "10.0.1.6")),
    value=st.none() | st.floats(allow_nan=True, allow_infinity=True),
    word=st.sampled_from(("PASS 1", "(FAIL)", ODD)),
)  # fmt: skip
ANY_LINES = st.dictionaries(st.text(max_size=9) | st.just(ODD), st.lists(POINTS, max_size=4), max_size=12)


@settings(PATIENT, max_examples=30)
@given(ANY_LINES, st.sampled_from((FLOORS, "ms")))
def test_any_plot_is_well_formed(lines: dict[str, list[Point]], unit: str) -> None:
    plot = Plot(name="p", title=ODD, unit=unit, lines=lines)
    if render_figure(plot):
        parse(plot)
        places = re.findall(r' (?:d|cx|cy|x|y|transform)="([^"]*)"', drawn(plot))
        assert not any("nan" in place or "inf" in place for place in places)
    check_ids(Page(render_figure(plot)))


# The pages' colours, of which tests/browser holds texts against their grounds.


COLOURS = read_template("colours.css")
THEMES = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in COLOURS.split("endmacro")[:2]]


def luminance(colour: str) -> float:
    """The relative luminance: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", THEMES, ids=["light", "dark"])
def test_shapes_that_must_be_seen_stand_out(colours: Mapping[str, str]) -> None:
    """By a contrast of 3: https://www.w3.org/TR/WCAG22/#non-text-contrast."""
    for shape, ground in product(
        ("mark-good", "mark-bad", "mark-other", "mark-line", "edge"), ("page", "card")
    ):
        low, high = sorted(luminance(colours[name]) for name in (shape, ground))
        assert (high + 0.05) / (low + 0.05) >= 3, (shape, ground)


def test_both_themes_have_all_colours_and_the_style_no_others() -> None:
    style, (light, dark) = make_style(read_template("matrix.css")), THEMES
    assert light.keys() == dark.keys() == set(re.findall(r"var\(--([a-z-]+)\)", style))
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", style)) == {*light.values(), *dark.values()}


def test_each_word_has_a_tone_and_each_tone_a_sign() -> None:
    assert set(TONES) == {*Decision, *Change, *Weight, *Verdict}
    assert set(TONES.values()) <= set(GLYPHS)
    assert len(set(GLYPHS.values())) == len(GLYPHS)
