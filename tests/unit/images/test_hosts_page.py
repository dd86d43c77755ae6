"""docs/hosts.md has every rule of preflight as the code has it, with what it looks at and its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.images.rules import RULES, Rule

ROOT = Path(__file__).resolve().parents[3]
HEAD = "| rule | looks at | prevents | what mends it | source |"


def rows() -> dict[str, list[str]]:
    """Return the page's rules: id → the cells of its row."""
    lines = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8").splitlines()
    below = lines[lines.index(HEAD) + 2 :]
    found = [line.strip("| ").split(" | ") for line in below[: below.index("")]]
    return {cells[0].strip("`"): cells for cells in found}


def test_the_page_has_the_rules_in_their_order_and_no_other() -> None:
    assert list(rows()) == list(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_row_says_what_the_rule_does(rule: Rule) -> None:
    _, looks_at, prevents, mends, source = rows()[rule.id]
    assert looks_at
    assert (prevents, mends) == (rule.prevents if rule.excludes else "nothing, it is told", rule.mends)
    last = source.rsplit(" ", 1)[-1]
    assert last.startswith("https://") or (ROOT / last).is_file()
