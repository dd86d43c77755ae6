"""What minimise prints and leaves: a line a step, the end in text and JSON, the folder with the model."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.errors import UsageError
from trtmatrix.interrupts import undisturbed

if TYPE_CHECKING:
    from trtmatrix.bugs.failing_model import FailingModel

REPORT = "minimised.json"
SAME, NOT, CANNOT_SAY = "same", "not", "cannot say"
_WORDS = {SAME: "kept", NOT: "no", CANNOT_SAY: "cannot say"}


@dataclass(frozen=True, kw_only=True)
class Step:
    """A smaller model that was tried: what was done to it, whether it fails in the same way, why not."""

    what: str
    answer: str
    said: str

    def line(self, number: int, size: str) -> str:
        """Return the step for a terminal, with the model's size where it was kept."""
        more = size if self.answer == SAME else self.said
        return f"  [{number}] {self.what} — {_WORDS[self.answer]}{f' ({more})' if more else ''}"


@dataclass(frozen=True, kw_only=True)
class Minimised:
    """How a search ended.

    ``manner``: in which way the cell fails. ``good``: the version at which what is left is right, if one was
    asked. ``ended``: why it ended. ``smallest``: the cell of the result, whose record stays; empty where it
    was not run again, and ``last_said`` tells why, or what came of it.
    """

    cell: str
    manner: str
    good: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    ended: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    folder: str = ""
    smallest: str = ""
    last_said: str = ""

    @property
    def is_smaller(self) -> bool:
        """Whether anything was kept."""
        return any(step.answer == SAME for step in self.steps)

    @property
    def commands(self) -> list[str]:
        """The command that makes an archive of the result."""
        return [f"python -m trtmatrix bundle make {self.smallest}"] if self.smallest else []

    @property
    def data(self) -> dict[str, Any]:
        """All of it as JSON; the same search gives the same."""
        return {
            "schema": 2, "cell": self.cell, "manner": self.manner, "good": self.good, "ended": self.ended,
            "before": dict(self.before), "after": dict(self.after), "smaller": self.is_smaller,
            "smallest": self.smallest, "notes": list(self.notes), "commands": self.commands,
            "trials": [vars(step) for step in self.steps],
        }  # fmt: skip

    def text(self) -> str:
        """Return it for a terminal."""
        from trtmatrix.bugs.failing_model import size_text

        count = Counter(step.answer for step in self.steps)
        right = [f"  right at {self.good}, as is what is left of it"] if self.good else []
        lines = [
            self.cell, f"  fails: {self.manner}", *right, f"  before: {size_text(self.before)}",
            f"  after:  {size_text(self.after)}", f"  {self.ended}",
            f"  {len(self.steps)} smaller models tried: {count[SAME]} kept, {count[NOT]} did not fail in the "
            f"same way, {count[CANNOT_SAY]} could not be made or run",
            *(f"  {note}" for note in self.notes),
        ]  # fmt: skip
        if not self.is_smaller:
            return "\n".join([*lines, "nothing smaller fails in the same way"]) + "\n"
        lines.append(f"{self.folder}: model.onnx, its inputs, {REPORT} (what was tried)")
        lines += [f"  {self.last_said}"] if self.last_said else []
        lines += ["Next:", *(f"  {line}" for line in self.commands)] if self.commands else []
        return "\n".join(lines) + "\n"


def check_target(target: Path, cell: str) -> None:
    """Raise :class:`UsageError` where a folder holds something else than this cell's earlier result."""
    if not target.exists():
        return
    try:
        known = str(json.loads((target / REPORT).read_text(encoding="utf-8"))["cell"])
    except (OSError, ValueError, TypeError, KeyError):
        known = ""
    if known != cell:
        raise UsageError(f"{target} is there already, and is not of this cell: name another folder by --to")


def write_minimised(target: Path, model: FailingModel, end: Minimised) -> None:
    """Write the smallest model so far with its inputs and the report, in place of those of before."""
    from trtmatrix.bugs.failing_model import write_failing_model

    target.mkdir(parents=True, exist_ok=True)
    with undisturbed():  # all of it is replaced, or none
        shutil.rmtree(target / "inputs", ignore_errors=True)
        (target / "inputs.npz").unlink(missing_ok=True)
        write_failing_model(model, target)
        text = json.dumps(end.data, indent=1, sort_keys=True, allow_nan=False)
        (target / REPORT).write_text(text + "\n", encoding="utf-8")
