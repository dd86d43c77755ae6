"""Archives' scripts for tests: made of a repro, laid beside its files as an archive has them, and run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from trtmatrix.core.bundle import facts
from trtmatrix.core.bundle.expected import make_expected
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.entry import Entry
from trtmatrix.core.inline.script import make_script
from trtmatrix.core.model import Product
from trtmatrix.effects.inline_sources import read_sources

ROOT = Path(__file__).resolve().parents[2]


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays where there are any."""
    if arrays:
        np.savez(str(path), **arrays)


def lay_out(case: Path, folder: Path) -> dict[str, str]:
    """Write a case's folder as an archive has it; returns the digests of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in (("inputs", facts.INPUTS), ("reference", facts.REFERENCE), ("extra", facts.EXTRA)):
        write_npz(folder / name, {path.stem: np.load(path) for path in (case / part).glob("*.npy")})
    defects = {f"{p.parent.name}/{p.stem}": np.load(p) for p in (case / "defects").glob("*/*.npy")}
    write_npz(folder / facts.DEFECTS, defects)
    (folder / facts.OTHERS).mkdir()
    beside = [path for path in case.iterdir() if path.is_file() and path.suffix not in {".json", ".npy"}]
    for path in [*beside, *(case / "others").glob("*.onnx")]:
        (folder / path.relative_to(case)).write_bytes(path.read_bytes())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def write_script(entry: Entry, repro: Path, case: Path, folder: Path, product: Product) -> dict[str, Any]:
    """Write what the script of a cell needs, and itself; returns ``expected.json``'s content."""
    files = lay_out(case, folder)
    expected = make_expected(entry, Calibration(), files)
    (folder / facts.EXPECTED).write_text(json.dumps(expected, allow_nan=False))
    script = make_script(repro.read_text(encoding="utf-8"), read_sources(), product, expected)
    (folder / facts.SCRIPT).write_text(script, encoding="utf-8")
    return expected


def run_script(
    python: Path, folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing of ours on the path."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, folder / facts.SCRIPT, *words], capture_output=True, text=True, check=False, cwd="/",
        env={**given, **(environment or {})}, timeout=300,
    )  # fmt: skip


def shrunk(entry: Entry, **params: Any) -> Entry:
    """Return an entry with other parameters of its case."""
    case = replace(entry.cell.case, params={**entry.cell.case.params, **params})
    return replace(entry, cell=replace(entry.cell, case=case))
