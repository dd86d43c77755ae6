"""An upgrade report as one screen, text, Markdown, page and JSON: whole, safe, no larger than it may be."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from goldenfile import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from nowhere import go_nowhere
from pagereading import Page, body_of, check_ids, check_safe
from projects import strict_json
from reports import FIXED, LONG, any_of, bare_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.cli import entry as cli
from trtmatrix.tables.markdown import MOST_CHARACTERS
from trtmatrix.upgrade.document import render_markdown, render_page
from trtmatrix.upgrade.report import SCHEMA, Decision, Lacking, Upgrade, upgrade_json
from trtmatrix.upgrade.screen import render_screen

SHIPPED = json.loads((Path(__file__).parents[3] / "docs" / "upgrade.schema.json").read_text(encoding="utf-8"))


def parse(upgrade: Upgrade) -> dict[str, Any]:
    data: dict[str, Any] = strict_json(upgrade_json(upgrade))
    return data


@settings(PATIENT, max_examples=20)
@given(any_of(Upgrade), st.sampled_from((80, 120, 160)))
def test_any_report_can_be_shown_in_every_format(upgrade: Upgrade, width: int) -> None:
    jsonschema.validate(parse(upgrade), SHIPPED)
    lines = render_screen(upgrade, width).splitlines()
    assert len(lines) <= 40
    assert lines[-1].startswith(upgrade.decision.value.upper())
    bare = render_screen(replace(upgrade, lacking=()), width).splitlines()
    assert [line for line in bare if len(line) > width] == []
    markdown, html = render_markdown(upgrade), render_page(upgrade)
    assert markdown.startswith("## ")
    assert len(markdown) <= MOST_CHARACTERS
    for text in (upgrade_json(upgrade), markdown, html):
        text.encode("utf-8")
    page = Page(html)
    check_ids(page)
    check_safe(page, scripts=1)


def test_what_a_report_holds_is_in_its_data() -> None:
    data = parse(full_upgrade())
    assert (data["schema"], data["exit_code"], data["decision"]) == (SCHEMA, 11, "don't")
    assert data["performance"][2]["after"] == {"median": "NaN", "low": 0.5, "high": "Infinity", "count": 3}
    assert data["findings"][1]["cases"][0]["after"]["word"] == "FLAKY 1/4"


def test_the_page_loads_nothing_and_its_texts_are_no_markup() -> None:
    html = render_page(full_upgrade())
    check_golden("upgrade.html", body_of(html))
    page = Page(html)
    assert "<script>alert(1)</script> & \"quotes\" 'n' `ticks` | bars | √x ≤ ∞ [31m 日本語 end" in page.text
    links = {attrs["href"] for attrs in page.all("a")}
    assert "https://github.com/NVIDIA/TensorRT/issues/4333" in links
    assert not any("javascript" in str(link) or "example" in str(link) for link in links)


def test_markdown_is_no_markup_but_its_own() -> None:
    text = render_markdown(full_upgrade())
    check_golden("upgrade.md", text)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text.replace("\\`", ""))
    assert "<script" not in text.replace("\\<", "")
    assert set(re.findall(r"(?<!\\)</?([a-z]+)", text)) == {"details", "summary"}
    assert "](javascript" not in text
    assert "](http:" not in text


def test_of_a_long_report_folds_are_left_out_of_markdown_first() -> None:
    left_out = "left out: GitHub takes no longer text; the HTML page and the JSON have it.\n"
    cases = tuple(replace(FIXED.cases[0], case=f"case-{n}", why=LONG) for n in range(60))
    many = tuple(replace(FIXED, repro=f"finding-{n}", cases=cases) for n in range(90))
    text = render_markdown(replace(full_upgrade(), findings=many))
    assert len(text) <= MOST_CHARACTERS
    assert text.endswith(left_out)
    for part in ("Don't move to 10.8.0", "finding-59", "… and 30 more", "Not looked at", "Made by"):
        assert part in text
    assert left_out not in render_markdown(full_upgrade())


@pytest.mark.parametrize(
    ("words", "code", "columns"),
    [
        ("--from 8.6.1 --to 9.3.0 --gpu L4", 11, 80),
        ("--from 8.5.3.1 --to 8.6.0 --gpu H200", 10, 80),
        ("--from 8.5.3.1 --to 8.6.0 --gpu H200 --case sdpa-*", 0, 40),  # nothing is narrower than 80
        ("--from 8.5.3.1 --to 8.6.0 --gpu H200 --case sdpa-*", 0, 500),
    ],
)
def test_the_command_prints_one_screen(
    words: str, code: int, columns: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    go_nowhere(monkeypatch, tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    command = ["upgrade", *words.split()]
    assert cli.run(command) == code
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= min(max(columns, 80), 160)
    assert lines[-1].endswith(f"(exit code {code})")
    assert lines[-1] in lines[1:4]
    if columns <= 80:
        check_golden(f"upgrade/screen-{words.split()[3]}-{code}.txt", text)
    if code == 11:
        assert cli.run([*command, "--json"]) == code
        lacking, *_ = json.loads(capsys.readouterr().out)["lacking"]
        assert lacking["command"] in " ".join(text.replace("\\\n", "").split())


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("decision", Decision)
def test_screens_of_each_answer(decision: Decision, width: int) -> None:
    text = render_screen(replace(full_upgrade(), decision=decision), width)
    assert len(text.splitlines()) <= 40
    check_golden(f"upgrade/screen-{decision.name.lower()}-{width}.txt", text)


def test_a_list_that_is_too_long_for_a_line_is_broken_where_a_shell_joins_it() -> None:
    names = ",".join(f"finding-{number}" for number in range(20))
    command = f"nox -s matrix -- --trt 8.6.1,9.3.0 --repro {names} --rebuilds 3"
    lacking = (Lacking(what="all", command=command),)
    lines = render_screen(replace(bare_upgrade(), lacking=lacking), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert command in " ".join("\n".join(lines).replace("\\\n", "").split())
