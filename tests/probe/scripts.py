"""Archives' scripts for tests: made of a repro, laid beside its files as an archive has them, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tests.probe.jobs import PROBE, refuse
from trtmatrix.core.bundle import facts
from trtmatrix.core.bundle.expected import make_expected
from trtmatrix.core.calibration import Calibration
from trtmatrix.core.compare import Entry
from trtmatrix.core.expand import Cell
from trtmatrix.core.inline.script import make_script
from trtmatrix.core.judge import judge
from trtmatrix.core.model import CPU, Case, CellId, Evidence, Product, Repro
from trtmatrix.core.record import Record, record_from
from trtmatrix.effects.inline_sources import read_sources

VERSION = "10.7.0"


def lay_out(case: Path, folder: Path) -> dict[str, str]:
    """Write a case's folder as an archive has it; returns the digests of its files."""
    parts = {facts.INPUTS: "inputs", facts.REFERENCE: "reference", facts.EXTRA: "extra"}
    arrays = {name: {path.stem: path for path in (case / part).glob("*.npy")} for name, part in parts.items()}
    arrays[facts.DEFECTS] = {f"{p.parent.name}/{p.stem}": p for p in (case / "defects").glob("*/*.npy")}
    (folder / facts.OTHERS).mkdir(parents=True)
    for name, paths in arrays.items():
        if paths:
            np.savez(str(folder / name), **{key: np.load(path) for key, path in paths.items()})
    for path in [*case.glob("*"), *(case / "others").glob("*.onnx")]:
        if path.is_file() and path.suffix not in {".json", ".npy"}:
            (folder / path.relative_to(case)).write_bytes(path.read_bytes())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True, kw_only=True)
class Script:
    """An archive's folder with its script, run by ``python`` with nothing of ours on its path."""

    folder: Path
    python: Path
    environment: Mapping[str, str]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script."""
        given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.python, self.folder / facts.SCRIPT, *words], capture_output=True, text=True, check=False,
            env={**given, **self.environment, **environment}, cwd=self.folder.parent, timeout=300,
        )  # fmt: skip

    def result(self, *words: str, **environment: str) -> tuple[int, dict[str, Any], str]:
        """Run the script and return its exit code, ``result.json`` and the line that it ends in."""
        out = self.folder.parent / "out"
        done = self.run(f"--out={out}", *words, **environment)
        assert (out / "result.json").is_file(), done.stdout + done.stderr
        data = json.loads((out / "result.json").read_text(), parse_constant=refuse)
        return done.returncode, data, done.stdout.splitlines()[-1]


def run_by_hand(
    repro: Path, case: Path, product: Product, environment: Mapping[str, str],
    python: Path = Path(sys.executable), builds: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return what the probe makes of a case: ``python repros/<name>.py --files DIR``."""
    paths = [environment.get("PYTHONPATH", ""), str(PROBE.parent)]
    command = [str(python), str(repro), f"--files={case}", f"--product={product.value}", f"--builds={builds}"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    assert "{" in done.stdout, done.stderr
    data: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{\n") :], parse_constant=refuse)
    return data


def recorded(
    result: Mapping[str, Any], repro: Repro, case: Case, product: Product, noise: Mapping[str, Any]
) -> Record:
    """Return the record of what the probe measured."""
    cell = vars(CellId(repro=repro.id, case=case.id, version=VERSION, gpu="cpu"))
    now = "2025-01-02T03:04:05.000Z"
    return record_from({
        "schema": 1, "cell": cell, "run": "20250102t030405-00000000", "started": now, "digests": {},
        "gpu": {}, "product": product.value, "noise": noise, **result,
    })  # fmt: skip


def entry_of(record: Record, repro: Repro, case: Case, version: Any) -> Entry:  # a column of the matrix
    """Return the entry of a case with one record."""
    cell = Cell(repro=repro, case=case, version=version, gpu=CPU)
    outcome = judge([record], case, version, repro)
    return Entry(cell=cell, evidence=Evidence.MEASURED, outcome=outcome, record=record, records=(record,))


def write_script(entry: Entry, repro: Path, case: Path, folder: Path) -> dict[str, Any]:
    """Write the script of a cell and all that it reads; returns what ``expected.json`` holds."""
    expected = make_expected(entry, Calibration(), lay_out(case, folder))
    assert entry.record is not None
    script = make_script(repro.read_text(encoding="utf-8"), read_sources(), entry.record.product, expected)
    (folder / facts.EXPECTED).write_text(json.dumps(expected, allow_nan=False))
    (folder / facts.SCRIPT).write_text(script, encoding="utf-8")
    return expected
