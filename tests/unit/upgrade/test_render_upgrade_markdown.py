"""An upgrade report as Markdown: the decision first, texts no markup, never longer than GitHub takes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from goldenfile import check_golden
from hypothesis import given
from reportparts import FIXED, LONG
from reports import any_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.tables.markdown import MOST_CHARACTERS
from trtmatrix.upgrade.render import render_markdown
from trtmatrix.upgrade.report import Decision, Upgrade


def shown(upgrade: Upgrade) -> str:
    return render_markdown(upgrade)


def test_sample() -> None:
    check_golden("upgrade.md", shown(full_upgrade()))


@pytest.mark.parametrize("decision", Decision)
def test_the_decision_is_the_title(decision: Decision) -> None:
    first = shown(replace(full_upgrade(), decision=decision)).splitlines()[0]
    assert first.lower() == f"## tensorrt 10.7.0 → 10.8.0: {decision.value}"


LEFT_OUT = "left out: GitHub takes no longer text; the HTML page and the JSON have them.\n"


def test_of_a_long_report_folds_are_left_out_first() -> None:
    cases = tuple(replace(FIXED.cases[0], case=f"case-{n}", why=LONG) for n in range(60))
    many = tuple(replace(FIXED, repro=f"finding-{n}", cases=cases) for n in range(90))
    text = shown(replace(full_upgrade(), findings=many))
    assert len(text) <= MOST_CHARACTERS
    assert re.search(r"… \d+ parts " + LEFT_OUT, text)
    for part in ("Don't move to 10.8.0", "finding-59", "… and 30 more", "Not looked at", "Made by"):
        assert part in text
    assert LEFT_OUT not in shown(full_upgrade())


def test_texts_are_no_markup() -> None:
    text = re.sub(r"```.*?```", "", shown(full_upgrade()), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text.replace("\\`", ""))
    assert "<script" not in text.replace("\\<", "")
    assert set(re.findall(r"(?<!\\)</?([a-z]+)", text)) == {"details", "summary"}
    assert "](javascript" not in text
    assert "](http:" not in text


@PATIENT
@given(any_upgrade())
def test_any_report_can_be_written(upgrade: Upgrade) -> None:
    text = shown(upgrade)
    text.encode("utf-8")
    assert text.startswith("## ")
    assert len(text) <= MOST_CHARACTERS
