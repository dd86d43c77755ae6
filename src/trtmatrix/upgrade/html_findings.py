"""The findings of an upgrade report as a table: what is fixed, regressed, still bad or unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtmatrix.tables.html_pieces import (
    Row,
    Words,
    chip,
    code,
    count,
    fold,
    items,
    link,
    region,
    table,
    table_row,
    text,
    whole_table,
)
from trtmatrix.upgrade.html_answers import (
    change_chip,
    deciding,
    side,
    side_details,
    sources,
    weight_chip,
)
from trtmatrix.upgrade.report import CaseLine, Change, FindingLine, Weight, WorkaroundLine


def render_findings(findings: Sequence[FindingLine], before: str, after: str) -> str:
    """Return the counts and a table with a row a finding, under which its cases fold open; or nothing."""
    if not findings:
        return ""
    heads = ("finding", "change", before, after, "to the decision")
    bodies = "\n".join(_finding(finding, heads) for finding in findings)
    return _counts(findings) + region("Findings", whole_table("Findings", heads, bodies))


def _counts(findings: Sequence[FindingLine]) -> str:
    shown = []
    for change in Change:
        found = [finding for finding in findings if finding.change is change]
        cases = sum(case.change is change for finding in findings for case in finding.cases)
        if found or cases:
            parts = [count(len(found), "finding")] if found else []
            shown.append(f"{change_chip(change)} {', '.join([*parts, count(cases, 'case')])}")
    return items((f'<span class="nowrap">{item}</span>' for item in shown), "tally")


def _finding(finding: FindingLine, heads: tuple[str, str, str, str, str]) -> str:
    case = deciding(finding)
    upstream = f" · {link(finding.url, finding.upstream)}" if finding.upstream or finding.url else ""
    head = f"<strong>{text(finding.repro)}</strong>{upstream}<br>{text(finding.title)}"
    why = Words(f'{weight_chip(finding.weight)}<br><span class="small">{text(finding.why)}</span>')
    sides = (side(case.before if case else None), side(case.after if case else None))
    first = table_row((f'<div class="name">{head}</div>', change_chip(finding.change), *sides, why), heads)
    inner = "\n".join(_folded(finding, *heads[2:4]))
    more = f'<tr class="inner" role="row"><td colspan="5" role="cell">{inner}</td></tr>' if inner else ""
    return f'<tbody role="rowgroup">\n{first}\n{more}\n</tbody>'


def _folded(finding: FindingLine, before: str, after: str) -> Iterator[str]:
    if finding.workarounds:
        told = count(len(finding.workarounds), "work-around")
        counting = sum(line.counts for line in finding.workarounds)
        listed = items(workaround(line) for line in finding.workarounds)
        needed = finding.weight is Weight.WORKAROUND
        yield fold(f"{told}, {counting} that {'counts' if counting == 1 else 'count'}", listed, opened=needed)
    if finding.cases:
        label = f"{count(len(finding.cases), 'case')} of {finding.repro}"
        yield fold(text(label), render_cases(finding.cases, before, after, label))


def workaround(line: WorkaroundLine) -> str:
    """Return a work-around, whether it counts, and its own case at the later version."""
    counts = chip("good", "counts") if line.counts else chip("", "does not count")
    source = f" · {sources([line.source])}" if line.source else ""
    own = f" · its own case {code(line.case)}" if line.case else " · it has no case of its own"
    shown = f"<br>{side(line.after)}" if line.after is not None else ""
    return f'{counts} {text(line.what)} <span class="soft small">{own}{source}</span>{shown}'


def render_cases(cases: Sequence[CaseLine], before: str, after: str, label: str) -> str:
    """Return cases with both sides; what else is known of a case folds open."""
    return table(label, ["case", "change", before, after, "why"], [_case(case) for case in cases])


def _case(case: CaseLine) -> Row:
    details = side_details(case.before) + side_details(case.after)
    more = fold("evidence", f'<dl class="facts small">{details}</dl>') if details else ""
    return (
        code(case.case), f"{change_chip(case.change)}<br>{weight_chip(case.weight)}",
        side(case.before), side(case.after), Words(f'<span class="small">{text(case.why)}</span>{more}'),
    )  # fmt: skip
