"""JSON for programs, JUnit for continuous integration."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
from builders import (
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_repro,
    make_unknown,
)
from goldenfile import check_golden
from hypothesis import given
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Cause
from trtmatrix.suite.outcome import Evidence, Exclusion
from trtmatrix.suite.repros import Twin
from trtmatrix.tables.render_data import render_json, render_junit

NOW = "2025-01-02 03:04 UTC"


def _refuse(token: str) -> NoReturn:
    raise AssertionError(f"{token} is not JSON")


def parse(entries: Sequence[Entry]) -> dict[str, Any]:
    """Render and read strictly."""
    data: dict[str, Any] = json.loads(render_json(entries, generated=NOW), parse_constant=_refuse)
    return data


def test_json_sample() -> None:
    check_golden("table.json", render_json(sample_entries(), generated=NOW))


def test_junit_sample() -> None:
    check_golden("table.xml", render_junit(sample_entries()))


@PATIENT
@given(many_entries())
def test_every_cell_is_in_the_json_exactly_once(entries: tuple[Entry, ...]) -> None:
    data = parse(entries)
    assert [cell["id"] for cell in data["cells"]] == [str(entry.cell.id) for entry in entries]
    assert data["schema"] == 1
    assert data["generated"] == NOW


def test_a_json_cell_holds_all_that_is_known() -> None:
    repro = make_repro(expectations=(make_expectation(note="as reported"),))
    (cell,) = parse([make_entry(make_cell(repro), float("nan"))])["cells"]
    assert (cell["verdict"], cell["cause"], cell["surprise"]) == ("FAIL", None, False)
    assert cell["figure"]["value"] == cell["figure"]["text"] == "NaN"
    assert cell["expected"]["basis"] == "reported"
    assert cell["expected"]["note"] == "as reported"
    assert cell["record"]["run"] == "20250102t030405-00000000"
    assert (cell["builds"], cell["failed"], cell["fit"], cell["companion"]) == (1, 1, None, False)
    assert cell["advice"] is None
    assert cell["twins"] == {}
    (cell,) = parse([make_unknown(excluded=Exclusion.NO_GPU, why="none here")])["cells"]
    assert (cell["builds"], cell["fit"]) == (0, None)
    assert cell["excluded"] == {"why": "no NVIDIA GPU here", "detail": "none here"}
    assert cell["verdict"] is cell["figure"] is cell["record"] is None


def test_a_json_cell_holds_its_finding_s_figure_its_precision_and_what_to_do() -> None:
    twin = Twin(measure="apart", label="l", cases=("*",), reported={"10.7.0": 1373.4}, source="x")
    case = make_case(params={"precision": "fp16-flag"}, limits={})
    cell = make_cell(make_repro(case, twins=(twin,), expectations=(make_expectation(),)))
    noise = {"key": "k", "precision": "fp16-flag", "outputs": {"y": {"tf32": 1e-4, "fp16": 4e-4}}}
    entry = make_entry(
        dataclasses.replace(cell, companion=True), rel_l2=1e-4, noise=noise, others=(1, 2),
        scalars={"apart": 0.25},
    )  # fmt: skip
    data = parse([entry])
    (found,) = data["cells"]
    assert (found["builds"], found["failed"], found["fit"], found["companion"]) == (3, 0, "tf32", True)
    assert found["twins"] == {"apart": {"value": 0.25, "reported": 1373.4}}
    assert found["advice"].startswith("the report may be of another GPU or driver (L4)")
    assert data["summary"][0]["companions"] == 1


def test_json_counts_the_controls() -> None:
    (counts,) = parse([make_entry(make_cell(case=make_control())), make_entry()])["summary"]
    assert counts["controls"] == {
        "positive": 0, "negative": 1, "as_they_must": 0, "uncontrolled": 1,
        "wrong": ["sdpa-scale/control-lost-scale@10.7.0#h200 PASS"],
    }  # fmt: skip


def test_a_junit_failure_says_what_to_do() -> None:
    (failure,) = only_case(make_entry(value=1373.4)).iter("failure")
    text = "expected PASS (assumed), seen FAIL (1 build): sum_abs 1373.4 > 690 → 1 build only: confirm it"
    assert (failure.get("message") or "").startswith(text)


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


def test_a_junit_case_carries_figure_and_evidence() -> None:
    properties = {p.get("name"): p.get("value") for p in only_case(make_entry()).iter("property")}
    assert properties["figure"] == "sum of |y - float64| = 175"
    assert properties["evidence"] == "measured here"


def test_characters_that_xml_forbids_are_left_out() -> None:
    text = "a\x00\x1b[31mb\x0b\ufffe & <c>\ud800"
    (skipped,) = only_case(make_entry(ended="crashed", detail=text)).iter("skipped")
    assert skipped.get("message") == "NO VERDICT (crashed): a [31mb & <c>"


@PATIENT
@given(many_entries())
def test_junit_counts_what_it_holds(entries: tuple[Entry, ...]) -> None:
    root = parse_xml(entries)
    names = [case.get("name") for case in root.iter("testcase")]
    assert sorted(map(str, names)) == sorted(str(entry.cell.id) for entry in entries)
    tags = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for element in (root, *root.iter("testsuite")):
        for name, tag in tags.items():
            assert element.get(name) == str(len(list(element.iter(tag))))
