"""Plots: where points stand, which shape they have, what is said instead of them, and their data."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagereading import Page, check_ids
from reportparts import AFTER, BEFORE, ODD
from shown import PATIENT

from trtmatrix.tables.plots import (
    FLOORS,
    Plot,
    Point,
    Series,
    make_scale,
    render_figure,
    spread_apart,
)

VERSIONS = ("8.6.0", "9.3.0", "10.0.1.6", "10.4.0", BEFORE, AFTER)


def line(
    label: str, *values: float | None, unit: str = "noise floors", fails: tuple[str, ...] = ()
) -> Series:
    """A line over the versions; what is beyond 8 floors fails, and so do the versions named."""
    points = []
    for version, value in zip(VERSIONS, values, strict=False):
        bad = value is not None and not value < 8
        word = (
            ""
            if unit == "ms" or value is None
            else f"{'FAIL' if bad or version in fails else 'PASS'} {value:g}"
        )
        spread = {"low": value * 0.95, "high": value * 1.2} if unit == "ms" and value is not None else {}
        note = "image not pulled" if value is None else ""
        points.append(Point(version=version, value=value, word=word, note=note, **spread))
    return Series(label=label, unit=unit, points=tuple(points))


ERRORS = (
    line("sdpa-scale/sdpa-tf32", 1.34, None, 1.3, 1.3, 7.36, 1.02, fails=(BEFORE,)),
    line("sdpa-scale/sdpa-fp16-flag", 0.915, None, None, 2.0, math.nan, 0.915),
    line("gemm-mha-v2/fp16-h3", 0.97, 0.98, 0.97, 1.1, 0.97, 133.0),
    line("own-detector/" + ODD, None, None, None, None, 1.3, math.inf),
    line("controls/exact", 0.0, 0.0, 0.0, 0.0, 0.0, 8.6e-5),
)
PLOT = Plot(name="p", title="Error <over> versions", unit=FLOORS, series=ERRORS, marked=frozenset({"10.8.0"}))


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


def heights(plot: Plot) -> dict[str, float]:
    """Return how far down each good point stands, by what is said of it."""
    found = {}
    for group in parse(plot).iter("g"):
        title, shape = list(group)[:2]
        assert title.tag == "title"
        if shape.tag == "circle":
            found[str(title.text)] = float(shape.attrib["cy"])
    return found


def test_larger_errors_stand_higher_and_decades_are_evenly_apart() -> None:
    series = (line("x", 0.1, 1.0, 7.0, 7.9),)
    at = heights(replace(PLOT, series=series))
    tenth, one, seven, eight = at.values()
    assert tenth > one > seven > eight
    ratio = (one - seven) / (tenth - one)
    assert ratio == pytest.approx(math.log10(7), abs=0.01)


def test_shapes_tell_verdicts_apart() -> None:
    points = tuple(
        Point(version=str(number), value=1.0, word=word)
        for number, word in enumerate(("PASS 1", "[PASS¹ 1]", "(FAIL)", "FLAKY 1/4", ""))
    )
    root = parse(replace(PLOT, series=(Series(label="x", unit=FLOORS, points=points),)))
    shapes = [list(group)[1] for group in root.iter("g")]
    assert [shape.attrib["class"] for shape in shapes] == ["good", "good", "bad", "other", "other"]
    root = parse(replace(PLOT, must_fail=frozenset(line.label for line in ERRORS)))
    assert {list(group)[1].attrib["class"] for group in root.iter("g")} == {"must"}


def test_nan_and_infinity_stand_at_the_top_and_are_written() -> None:
    root = parse(PLOT)
    tops = [g for g in root.iter("g") if str(g[0].text).partition(": ")[2][:8] in {"FAIL nan", "FAIL inf"}]
    assert len(tops) == 2
    assert {g[2].text for g in tops} == {"NaN", "inf"}
    assert {g[1].attrib["d"].split()[1].partition("m")[0] for g in tops} == {"16.0"}


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@PATIENT
@given(st.lists(FLOATS, max_size=20), st.booleans(), FLOATS)
def test_every_value_stands_on_the_scale(values: list[float], errors: bool, other: float) -> None:
    scale = make_scale([abs(value) for value in values], errors=errors)
    assert scale.low < scale.high
    for value in (*values, other):
        assert 0 <= scale.share(value) <= 1
    assert all(0 <= scale.share(tick) <= 1 for tick in scale.ticks)
    assert len(scale.ticks) <= 13


@given(st.lists(st.floats(0, 100), max_size=8))
def test_labels_are_spread_apart_in_their_order(places: list[float]) -> None:
    found = spread_apart(sorted(places), 13.0, 0.0, 120.0)
    assert all(b - a >= 13 - 1e-9 for a, b in pairwise(found))
    assert all(place <= 120 for place in found)


POINTS = st.builds(
    Point,
    version=st.sampled_from(("8.6.0", "9.2.0", "10.0.1.6")),
    value=st.none() | FLOATS,
    low=st.none() | FLOATS,
    high=st.none() | FLOATS,
    word=st.sampled_from(("PASS 1", "(FAIL)", ODD)),
    note=st.just(ODD),
)
LINES = st.builds(
    Series,
    label=st.sampled_from(("a", ODD)),
    unit=st.just(FLOORS),
    points=st.lists(POINTS, max_size=4).map(tuple),
)


@PATIENT
@given(st.lists(LINES, max_size=12), st.sampled_from((FLOORS, "ms")))
def test_any_plot_is_well_formed(lines: list[Series], unit: str) -> None:
    plot = Plot(name="p", title=ODD, unit=unit, series=tuple(lines))
    if render_figure(plot):
        parse(plot)
        places = re.findall(r' (?:d|cx|cy|x|y|transform)="([^"]*)"', drawn(plot))
        assert not any("nan" in place or "inf" in place for place in places)
    check_ids(Page(render_figure(plot)))
