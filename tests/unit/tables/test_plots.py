"""Plots: where points stand, which shape they have, what is said instead of them, and their data."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pagereading import Page, check_ids
from reportparts import AFTER, BEFORE, ODD
from shown import PATIENT

from trtmatrix.tables.plots import FLOORS, Plot, Point, render_figure

VERSIONS = ("8.6.0", "9.3.0", "10.0.1.6", "10.4.0", BEFORE, AFTER)


def line(*values: float | None, fails: tuple[str, ...] = ()) -> list[Point]:
    """A line over the versions; what is beyond 8 floors fails, and so do the versions named."""
    points = []
    for version, value in zip(VERSIONS, values, strict=False):
        bad = value is not None and not value < 8
        word = "" if value is None else f"{'FAIL' if bad or version in fails else 'PASS'} {value:g}"
        points.append(Point(version=version, value=value, word=word))
    return points


ERRORS = {
    "sdpa-scale/sdpa-tf32": line(1.34, None, 1.3, 1.3, 7.36, 1.02, fails=(BEFORE,)),
    "sdpa-scale/sdpa-fp16-flag": line(0.915, None, None, 2.0, math.nan, 0.915),
    "gemm-mha-v2/fp16-h3": line(0.97, 0.98, 0.97, 1.1, 0.97, 133.0),
    "own-detector/" + ODD: line(None, None, None, None, 1.3, math.inf),
    "controls/exact": line(0.0, 0.0, 0.0, 0.0, 0.0, 8.6e-5),
}
PLOT = Plot(name="p", title="Error <over> versions", unit=FLOORS, lines=ERRORS)


def parse(plot: Plot) -> ET.Element:
    """Read the plot as XML, which is stricter than HTML."""
    return ET.fromstring(drawn(plot))  # noqa: S314 - our own text


def drawn(plot: Plot) -> str:
    return (
        render_figure(plot).partition("\n<svg")[1].strip()
        + render_figure(plot).partition("\n<svg")[2].partition("\n</div>")[0]
    )


def data(plot: Plot) -> Page:
    return Page("<details" + render_figure(plot).partition("<details")[2].removesuffix("\n</figure>\n"))


def test_shapes_tell_verdicts_apart() -> None:
    points = tuple(
        Point(version=str(number), value=1.0, word=word)
        for number, word in enumerate(("PASS 1", "[PASS¹ 1]", "(FAIL)", "FLAKY 1/4", ""))
    )
    root = parse(replace(PLOT, lines={"x": points}))
    shapes = [list(group)[1] for group in root.iter("g")]
    assert [shape.attrib["class"] for shape in shapes] == ["good", "good", "bad", "other", "other"]
    root = parse(replace(PLOT, must_fail=frozenset(ERRORS)))
    assert {list(group)[1].attrib["class"] for group in root.iter("g")} == {"must"}


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


POINTS = st.builds(
    Point,
    version=st.sampled_from(("8.6.0", "9.2.0", "10.0.1.6")),
    value=st.none() | FLOATS,
    word=st.sampled_from(("PASS 1", "(FAIL)", ODD)),
)
LINES = st.dictionaries(st.text(max_size=9) | st.just(ODD), st.lists(POINTS, max_size=4), max_size=12)


@PATIENT
@given(LINES, st.sampled_from((FLOORS, "ms")))
def test_any_plot_is_well_formed(lines: dict[str, list[Point]], unit: str) -> None:
    plot = Plot(name="p", title=ODD, unit=unit, lines=lines)
    if render_figure(plot):
        parse(plot)
        places = re.findall(r' (?:d|cx|cy|x|y|transform)="([^"]*)"', drawn(plot))
        assert not any("nan" in place or "inf" in place for place in places)
    check_ids(Page(render_figure(plot)))
