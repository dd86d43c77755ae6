"""The answer on one screen: first and last, never higher than 40 lines, its commands whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from goldenfile import check_golden
from hypothesis import given
from hypothesis import strategies as st
from nowhere import go_nowhere
from reports import any_upgrade, bare_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.cli import entry as cli
from trtmatrix.upgrade.render import render_screen
from trtmatrix.upgrade.report import Decision, Lacking, Upgrade

WIDTHS = (80, 120, 160)


def shown(upgrade: Upgrade, width: int = 80) -> list[str]:
    return render_screen(upgrade, width).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120, 500])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--from 8.6.1 --to 9.3.0 --gpu L4", 11),
        ("--from 8.5.3.1 --to 8.6.0 --gpu H200", 12),
        ("--from 8.5.3.1 --to 8.6.0 --gpu H200 --case sdpa-*", 0),
    ],
)
def test_one_screen(
    words: str, code: int, columns: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    go_nowhere(monkeypatch, tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    command = ["upgrade", *words.split()]
    assert cli.run(command) == code
    text = capsys.readouterr().out
    lines = text.splitlines()
    width = min(max(columns, 80), 160)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= width
    assert lines[-1].endswith(f"(exit code {code})")
    assert lines[-1] in lines[1:4]
    if columns == 80:
        check_golden(f"upgrade/screen-{words.split()[3]}-{code}.txt", text)
        assert cli.run([*command, "--json"]) == code
        lacking = json.loads(capsys.readouterr().out)["lacking"]
        pasted = " ".join(text.replace("\\\n", "").split())
        assert all(item["command"] in pasted for item in lacking[:1])


@PATIENT
@given(any_upgrade(), st.sampled_from(WIDTHS))
def test_any_answer_fits(upgrade: Upgrade, width: int) -> None:
    lines = shown(upgrade, width)
    assert len(lines) <= 40
    assert lines[-1].startswith(upgrade.decision.value.upper())
    assert all(len(line) <= width for line in shown(replace(upgrade, lacking=()), width))


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("decision", Decision)
def test_screens_of_each_answer(decision: Decision, width: int) -> None:
    lines = shown(replace(full_upgrade(), decision=decision), width)
    assert len(lines) <= 40
    check_golden(f"upgrade/screen-{decision.name.lower()}-{width}.txt", "\n".join(lines) + "\n")


def test_a_list_that_is_too_long_for_a_line_is_broken_where_a_shell_joins_it() -> None:
    names = ",".join(f"finding-{number}" for number in range(20))
    command = f"nox -s matrix -- --trt 8.6.1,9.3.0 --repro {names} --rebuilds 3"
    lines = shown(replace(bare_upgrade(), lacking=(Lacking(what="all", command=command),)))
    assert max(map(len, lines)) <= 80
    assert command in " ".join("\n".join(lines).replace("\\\n", "").split())
