"""From what a cell shows to what it answers in a bisect. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trtmatrix.core.bisect import Answer
from trtmatrix.core.bisect_report import Reply
from trtmatrix.core.confirm import count_engines
from trtmatrix.core.entry import Entry
from trtmatrix.core.image_names import registry_name
from trtmatrix.core.model import Cause, Evidence, Exclusion, Outcome, Verdict
from trtmatrix.core.stale import Why, find_reason
from trtmatrix.core.words import full_words

ANSWERS: Mapping[Verdict, Answer] = {
    Verdict.PASS: Answer.GOOD, Verdict.FAIL: Answer.BAD, Verdict.FLAKY: Answer.BAD,
    Verdict.INVALID: Answer.CANNOT_SAY, Verdict.BUILT: Answer.CANNOT_SAY,
    Verdict.NO_VERDICT: Answer.CANNOT_SAY,
}  # fmt: skip
"""One wrong engine of several is a failure; what says nothing of the numbers cannot say."""


def answer_of(entry: Entry, outcome: Outcome) -> Answer:
    """Return what an outcome answers; what is only built is good where that it is not built is the bug."""
    if outcome.verdict is Verdict.BUILT and Cause.BUILD_FAILED in entry.cell.case.bug_is:
        return Answer.GOOD
    return ANSWERS[outcome.verdict]


_STORED = frozenset({Evidence.MEASURED, Evidence.RECORDED})


def stored_reply(
    entry: Entry, *, rebuilds: int, can_run: bool, current: Mapping[str, str], images: Mapping[str, str]
) -> Reply | None:
    """Return what a cell answers without running it, or None where it is to be run.

    A record answers where it would not be measured again: it is current, or was published and nothing has
    changed since; a PASS also needs as many engines as are asked for. Where the cell cannot run here, what is
    recorded answers, and without a record it cannot say. ``current``: the digests that a record must have.
    """
    outcome = entry.outcome if entry.evidence in _STORED else None
    if outcome is None:
        return None if can_run else Reply(answer=Answer.CANNOT_SAY, words="not run", reason=_why_not(entry))
    if can_run and not _stands(entry, outcome, rebuilds, current):
        return None
    return reply_of(entry, outcome, rebuilds=rebuilds, images=images)


def _stands(entry: Entry, outcome: Outcome, rebuilds: int, current: Mapping[str, str]) -> bool:
    """Whether records stand for a cell that could be run."""
    answer = answer_of(entry, outcome)
    reason = find_reason(entry, rebuilds=rebuilds if answer is Answer.GOOD else 1, current=current)
    if reason is None:
        return True
    if reason.why is not Why.ELSEWHERE or answer is Answer.CANNOT_SAY:
        return False
    return answer is Answer.BAD or count_engines(entry.records) >= rebuilds


_NOT_HERE = frozenset({Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT, Exclusion.NOT_HERE})


def _why_not(entry: Entry) -> str:
    """Return why a cell without a record does not run here."""
    excluded = entry.excluded
    if excluded is not None and excluded.why in _NOT_HERE:  # each has its own name, which stands elsewhere
        return f"no record, {excluded.why.value}"
    return "no record" if excluded is None else f"no record; {excluded.detail or excluded.why.value}"


def reply_of(
    entry: Entry, outcome: Outcome, *, rebuilds: int, images: Mapping[str, str], tried: bool = False
) -> Reply:
    """Return what the records of a cell answer."""
    record, answer = entry.record, answer_of(entry, outcome)
    reason, engines = outcome.reason, count_engines(entry.records)
    if answer is Answer.GOOD and engines < rebuilds:
        few = f"{engines} engine{'' if engines == 1 else 's'} of the {rebuilds} asked for"
        reason = f"{few}; {reason}" if reason else few
    words = full_words(outcome)
    if answer is Answer.GOOD and not outcome.builds and engines > 1:  # products whose builds do not differ
        words = f"{words} ({engines} builds)"
    image_id = str(record.digests.get("image", "")) if record else ""
    in_container = record is not None and record.digests.get("runtime", "container") == "container"
    return Reply(
        answer=answer, words=words, figure=entry.figure, reason=reason, tried=tried,
        known="run now" if tried else _known(entry), image_id=image_id if in_container else "",
        image=registry_name(images, image_id) if in_container and image_id else "",
        library=str(record.observed.get("library") or "") if record else "",
        driver=str(record.gpu.get("driver") or "") if record else "",
    )  # fmt: skip


def _known(entry: Entry) -> str:
    day = f" of {entry.record.started[:10]}" if entry.record else ""
    where = (
        "measured here" if entry.evidence is Evidence.MEASURED else "recorded elsewhere or before a change"
    )
    return f"stored record{day}, {where}"


def hint_of(entry: Entry) -> Answer | None:
    """Return what a report, or a record that does not stand any more, lets expect; None for neither."""
    answer = Answer.CANNOT_SAY if entry.outcome is None else answer_of(entry, entry.outcome)
    return None if answer is Answer.CANNOT_SAY else answer
