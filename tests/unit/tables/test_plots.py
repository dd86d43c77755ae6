"""Plots: where points stand, which shape they have, what is said instead of them, and their data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from pagereading import Page, check_ids
from reportparts import ODD
from shown import PATIENT

from trtmatrix.tables.plots import FLOORS, Plot, Point, render_figure

LINES = {f"a/{ODD}": [Point(version="8.6.0", value=1.0, word="PASS 1")]}
PLOT = Plot(name="p", title="Error <over> versions", unit=FLOORS, lines=LINES)


def parse(plot: Plot) -> ET.Element:
    """Read the plot as XML, which is stricter than HTML."""
    return ET.fromstring(drawn(plot))  # noqa: S314 - our own text


def drawn(plot: Plot) -> str:
    return (
        render_figure(plot).partition("\n<svg")[1].strip()
        + render_figure(plot).partition("\n<svg")[2].partition("\n</div>")[0]
    )


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


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


POINTS = st.builds(
    Point,
    version=st.sampled_from(("8.6.0", "9.2.0", "10.0.1.6")),
    value=st.none() | FLOATS,
    word=st.sampled_from(("PASS 1", "(FAIL)", ODD)),
)
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
