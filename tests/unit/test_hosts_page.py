"""docs/hosts.md has every rule of preflight as the code has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtmatrix.core.preflight.rules import RULES, Rule

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "hosts.md"
HEAD = ("| rule | looks at | prevents | what mends it | source |", "| --- | --- | --- | --- | --- |")
RENEW = "UPDATE_GOLDEN=1 python -m pytest tests/unit/test_hosts_page.py"


def row(rule: Rule) -> str:
    cells = (f"`{rule.id}`", rule.looks_at, rule.prevents or "nothing, it is told", rule.mends, rule.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table() -> list[str]:
    return [*HEAD, *map(row, RULES.values())]


def rows_of(text: str) -> Iterator[str]:
    """Yield the lines of the table of rules, with its head."""
    lines = iter(text.splitlines())
    for line in lines:
        if line == HEAD[0]:
            yield line
            break
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def problems_of(text: str) -> list[str]:
    """What of the table is missing, and what no rule says any more."""
    shown, wanted = list(rows_of(text)), table()
    missing = [f"missing: {line}" for line in wanted if line not in shown]
    stale = [f"no rule says: {line}" for line in shown if line not in wanted]
    order = ["the rows are in another order than RULES"] if shown != wanted else []
    return [*missing, *stale] or order


def renewed(text: str) -> str:
    """Return the page with the table as the rules have it now."""
    old = "\n".join(rows_of(text))
    return text.replace(old, "\n".join(table()), 1)


def test_the_table_is_that_of_the_rules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        text = renewed(text)
        PAGE.write_text(text, encoding="utf-8")
    if problems := problems_of(text):
        pytest.fail("\n".join([f"{PAGE.name}:", *problems, f"renew it: {RENEW}"]), pytrace=False)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_row_that_is_missing_stale_or_elsewhere_is_found(rule: Rule) -> None:
    whole = "\n".join(["before", "", *table(), "", "after"])
    line = row(rule)
    assert problems_of(whole) == []
    assert problems_of(whole.replace(f"\n{line}", "")) == [f"missing: {line}"]
    assert problems_of(whole.replace(line, line.replace(rule.mends, "pray"))) != []
    assert problems_of(whole.replace(f"\n{line}", "").replace(HEAD[1], f"{HEAD[1]}\n{line}")) == (
        [] if rule is next(iter(RULES.values())) else ["the rows are in another order than RULES"]
    )
    assert renewed(whole.replace(rule.looks_at, "something else")) == whole


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_source_that_is_a_file_of_the_project_is_there(rule: Rule) -> None:
    last = rule.source.rsplit(" ", 1)[-1]
    assert last.startswith("https://") or (ROOT / last).is_file()
