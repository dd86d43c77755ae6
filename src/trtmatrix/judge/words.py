"""The short words and marks that cells are shown with, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable

from trtmatrix.common.text import counted
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Cause, Control, Evidence, Exclusion, Outcome, Product, Verdict

NOT_SUPPORTED = "–"
NO_EVIDENCE = "·"
SURPRISE = "!"
MUST_FAIL = "†"
ONE_BUILD = "¹"
BOARD_MARK = "§"

VERDICT_WORDS = {verdict: verdict.value for verdict in Verdict} | {Verdict.NO_VERDICT: "UNKNOWN"}
"""The word of a verdict; NO VERDICT shows that of its cause instead, where it has one."""
VERDICT_MEANINGS = {
    Verdict.PASS: "right, as far as the precision allows",
    Verdict.FAIL: "above the noise floor or a limit, a known defect, NaN, or the bug itself",
    Verdict.FLAKY: "k of n builds fail, shown as k/n",
    Verdict.INVALID: "the case can say nothing here",
    Verdict.BUILT: "parsed and built, not run",
    Verdict.NO_VERDICT: "no verdict",
}

CAUSE_WORDS = {
    Cause.UNSUPPORTED_GPU: "WRONG GPU", Cause.UNSUPPORTED_BY_VERSION: "N/A",
    Cause.COMPONENT_MISSING: "MISSING", Cause.DRIVER_TOO_OLD: "DRIVER", Cause.IMAGE_MISSING: "NO IMAGE",
    Cause.OUT_OF_GPU_MEMORY: "GPU OOM", Cause.OUT_OF_HOST_MEMORY: "OOM", Cause.TIME_OUT: "TIME-OUT",
    Cause.BUILD_FAILED: "NO BUILD", Cause.CRASHED: "CRASHED", Cause.INTERRUPTED: "STOPPED",
    Cause.LAUNCHER_FAILED: "NO LAUNCH", Cause.PROBE_FAILED: "NO PROBE", Cause.VERSION_MISMATCH: "MISMATCH",
}  # fmt: skip

PRODUCT_NAMES = {
    Product.TENSORRT: "TensorRT", Product.TENSORRT_RTX: "TensorRT-RTX", Product.ONNXRUNTIME: "ONNX Runtime",
}  # fmt: skip

EVIDENCE_MEANINGS = {
    Evidence.MEASURED: "measured here",
    Evidence.RECORDED: "recorded elsewhere or before a change",
    Evidence.REPORTED: "reported, maybe of another GPU",
    Evidence.NONE: "no evidence",
}

_FRAMES = {Evidence.RECORDED: ("[", "]"), Evidence.REPORTED: ("(", ")")}


def outcome_word(outcome: Outcome) -> str:
    """Return the word of a verdict or of its cause, at most nine characters."""
    return VERDICT_WORDS[outcome.verdict] if outcome.cause is None else CAUSE_WORDS[outcome.cause]


_RESTS_ON_BUILDS = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.FLAKY})


def full_words(outcome: Outcome) -> str:
    """Return an outcome's verdict with its cause or the engines that it rests on, as prose has it."""
    if outcome.cause is not None:
        return f"{outcome.verdict.value} ({outcome.cause.value})"
    if outcome.verdict not in _RESTS_ON_BUILDS or not outcome.builds:
        return outcome.verdict.value
    builds = counted(outcome.builds, "build")
    some = f"{outcome.failed} of {builds} fail" if 0 < outcome.failed < outcome.builds else builds
    return f"{outcome.verdict.value} ({some})"


def marked(entry: Entry, text: str) -> str:
    """Put the mark of an entry's evidence around a text."""
    before, after = _FRAMES.get(entry.evidence, ("", ""))
    return before + text + after


def cell_text(entry: Entry | None) -> str:
    """Return what a cell shows: ``PASS¹ tf32 1.4``, ``[FAIL! 9]``, ``FLAKY! 1/4``, a mark or nothing."""
    if entry is None:
        return ""
    outcome = entry.outcome
    if outcome is None or _is_unsupported(entry):
        return NOT_SUPPORTED if _is_unsupported(entry) else NO_EVIDENCE
    one = outcome.builds == 1 and outcome.verdict in _RESTS_ON_BUILDS
    word = outcome_word(outcome) + (ONE_BUILD if one else "")
    parts = [word + (SURPRISE if entry.surprise else ""), outcome.fit, entry.figure, entry.board]
    if outcome.verdict is Verdict.FLAKY and outcome.builds:
        parts[1:3] = [f"{outcome.failed}/{outcome.builds}"]
    return marked(entry, " ".join(part for part in parts if part))


def has_evidence(entry: Entry | None) -> bool:
    """Whether a cell shows a verdict or a cause."""
    return entry is not None and entry.outcome is not None and not _is_unsupported(entry)


def _is_unsupported(entry: Entry) -> bool:
    """Whether an entry without a record is of a GPU that its version does not support."""
    excluded = entry.excluded
    return entry.record is None and excluded is not None and excluded.why is Exclusion.UNSUPPORTED_GPU


def legend(entries: Iterable[Entry | None]) -> list[tuple[str, str]]:
    """Return the marks, then the words, that occur in some cells, each with its meaning.

    Words that explain themselves are left out.
    """
    shown = list(entries)
    there = [entry for entry in shown if entry is not None]
    known, silent = ([e for e in there if has_evidence(e) is wanted] for wanted in (True, False))
    unsupported = sum(map(_is_unsupported, silent))
    outcomes = [entry.outcome for entry in known if entry.outcome is not None]
    fits = sorted({name for outcome in outcomes for name in outcome.fit.split("+") if name})
    negative = any(entry.cell.case.control is Control.NEGATIVE for entry in there)
    seen = {entry.evidence for entry in known}
    marks = [
        *((" ".join(_FRAMES.get(e, ("plain",))), EVIDENCE_MEANINGS[e], e in seen) for e in Evidence),
        (SURPRISE, "not as expected", any(entry.surprise for entry in known)),
        (BOARD_MARK, "another driver or variant, named above its table", any(e.board for e in known)),
        (ONE_BUILD, "1 build", any(o.builds == 1 and o.verdict in _RESTS_ON_BUILDS for o in outcomes)),
        (", ".join(fits), "the precision that the outputs show", bool(fits)),
        (NO_EVIDENCE, EVIDENCE_MEANINGS[Evidence.NONE], len(silent) > unsupported),
        (NOT_SUPPORTED, "the version does not support this GPU", unsupported > 0),
        ("blank", "the case is not for this product or version", None in shown),
        (MUST_FAIL, "a known defect put in: must FAIL", negative),
    ]  # fmt: skip
    meanings = {
        outcome_word(outcome): outcome.cause.value if outcome.cause else VERDICT_MEANINGS[outcome.verdict]
        for outcome in outcomes
    }
    words = [word for word in (*VERDICT_WORDS.values(), *CAUSE_WORDS.values()) if word in meanings]
    return [(mark, text) for mark, text, occurs in marks if occurs] + [
        (word, meanings[word]) for word in words if meanings[word].lower() != word.lower()
    ]
