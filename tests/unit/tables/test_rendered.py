"""Text, Markdown and the page: whole, safe, no wider than they may be; plots and colours."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from builders import (
    VERSION_OF,
    expecting,
    make_case,
    make_cell,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
)
from goldenfile import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from pagereading import Page, body_of, check_ids, check_safe
from projects import strict_json
from reports import ODD
from shown import NOISE, PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import (
    CAUSE_WORDS,
    EVIDENCE_MEANINGS,
    NOT_SUPPORTED,
    PRODUCT_NAMES,
    Entry,
    cell_text,
    has_evidence,
)
from trtmatrix.judge.noise import NOT_CALIBRATED
from trtmatrix.judge.record import BUILT
from trtmatrix.suite.model import Basis, Cause, Evidence, Exclusion, Outcome, Product, Verdict
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.markdown import render_markdown
from trtmatrix.tables.page import (
    FLOORS,
    GLYPHS,
    Plot,
    Point,
    floors_of,
    latency_of,
    make_plots,
    make_style,
    read_template,
    render_figure,
    render_html,
)
from trtmatrix.tables.render_data import render_json, render_junit
from trtmatrix.tables.render_text import render_text
from trtmatrix.tables.table import make_tables
from trtmatrix.upgrade.document import TONES
from trtmatrix.upgrade.findings import Entries, make_case_line
from trtmatrix.upgrade.report import Change, Decision, Weight

NOW = "2025-01-02 03:04 UTC"


def markup(entries: tuple[Entry, ...]) -> str:
    plots = make_plots(entries, NOT_CALIBRATED)
    return render_html(entries, plots, generated=NOW, again="nox -s report")


def test_a_sample_in_every_format() -> None:
    entries = sample_entries()
    check_golden("report.html", body_of(markup(entries)))
    check_golden("table.md", render_markdown(entries))
    check_golden("table.txt", render_text(entries))
    check_golden("table.json", render_json(entries, generated=NOW))
    check_golden("table.xml", render_junit(entries))


def test_texts_cannot_become_markup_of_the_page() -> None:
    script = "<script>alert(1)</script>"
    repro = make_repro(title=script, url="javascript:alert(1)", upstream="'\">")
    entry = make_entry(make_cell(repro), ended="crashed", detail='"><img src=x onerror=y>')
    page = Page(render_html([entry], generated="<b>", again="<i>"))
    assert page.all("img") == page.all("b") == page.all("i") == []
    assert all((attrs["href"] or "").startswith("#") for attrs in page.all("a"))
    check_safe(page, scripts=1)


@PATIENT
@given(many_entries())
def test_any_tables_are_whole_in_every_format(entries: tuple[Entry, ...]) -> None:
    data = strict_json(render_json(entries, generated=NOW))
    assert [cell["id"] for cell in data["cells"]] == [str(entry.cell.id) for entry in entries]
    assert (data["schema"], data["generated"]) == (1, NOW)
    page = Page(markup(entries))
    check_ids(page)
    check_safe(page, scripts=1)
    cells = page.whole.partition('id="tables"')[2].partition('id="plots"')[0]
    for entry in entries:
        least = int(entry.record is not None and entry.record.ended != BUILT)
        assert least <= cells.count(f"<dd>{entry.cell.id}<") <= 1
    for table in re.findall(r"(?:^\|.*\n)+", render_markdown(entries), re.MULTILINE):
        assert len({row.count("|") for row in table.splitlines()}) == 1, "as many cells as its header"
    lines = render_text(entries).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    text = " ".join(render_text(entries).split())
    assert all(cell_text(entry) in text for entry in entries if has_evidence(entry))


@pytest.mark.parametrize(("y", "floors"), [(8e-4, "5.0"), ("NaN", "nan")])
def test_of_several_outputs_the_worst_counts(y: float | str, floors: str) -> None:
    case = make_case(params={"precision": "fp16-flag"}, limits={})
    noise = {**NOISE, "outputs": dict.fromkeys("yz", NOISE["outputs"]["y"])}
    measured = {"outputs": {"y": {"rel_l2": y}, "z": {"rel_l2": 2e-3}}, "signatures": {}, "scalars": {}}
    entry = make_entry(make_cell(make_repro(case)), noise=noise, measurements=measured)
    assert str(floors_of(entry, NOT_CALIBRATED)) == floors


def test_latencies_are_of_several_runs_only_and_one_version_is_no_line() -> None:
    cell = make_cell()
    several = {"latency": {"median_ms": 0.25, "low_ms": 0.2, "high_ms": 0.4, "runs": 50}, "run_ms": 3.0}
    assert latency_of(make_entry(cell, engine=several)) == 0.25
    assert latency_of(make_entry(cell, engine=several, workers=3)) is None, "others used the GPU meanwhile"
    assert latency_of(make_entry(cell, engine={"run_ms": 3.0})) is None
    entries = [make_entry(make_cell(version=name), scalars={"ms": 0.5}) for name in ("10.7.0", "10.8.0")]
    assert [found.unit for found in make_plots(entries, NOT_CALIBRATED)] == ["ms"]
    assert make_plots(entries[:1], NOT_CALIBRATED) == ()


def test_texts_cannot_become_markup_of_markdown() -> None:
    repro = make_repro(make_case(), title="<img src=x> *a* [b](c) _d_ e_f", url="http://plain")
    entry = make_entry(make_cell(repro), ended="crashed", detail="see @someone `#1` <b>")
    fused = make_case("fused", limits={}, remarks=frozenset({"fused"}))
    remark = "|<img src=x>|`|<img src=y>|**b**|[c](http://d)|@someone|\n\n# x"
    measured = {"outputs": {}, "scalars": {}, "signatures": {}, "remark": remark}
    text = render_markdown(
        [entry, make_entry(make_cell(make_repro(fused, id="fused")), measurements=measured)]
    )
    outside = re.sub(r"`[^`\n]*`", "", re.sub(r"\\.", "", text))  # neither escaped nor in a code span
    assert "img src" in text
    assert [raw for raw in ("<img", "**b", "](http://d)", "\n# x") if raw in outside] == []
    assert r"\<img src=x\> \*a\* \[b\](c) \_d\_ e_f · NVIDIA/TensorRT#4333" in text
    assert r"see @&#8203;someone \`#&#8203;1\` \<b\>" in text


def test_long_lists_end_with_a_count_and_fit_a_comment() -> None:
    repro = make_repro(*(make_case(f"case-{i}") for i in range(60)))
    names = [f"10.{i}.0" for i in range(11)]
    entries = [make_entry(make_cell(repro, case, name), 1373.4) for case in repro.cases for name in names]
    text = render_markdown(entries)
    assert "- … and 620 more" in text
    assert len(text) < 65_536


def test_a_log_cannot_send_escapes_to_the_terminal() -> None:
    entry = make_entry(ended="crashed", detail="\x1b]0;owned\x07\x1b[2J")
    assert "\x1b" not in render_text([entry])


# JSON for programs, JUnit for continuous integration.
def only_case(entry: Entry) -> ET.Element:
    """Return the one test case of an entry, read from the bytes that a file would hold."""
    (case,) = ET.fromstring(render_junit([entry]).encode()).iter("testcase")  # noqa: S314 - our own text
    return case


EXPECTED = make_cell(make_repro(expectations=(make_expectation(),)))
ENDED: list[tuple[Entry, list[str]]] = [
    *((make_entry(ended=cause.value), ["error" if cause.is_machinery else "skipped"]) for cause in Cause),
    (make_entry(), []), (make_entry(ended="built"), []), (make_entry(value=1373.4), ["failure"]),
    (make_entry(EXPECTED, 1373.4), []), (make_entry(make_cell(case=make_case(limits={}))), ["skipped"]),
    (make_entry(value=1373.4, evidence=Evidence.RECORDED), ["skipped"]), (make_unknown(), ["skipped"]),
]  # fmt: skip


def test_only_a_surprise_measured_here_fails_and_only_trouble_with_the_machinery_is_an_error() -> None:
    for entry, tags in ENDED:
        assert [child.tag for child in only_case(entry) if child.tag != "properties"] == tags, entry
    recorded = make_entry(value=1373.4, evidence=Evidence.RECORDED)
    assert "<failure" in render_junit([recorded], recorded=True)


def test_characters_that_xml_forbids_are_left_out() -> None:
    text = "a\x00\x1b[31mb\x0b\ufffe & <c>\ud800"
    (skipped,) = only_case(make_entry(ended="crashed", detail=text)).iter("skipped")
    assert skipped.get("message") == "NO VERDICT (crashed): a [31mb & <c>"


# Every member of every enum that a cell can show is in the tables, in each of their shapes.
PAGES: dict[str, Callable[[Sequence[Entry]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "html": lambda entries: render_html(entries, generated=NOW),
}


def of_verdict(verdict: Verdict) -> Entry:
    entry = replace(make_entry(), outcome=Outcome(verdict=verdict, builds=3, failed=1))
    return replace(entry, cell=expecting(entry.cell, verdict))


def of_evidence(evidence: Evidence) -> Entry:
    match evidence:
        case Evidence.NONE:
            return make_unknown()
        case Evidence.REPORTED:
            return make_reported(make_cell())
        case Evidence.MEASURED | Evidence.RECORDED:
            return make_entry(evidence=evidence)


def of_basis(basis: Basis) -> Entry:
    said = make_expectation(basis=basis, source="a page", on="")
    return make_entry(make_cell(make_repro(expectations=(said,))))


SHOWN: list[tuple[Entry, str]] = [  # an entry, and what every page must say of it
    *((of_verdict(verdict), verdict.value) for verdict in Verdict),
    *((make_entry(ended=cause.value), CAUSE_WORDS[cause]) for cause in Cause),
    *((make_entry(ended=cause.value), cause.value) for cause in Cause),
    *((of_evidence(evidence), EVIDENCE_MEANINGS[evidence]) for evidence in Evidence),
    *((make_unknown(excluded=why), f"1 TensorRT test: {why.value}") for why in Exclusion),
    (make_unknown(excluded=Exclusion.UNSUPPORTED_GPU), NOT_SUPPORTED),
    *((make_entry(make_cell(version=VERSION_OF[product])), PRODUCT_NAMES[product]) for product in Product),
    *((of_basis(basis), f"FAIL ({basis.value}: a page)") for basis in Basis),
]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("entry", "words"), SHOWN, ids=[words for _, words in SHOWN])
def test_every_member_has_its_words_on_every_page(entry: Entry, words: str, page: str) -> None:
    other = make_entry(make_cell(version="10.8.0"))
    text = PAGES[page]([entry] if entry.record else [entry, other])
    assert words in " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("page", PAGES)
def test_what_does_not_occur_is_not_explained(page: str) -> None:
    text = PAGES[page]([make_entry()])
    absent = [EVIDENCE_MEANINGS[Evidence.RECORDED], EVIDENCE_MEANINGS[Evidence.REPORTED], NOT_SUPPORTED]
    assert not [words for words in absent if words in text]


# The words, the marks, and how entries are grouped and counted.
TWIN = Twin(
    measure="apart", label="sum of |a - b|", cases=("sdpa-*",), source="thread",
    reported={"10.7.0": 1373.3945, "10.8.0": 0.2232},
)  # fmt: skip
TWINS = make_repro(make_case("explicit"), make_case("sdpa-a"), make_case("sdpa-b"), twins=(TWIN,))


def twin_rows(*entries: Entry) -> list[tuple[str, tuple[str, ...]]]:
    ((section,),) = [table.sections for table in make_tables(entries)]
    return list(section.twins)


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
        ("= sum of |a - b|: sdpa-b", ("", "(1373.39)", "0.5 (0.2232)")),
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
LINES = {f"a/{ODD}": {"8.6.0": Point(value=1.0, word="PASS 1")}}
PLOT = Plot(name="p", title="Error <over> versions", unit=FLOORS, versions=["8.6.0"], lines=LINES)


def drawn(plot: Plot) -> str:
    return "<svg" + render_figure(plot).partition("\n<svg")[2].partition("\n</div>")[0]


def parse(plot: Plot) -> ET.Element:
    """Read the plot as XML, which is stricter than HTML."""
    return ET.fromstring(drawn(plot))  # noqa: S314 - our own text


def test_shapes_tell_verdicts_apart() -> None:
    words = ("PASS 1", "[PASS¹ 1]", "(FAIL)", "FLAKY 1/4", "")
    points = {str(number): Point(value=1.0, word=word) for number, word in enumerate(words)}
    root = parse(replace(PLOT, versions=list(points), lines={"x": points}))
    shapes = [list(group)[1] for group in root.iter("g")]
    assert [shape.attrib["class"] for shape in shapes] == ["good", "good", "bad", "other", "other"]
    root = parse(replace(PLOT, must_fail=frozenset(LINES)))
    assert {list(group)[1].attrib["class"] for group in root.iter("g")} == {"must"}


VERSIONS = ("8.6.0", "9.2.0", "10.0.1.6")
POINTS = st.builds(
    Point, value=st.floats(allow_nan=True, allow_infinity=True),
    word=st.sampled_from(("PASS 1", "(FAIL)", ODD)),
)  # fmt: skip
LINE = st.dictionaries(st.sampled_from(VERSIONS), POINTS, min_size=1)
ANY_LINES = st.dictionaries(st.text(max_size=9) | st.just(ODD), LINE, min_size=1, max_size=12)


@settings(PATIENT, max_examples=30)
@given(ANY_LINES, st.sampled_from((FLOORS, "ms")))
def test_any_plot_is_well_formed(lines: dict[str, dict[str, Point]], unit: str) -> None:
    plot = Plot(name="p", title=ODD, unit=unit, versions=VERSIONS, lines=lines)
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
