"""What ``lock`` prints: what moved and why it matters, and what images say of matrix.yaml's facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from trtmatrix.core.image_facts import Agreement, FactCheck
from trtmatrix.core.lock_changes import QUIET, UNRESOLVED, WHY, Finding, Kind, needs_decision, unanswered

UPDATE = "nox -s lock -- --update"


def lock_text(
    findings: Sequence[Finding], facts: Sequence[FactCheck], file: str, written: bool | None
) -> str:
    """Return the findings for a terminal. ``written``: whether the file was, None where nothing was to be."""
    shown = [kind for kind in Kind if kind is not Kind.LOCKED]
    parts = [
        "\n".join(_section(kind, [finding for finding in findings if finding.kind is kind]))
        for kind in shown if any(finding.kind is kind for finding in findings)
    ]  # fmt: skip
    parts += ["\n".join(lines) for lines in (list(_fact_lines(facts)),) if lines]
    return "\n\n".join([*parts, "\n".join(_ending(findings, file, written))])


def _section(kind: Kind, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings of one kind; a remedy that several share stands once."""
    yield f"{kind.value}: {len(findings)}"
    yield f"  why it matters: {WHY[kind]}"
    remedies = {} if kind is not Kind.UNKNOWN else {finding.facts[1:]: None for finding in findings}
    for finding in findings:
        where = f" ({finding.platform})" if finding.platform else ""
        used = f" · {', '.join(finding.versions)}" if finding.versions and not finding.is_build else ""
        yield f"  {finding.subject}{where}{used}"
        for fact in finding.facts[:1] if remedies else finding.facts:
            yield f"    {fact}"
        if finding.old_is_there is not None:
            yield f"    {_OLD[finding.old_is_there]}"
    for lines in remedies:
        yield from lines


_OLD = {
    True: "the registry still has the locked image: it can be pulled by its digest",
    False: "the registry no longer has the locked image: keep it where it is (nox -s pack), or move on",
}


_MISSING = {
    Kind.ABSENT: "not at the registry, so not locked (a mistake in matrix.yaml?)",
    Kind.UNKNOWN: "could not be asked, so their entries are as they were",
}


def _fact_lines(facts: Sequence[FactCheck]) -> Iterator[str]:
    """Yield what images contradict, and what they settle that was not read so far."""
    wrong = [check for check in facts if check.agreement is Agreement.CONTRADICTED]
    settled = [check for check in facts if check.settles]
    if wrong or settled:
        yield "what the images say of themselves, against matrix.yaml"
    for check in wrong:
        yield f"  {check.version}: {check.name} {check.fact.value} ({check.fact.known.value}) is contradicted"
        yield f"    the image says {check.says}: correct matrix.yaml, or pin another image"
    for check in settled:
        yield f"  {check.version}: {check.name} {check.fact.value} ({check.fact.known.value}) is confirmed"
        yield f"    the image says {check.says}: write known: read there, with the image as its source"


def _ending(findings: Sequence[Finding], file: str, written: bool | None) -> Iterator[str]:
    counts = Counter(finding.kind for finding in findings)
    told = [f"{kind.value}: {count}" for kind, count in counts.items()]
    yield f"{file}: {'; '.join(told) or 'none of these versions comes from an image'}"
    missing = unanswered(findings)
    for kind, words in _MISSING.items():
        if names := ", ".join(dict.fromkeys(finding.subject for finding in missing if finding.kind is kind)):
            yield f"{words}: {names}"
    if written is not None:
        yield f"{file} is written: review it by git diff" if written else f"{file} is as it was"
    elif needs_decision(findings):
        yield f"nothing was changed; to take over what was found: {UPDATE}"


def lock_json(
    findings: Sequence[Finding], facts: Sequence[FactCheck], file: str, written: bool | None
) -> dict[str, Any]:
    """Return the findings as plain data."""
    return {
        "schema": 1,
        "lock": file,
        "written": written,
        "findings": [
            {
                "subject": finding.subject, "kind": finding.kind.name.lower().replace("_", "-"),
                "what": finding.kind.value, "why": finding.why, "versions": list(finding.versions),
                "platform": finding.platform or None, "facts": list(finding.facts),
                "old_is_there": finding.old_is_there,
                "decide": finding.kind not in QUIET | UNRESOLVED,
            }
            for finding in findings
        ],
        "facts": [
            {
                "version": check.version, "fact": check.name, "value": check.fact.value,
                "known": check.fact.known.value, "image_says": check.says or None,
                "agreement": check.agreement.name.lower(),
            }
            for check in facts
        ],
    }  # fmt: skip
