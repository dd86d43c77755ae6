"""JSON for programs, JUnit for continuous integration."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from builders import make_case, make_cell, make_entry, make_expectation, make_repro, make_unknown
from goldenfile import check_golden
from shown import sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Cause, Evidence
from trtmatrix.tables.render_data import render_json, render_junit

NOW = "2025-01-02 03:04 UTC"


def test_json_sample() -> None:
    check_golden("table.json", render_json(sample_entries(), generated=NOW))


def test_junit_sample() -> None:
    check_golden("table.xml", render_junit(sample_entries()))


def parse_xml(entries: Sequence[Entry]) -> ET.Element:
    """Render and read the bytes that a file would hold."""
    return ET.fromstring(render_junit(entries).encode())  # noqa: S314 - our own text


def only_case(entry: Entry) -> ET.Element:
    """Return the one test case of an entry."""
    (case,) = parse_xml([entry]).iter("testcase")
    return case


def result_of(entry: Entry) -> str | None:
    """Return what the test case of an entry ended in."""
    tags = [child.tag for child in only_case(entry) if child.tag != "properties"]
    assert len(tags) <= 1
    return tags[0] if tags else None


@pytest.mark.parametrize("cause", Cause)
def test_only_trouble_with_the_machinery_is_an_error(cause: Cause) -> None:
    assert result_of(make_entry(ended=cause.value)) == ("error" if cause.is_machinery else "skipped")


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        (make_entry(), None),
        (make_entry(ended="built"), None),
        (make_entry(value=1373.4), "failure"),
        (make_entry(make_cell(make_repro(expectations=(make_expectation(),))), 1373.4), None),
        (make_entry(value=1373.4, evidence=Evidence.RECORDED), "skipped"),
        (make_entry(make_cell(case=make_case(limits={}))), "skipped"),
        (make_unknown(), "skipped"),
    ],
    ids=["pass", "built", "surprise", "expected-fail", "recorded", "invalid", "none"],
)
def test_only_a_surprise_measured_here_is_a_failure(entry: Entry, result: str | None) -> None:
    assert result_of(entry) == result


def test_characters_that_xml_forbids_are_left_out() -> None:
    text = "a\x00\x1b[31mb\x0b\ufffe & <c>\ud800"
    (skipped,) = only_case(make_entry(ended="crashed", detail=text)).iter("skipped")
    assert skipped.get("message") == "NO VERDICT (crashed): a [31mb & <c>"
