"""An upgrade report for a terminal: the answer first, 100 columns, right in black and white too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trtmatrix.judge.words import PRODUCT_NAMES
from trtmatrix.upgrade.lines import WIDTH, case_lines, hanging, wrap
from trtmatrix.upgrade.render_figures import render_performance_lines
from trtmatrix.upgrade.render_model import render_model_lines
from trtmatrix.upgrade.report import (
    CaseLine,
    Change,
    Decision,
    FactLine,
    FindingLine,
    Lacking,
    Source,
    Upgrade,
    Weight,
    WorkaroundLine,
)
from trtmatrix.upgrade.standing import WORST, Standing, standing_of

MOST_CASES = 5
MOST_OTHERS = 2
_BOLD, _RED, _GREEN, _YELLOW, _RESET = "1", "31", "32", "33", "\x1b[0m"
_COLOURS = {
    Decision.GO: _GREEN, Decision.GO_WITH_WORKAROUNDS: _YELLOW, Decision.NOT_ENOUGH: _YELLOW,
    Decision.DONT: _RED,
}  # fmt: skip
_WORDS = {
    Weight.AGAINST: "against", Weight.LACKING: "lacking", Weight.WORKAROUND: "work-around",
    Weight.FOR: "for", Weight.NOTE: "note",
}  # fmt: skip
_HEADINGS = {
    Change.REGRESSED: "Regressed", Change.UNCHANGED_BAD: "Bad at both: no reason against moving",
    Change.FIXED: "Fixed", Change.UNCHANGED_GOOD: "Right", Change.UNKNOWN: "Unknown",
    Change.SAYS_NOTHING: "Can say nothing here",
}  # fmt: skip
_MARKS = "PASS: measured here   [PASS]: recorded elsewhere or before   (PASS): reported   ¹: 1 build"


def render_upgrade_text(upgrade: Upgrade, *, colour: bool = False) -> str:
    """Return the report; no line but an address is wider than 100 columns.

    ``colour`` adds ANSI colours, which never say more than the words do.
    """
    sections = (
        _answer(upgrade, colour=colour), _reasons(upgrade.reasons), _lacking(upgrade.lacking),
        render_model_lines(upgrade.model), _findings(upgrade.findings),
        _facts("GPU and driver", upgrade.gpu_and_driver), render_performance_lines(upgrade.performance),
        _api(upgrade), _facts("Engines to rebuild", upgrade.engines),
        _plain("Not looked at", upgrade.not_looked_at), _sources(upgrade),
    )  # fmt: skip
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _answer(upgrade: Upgrade, *, colour: bool) -> Iterator[str]:
    product = PRODUCT_NAMES[upgrade.product]
    on = f" on {upgrade.gpu}" if upgrade.gpu != "CPU" else ""
    before, after = (v.removeprefix(f"{upgrade.product.value}-") for v in (upgrade.before, upgrade.after))
    yield from wrap(f"{product} {before} → {after}{on} · {upgrade.gpu_note}")
    word = upgrade.decision.value.upper()
    line = f"{word}  (exit code {upgrade.decision.exit_code.value})"
    yield ""
    yield f"\x1b[{_BOLD};{_COLOURS[upgrade.decision]}m{line}{_RESET}" if colour else line
    yield from wrap(upgrade.summary, "  ", "  ")


def _reasons(reasons: Sequence[FactLine]) -> Iterator[str]:
    if reasons:
        yield "Why"
    for reason in reasons:
        text = f"{reason.topic}: {reason.text}{_evidence(reason.known, reason.sources)}"
        yield from hanging(_WORDS[reason.weight], text)


def _evidence(known: str, sources: Sequence[Source]) -> str:
    """Return how a line is known and where that can be read; the last section has the addresses."""
    pages = (source for source in sources if not _is_record(source) and (source.url or known != "recalled"))
    titles = list(dict.fromkeys(_short(source) for source in pages))[:2]
    where = f": {'; '.join(titles)}" if titles else ""
    return "" if known == "none" and not sources else f" [{known}{where}]"


def _is_record(source: Source) -> bool:
    return source.title.endswith(".json")


def _short(source: Source) -> str:
    """Return a source's name without what was read there."""
    return re.split(r": |; |, named ", source.title)[0]


def _lacking(lacking: Sequence[Lacking]) -> Iterator[str]:
    """Yield the commands; those of one finding each are left out where one command does them all."""
    if lacking:
        yield "What would tell more"
    whole = next((index for index, item in enumerate(lacking) if item.whole), len(lacking) - 1)
    for item in lacking[: whole + 1]:
        yield from wrap(item.what, "  ", "    ")
        if item.command:
            yield from _command(item.command)
    left = len(lacking) - whole - 1
    if left > 0:
        yield f"  One finding alone: --repro NAME in its place ({left} such commands: --json, -o report.html)"


