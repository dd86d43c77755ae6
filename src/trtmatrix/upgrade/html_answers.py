"""How the words of an upgrade report look: the kind of each decision, change, weight and verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from trtmatrix.common.short import short
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.outcome import Evidence
from trtmatrix.tables.html_pieces import chip, code, count, fold, items, link, text
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    Decision,
    FactLine,
    FindingLine,
    Side,
    Source,
    Spread,
    Weight,
)

DECISIONS: Mapping[Decision, str] = {
    Decision.GO: "good",
    Decision.GO_WITH_WORKAROUNDS: "warn",
    Decision.DONT: "bad",
    Decision.NOT_ENOUGH: "unsure",
}
CHANGES: Mapping[Change, str] = {
    Change.REGRESSED: "bad",
    Change.UNCHANGED_BAD: "warn",
    Change.UNKNOWN: "unsure",
    Change.FIXED: "good",
    Change.UNCHANGED_GOOD: "good",
    Change.SAYS_NOTHING: "",
}
WEIGHTS: Mapping[Weight, str] = {
    Weight.AGAINST: "bad",
    Weight.LACKING: "unsure",
    Weight.WORKAROUND: "warn",
    Weight.FOR: "good",
    Weight.NOTE: "",
}
VERDICTS: Mapping[Verdict, str] = {
    Verdict.PASS: "good",
    Verdict.FAIL: "bad",
    Verdict.FLAKY: "bad",
    Verdict.INVALID: "unsure",
    Verdict.BUILT: "",
    Verdict.NO_VERDICT: "unsure",
}
EVIDENCE: Mapping[Evidence, str] = {
    Evidence.MEASURED: "measured here",
    Evidence.RECORDED: "recorded elsewhere or before a change",
    Evidence.REPORTED: "reported",
    Evidence.NONE: "no evidence",
}


def capital(words: str) -> str:
    """Return words as a title starts."""
    return words[:1].upper() + words[1:]


def weight_chip(weight: Weight) -> str:
    """Return what a line does to the decision."""
    return chip(WEIGHTS[weight], weight.value)


def change_chip(change: Change) -> str:
    """Return how something stands at the later version."""
    return chip(CHANGES[change], change.value)


def sources(found: Iterable[Source | None]) -> str:
    """Return where evidence can be read, or nothing; cells and files as code."""
    shown = [_source(source) for source in found if source is not None and source.title + source.url]
    return f'<span class="sources small">{"; ".join(shown)}</span>' if shown else ""


def _source(source: Source) -> str:
    if source.url:
        return link(source.url, source.title)
    return code(source.title) if "/" in source.title and " " not in source.title else text(source.title)


def side(one: Side | None) -> str:
    """Return a case at one version: its word, how that is known, on how many builds it rests."""
    if one is None:
        return '<span class="soft">not tried</span>'
    if one.verdict is None:
        feared = f"<br>{sources([one.feared])}" if one.feared is not None else ""
        said = "cannot be tried here" if one.absent else "no evidence"
        fear = ", assumed to fail" if one.feared is not None else ""
        return f'<span class="soft">{text(one.word) or "·"} {said}{fear}{feared}</span>'
    soft = [EVIDENCE[one.evidence]]
    soft += [one.cause.value] if one.cause is not None else []
    soft += ["in doubt: a control beside it came out wrong"] if one.doubted else []
    if one.builds:
        rests = f"{one.failed} of " if one.failed else ""
        soft.append(
            f"{rests}{one.builds} build{'' if one.builds == 1 else 's'}{' fail' if one.failed else ''}"
        )
    if one.floors is not None:
        soft.append(f"{short(one.floors)} noise floors")
    word = chip(VERDICTS[one.verdict], one.word or one.verdict.value)
    return f'{word}<br><span class="soft small">{text(", ".join(soft))}</span>'


def side_details(one: Side) -> str:
    """Return what else there is to say of a case at one version, or nothing."""
    parts = [
        text(one.reason),
        f"driver {text(one.driver)}" if one.driver else "",
        code(one.cell),
        sources(source for source in one.sources if source.title != one.cell or source.url),
    ]
    said = "<br>".join(part for part in parts if part)
    return f"<dt>{text(one.version)}</dt><dd>{said}</dd>" if said else ""


def fact_items(found: Iterable[FactLine]) -> list[str]:
    """Return each fact with its weight, its topic, how it is known, and its sources."""
    return [
        f"<div>{weight_chip(fact.weight)}</div><div><strong>{text(fact.topic)}</strong> {text(fact.text)}"
        f'{_known(fact)}</div>'
        for fact in found
    ]  # fmt: skip


def _known(fact: FactLine) -> str:
    """Return how a fact is known; the paths of several records fold away."""
    records = [source for source in fact.sources if not source.url and source.title.endswith(".json")]
    told = [source for source in fact.sources if source not in records or len(records) == 1]
    said = " · ".join(part for part in (text(fact.known), sources(told)) if part)
    listed = items(code(source.title) for source in records) if len(records) > 1 else ""
    folded = f'<div class="small soft">{fold(count(len(records), "record"), listed)}</div>' if listed else ""
    return (f'<br><span class="soft small">{said}</span>' if said else "") + folded


def deciding(finding: FindingLine) -> CaseLine | None:
    """Return the case that a finding's line stands for: of its change and weight, else of its change."""
    alike = [case for case in finding.cases if case.change is finding.change]
    same = [case for case in alike if case.weight is finding.weight]
    return next(iter([*same, *alike, *finding.cases]), None)


def amount(value: float, unit: str) -> str:
    """Write a figure with its unit; bytes in the unit that suits them."""
    if unit not in {"bytes", "B"} or not math.isfinite(value):
        return f"{short(value)} {unit}".strip()
    for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.0f} bytes"


def spread_text(spread: Spread | None, unit: str) -> str:
    """Write a median with its spread and its count, as text."""
    if spread is None:
        return "not measured"
    ends = f"{amount(spread.low, unit)} to {amount(spread.high, unit)}, " if spread.count > 1 else ""
    return f"{amount(spread.median, unit)} ({ends}{spread.count} measured)"


def ratio_text(ratio: float | None, *, told_apart: bool, why_not: str) -> str:
    """Write how a figure changed: ``+12%``, told apart from chance or not, or why it must not be compared."""
    if why_not:
        return f"not comparable: {why_not}"
    if ratio is None:
        return "no ratio"
    if not math.isfinite(ratio):
        return short(ratio)
    change = f"{100 * (ratio - 1):+.3g}%" if ratio < 10 else f"× {short(ratio)}"
    change = change.replace("-", "−")
    return change if told_apart else f"{change}, within the spread"
