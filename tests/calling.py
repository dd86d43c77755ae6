"""Projects over which the real command line is called as users call it, and how that ended."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from projects import ROOT, Column, files_of, matrix_text


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended: its code, what it printed, and what it told beside that."""

    code: int
    printed: str
    told: str

    @cached_property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.printed) if self.printed else {}
        return data

    def cell(self, case: str, version: str = "onnxruntime-1.31.1") -> dict[str, Any]:
        return next(c for c in self.data["cells"] if (c["case"], c["version"]) == (case, version))

    @property
    def cells(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {(cell["case"], cell["gpu"]): cell for cell in self.data["cells"]}

    def verdicts(self) -> dict[str, str]:
        return {cell["version"]: cell["verdict"] for cell in self.data["cells"]}


class Project:
    """matrix.yaml of some columns, results and cache in a folder; ``environment``: of its commands."""

    def __init__(self, folder: Path, columns: Sequence[Column], repros: Path = ROOT / "repros") -> None:
        self.folder, self.results, self.cache = folder, folder / "results", folder / "cache"
        self.repros = repros
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        (folder / "matrix.yaml").write_text(matrix_text(*columns))

    @property
    def files(self) -> list[str]:
        return files_of(self.folder, self.repros)

    def start(self, *words: str, asked: int = subprocess.DEVNULL, **variables: Any) -> subprocess.Popen[str]:
        """Start ``trtmatrix`` without the project's files, with further environment variables."""
        return subprocess.Popen(
            [sys.executable, "-m", "trtmatrix", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=self.folder, stdin=asked, env={**self.environment, **variables},
        )  # fmt: skip

    def call_bare(self, *words: str, **variables: Any) -> Done:
        """The same to its end."""
        process = self.start(*words, **variables)
        try:
            printed, told = process.communicate(timeout=400)
        finally:
            process.kill()
        return Done(code=process.returncode, printed=printed, told=told)

    def call(self, command: str, *words: str, **variables: Any) -> Done:
        return self.call_bare(command, *self.files, *words, **variables)

    def run(self, model: Path, *words: str, inputs: Path | None = None) -> Done:
        """Run a model with the samples beside it, if it has any, or with others, and print JSON."""
        inputs = inputs or model.parent / "inputs"
        given = [f"--inputs={inputs}"] if inputs.is_dir() else []
        return self.call("run", f"--model={model}", *given, "--json", *words)

    def record(self, place: str) -> dict[str, Any]:
        """Return the newest record of a version, or of ``version/repro``."""
        newest = max(self.results.rglob(f"{place}/**/*.json"))
        record: dict[str, Any] = json.loads(newest.read_text())
        return record