def _command(command: str) -> Iterator[str]:
    """Break a command at its options, so that it can be pasted."""
    line, indent = "", "    "
    for index, word in enumerate(command.split(" --")):
        part = word if not index else f"--{word}"
        if line and len(indent) + len(line) + len(part) + 3 > WIDTH:
            yield f"{indent}{line} \\"
            line, indent = part, "      "
        else:
            line = f"{line} {part}".strip()
    yield f"{indent}{line}"


def _findings(findings: Sequence[FindingLine]) -> Iterator[str]:
    if findings:
        yield "Findings"
        yield f"  {_MARKS}"
    for change in WORST:
        for confirmed in (True, False):
            mine = [
                f for f in findings if f.change is change and (f.weight is not Weight.LACKING) is confirmed
            ]
            doubt = "" if confirmed or change not in _IMPROVED else ", not confirmed"
            if mine:
                yield f"  {_HEADINGS[change]}{doubt}"
            for finding in mine:
                yield from _finding(finding)


_IMPROVED = frozenset({Change.FIXED, Change.UNCHANGED_GOOD})


def _finding(finding: FindingLine) -> Iterator[str]:
    yield from wrap(f"{finding.repro} — {finding.title} · {finding.upstream}", "    ", "      ")
    yield from wrap(finding.why, "      ", "        ")
    for change in WORST:
        told = [line for line in finding.cases if line.change is change and _is_told(line)]
        most = MOST_CASES if change is Change.REGRESSED else MOST_OTHERS
        for above, line in zip((None, *told), told[:most], strict=False):
            yield from case_lines(line, above.why if above else "")
        if len(told) > most:
            yield f"      … {len(told) - most} more like these"
    if any(line.weight in {Weight.AGAINST, Weight.WORKAROUND} for line in finding.cases):
        for item in finding.workarounds:
            yield from _workaround(item)


def _is_told(line: CaseLine) -> bool:
    """Whether a case has a line of its own: worse, bad, fixed, reported, or expected to fail."""
    if line.change in {Change.REGRESSED, Change.UNCHANGED_BAD, Change.FIXED}:
        return True
    after = standing_of(line.after)
    silent = after in {Standing.UNKNOWN, Standing.ABSENT, Standing.VOID, Standing.FEW}
    return line.weight is Weight.LACKING and not (
        silent and not (line.after.reason and after is Standing.UNKNOWN)
    )


def _workaround(item: WorkaroundLine) -> Iterator[str]:
    word = item.after.word if item.after and item.after.verdict else "not tried there"
    tried = f"{item.case} {word}" if item.case else "no case tries it"
    counts = "counts" if item.counts else "does not count"
    yield from wrap(f"work-around: {item.what} — {tried}: {counts}", "      ", "        ")


def _facts(title: str, facts: Sequence[FactLine]) -> Iterator[str]:
    if facts:
        yield title
    topics = [fact.topic for fact in facts]
    for index, fact in enumerate(facts):
        topic = fact.topic if not index or topics[index - 1] != fact.topic else ""
        stop = "AGAINST: " if fact.weight is Weight.AGAINST else ""
        text = f"{stop}{fact.text}{_evidence(fact.known, fact.sources)}"
        yield from wrap(f"{topic}: {text}" if topic else text, "  ", "    ")


def _api(upgrade: Upgrade) -> Iterator[str]:
    from trtmatrix.api.report import render_api_lines

    yield "API"
    for line in render_api_lines(upgrade.api, upgrade.before, upgrade.after):
        yield f"  {line}".rstrip()


def _plain(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield title
    for text in texts:
        yield from wrap(text, "  ", "    ")


def _sources(upgrade: Upgrade) -> Iterator[str]:
    """Yield where the report's lines can be read: pages by address, records by their folders."""
    facts = (*upgrade.reasons, *upgrade.gpu_and_driver, *upgrade.engines)
    sides = [side for f in upgrade.findings for line in f.cases for side in (line.before, line.after)]
    cited = [*(source for fact in facts for source in fact.sources)]
    found = dict.fromkeys((*cited, *(source for side in sides for source in side.sources)))
    pages = dict.fromkeys((_short(source).split(", of ")[0], source.url) for source in found if source.url)
    folders = dict.fromkeys("/".join(s.title.split("/")[:-3]) for s in found if _is_record(s))
    if pages or folders:
        yield "Sources"
    for folder in sorted(folders):
        yield f"  records: {folder}/<finding>/<case>/<run>.json"
    for title, url in pages:
        yield f"  {title}" if len(title) + len(url) + 4 > WIDTH else f"  {title}: {url}"
        if len(title) + len(url) + 4 > WIDTH:
            yield f"    {url}"
