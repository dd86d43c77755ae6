"""What minimise prints and writes: each step, the end in text, and all of it as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trtmatrix.core.minimise import Answer, Trial, describe_trials

ANSWER_WORDS: Mapping[Answer, str] = {
    Answer.SAME: "kept", Answer.NOT: "no", Answer.CANNOT_SAY: "cannot say",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Minimised:
    """How a search ended.

    ``cell``: what was minimised; ``manner``: in which way it fails. ``good``: the version that is right, if
    one was named. ``before``, ``after``: sizes in words, and ``sizes`` the same as numbers. ``ended``: why it
    ended. ``is_smaller``: something was kept. ``folder``: where the result lies. ``smallest``: the cell of
    the result, whose record stands; empty where it was not run again, and ``last_said`` says why, or what
    came of it. ``notes``: what else to know.
    """

    cell: str
    manner: str
    good: str
    before: str
    after: str
    sizes: Mapping[str, Mapping[str, int]]
    ended: str
    trials: tuple[Trial, ...]
    is_smaller: bool
    folder: str = ""
    smallest: str = ""
    last_said: str = ""
    model_words: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)


def step_line(number: int, trial: Trial, size: str) -> str:
    """Return a trial in a line, with the size of the result where it was kept."""
    word = ANSWER_WORDS[trial.answer]
    more = size if trial.answer is Answer.SAME else trial.said
    what = f"{trial.move.axis}: {trial.move.level}"
    return f"  [{number}] {what} — {word}{f' ({more})' if more else ''}"


def commands(end: Minimised) -> list[str]:
    """Return the commands that show the result: as an archive, and as a run of the model."""
    if not end.is_smaller:
        return []
    version = end.cell.rpartition("@")[2].partition("#")
    gpu = "" if version[2] == "cpu" else f" --gpu {version[2]}"
    run = f"python -m trtmatrix run {end.model_words} --trt {version[0]}{gpu}" if end.model_words else ""
    bundle = f"python -m trtmatrix bundle make {end.smallest}" if end.smallest else ""
    return [line for line in (bundle, run) if line]


def render_minimised(end: Minimised) -> str:
    """Return the end in text."""
    lines = [end.cell, f"  fails: {end.manner}"]
    if end.good:
        lines.append(f"  right at {end.good}, as is what is left of it")
    lines += [f"  before: {end.before}", f"  after:  {end.after}"]
    lines += [f"  {end.ended}", f"  {describe_trials(end.trials)}"]
    lines += [f"  {note}" for note in end.notes]
    if not end.is_smaller:
        return "\n".join([*lines, "nothing smaller fails in the same way"]) + "\n"
    if end.folder:
        lines.append(f"{end.folder}: model.onnx, its inputs, minimised.json (what was tried)")
    if end.last_said:
        lines.append(f"  {end.last_said}")
    found = commands(end)
    lines += [*(["Next:"] if found else []), *(f"  {line}" for line in found)]
    return "\n".join(lines) + "\n"


def minimised_data(end: Minimised) -> dict[str, Any]:
    """Return all that is known of a search; the same search gives the same."""
    return {
        "schema": 1, "cell": end.cell, "manner": end.manner, "good": end.good, "ended": end.ended,
        "before": dict(end.sizes["before"]), "after": dict(end.sizes["after"]),
        "smaller": end.is_smaller, "smallest": end.smallest, "notes": list(end.notes),
        "trials": _trials(end.trials), "commands": commands(end),
    }  # fmt: skip


def _trials(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    return [
        {
            "what": trial.move.axis, "to": trial.move.level, "answer": trial.answer.value,
            "said": trial.said, "run": trial.ran,
        }
        for trial in trials
    ]  # fmt: skip
