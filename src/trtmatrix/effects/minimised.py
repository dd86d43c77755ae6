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
    """Check that a folder can be written; one of an earlier run for the same cell is replaced.

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


def write_minimised(target: Path, subject: Subject, report: Mapping[str, Any]) -> None:
    """Write the folder whole or not at all, in place of what it was; ``OSError`` where it cannot be."""
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        partial, before = Path(name) / "new", Path(name) / "before"
        partial.mkdir()
        write_files(subject, partial)
        text = json.dumps(report, indent=1, sort_keys=True, allow_nan=False)
        (partial / REPORT).write_text(text + "\n", encoding="utf-8")
        try:
            if target.exists():
                target.rename(before)
            partial.rename(target)
        finally:  # also where an interrupt comes in between
            if before.exists() and not target.exists():
                before.rename(target)
