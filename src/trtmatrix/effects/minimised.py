"""What minimise leaves: the smallest model so far, its inputs, what was tried; always whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.errors import UsageError

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.subject import Subject

MODEL, INPUTS, REPORT = "model.onnx", "inputs", "minimised.json"
OURS = (MODEL, f"{INPUTS}.npz", INPUTS, REPORT)
"""All that is ever replaced or removed in a folder."""


def write_files(subject: Subject, folder: Path) -> tuple[Path, Path]:
    """Write a model and its inputs; returns both paths: ``inputs.npz``, or a folder of several samples."""
    import numpy as np

    from trtmatrix.onnxmodel.subject import write_model

    model = write_model(subject, folder / MODEL)
    inputs = folder / f"{INPUTS}.npz"
    if len(subject.samples) > 1:
        inputs = folder / INPUTS
        inputs.mkdir()
    width = len(str(len(subject.samples) - 1))
    for number, sample in enumerate(subject.samples):
        file = inputs if len(subject.samples) == 1 else inputs / f"{number:0{width}}.npz"
        np.savez(file, **dict(sample))  # type: ignore[arg-type] # arrays alone
    return model, inputs


def check_target(target: Path, cell: str) -> None:
    """Check that a folder can be written; in one of an earlier run for the same cell ours are.

    :class:`UsageError` where something else is there.
    """
    if not target.exists():
        return
    if _cell_in(target / REPORT) != cell:
        raise UsageError(f"{target} is there already, and is not of this cell: name another folder by --to")


def _cell_in(report: Path) -> str:
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        return str(found.get("cell", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def size_in(target: Path) -> tuple[int, ...] | None:
    """Return the size of the model in a folder, to be compared with :func:`size_of`'s; None of no result."""
    try:
        found = json.loads((target / REPORT).read_text(encoding="utf-8"))
        return size_of(found["after"]) if (target / MODEL).is_file() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def size_of(counts: Mapping[str, int]) -> tuple[int, ...]:
    """Return a model's counts in the order in which they make it small: its nodes first."""
    return tuple(int(counts[name]) for name in ("nodes", "inputs", "samples", "values", "weights"))


def write_minimised(target: Path, subject: Subject, report: Mapping[str, Any]) -> None:
    """Write our files to a folder, all or none, in place of those of before; ``OSError`` where it cannot be.

    What else lies there stays as it is.
    """
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        partial, before = Path(name) / "new", Path(name) / "before"
        partial.mkdir()
        before.mkdir()
        write_files(subject, partial)
        text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False)
        (partial / REPORT).write_text(text + "\n", encoding="utf-8")
        if target.exists():
            _replace(target, partial, before)
        else:
            partial.rename(target)


def _replace(target: Path, partial: Path, before: Path) -> None:
    """Move our files of before out of a folder and the new ones in; all back where that is not done."""
    new, done = sorted(item.name for item in partial.iterdir()), False
    try:
        for name in OURS:
            if (target / name).exists():
                (target / name).rename(before / name)
        for name in new:
            (partial / name).rename(target / name)
        done = True
    finally:  # also where an interrupt comes in between
        if not done:
            for name in new:
                if not (partial / name).exists():
                    (target / name).rename(partial / name)
            for item in before.iterdir():
                item.rename(target / item.name)
