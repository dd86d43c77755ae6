"""A host without GPU, engine and records of its own, over the shipped matrix, repros and records."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan import survey
from trtmatrix.upgrade import command

ROOT = Path(__file__).parents[2]


def go_nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make such a project in a folder and go there."""
    results = folder / "project" / "results"
    results.mkdir(parents=True)
    for gpu in (ROOT / "results").glob("nvidia-*"):
        (results / gpu.name).symlink_to(gpu)
    for name in ("matrix.yaml", "repros"):
        (results.parent / name).symlink_to(ROOT / name)
    monkeypatch.chdir(results.parent)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/none.sock")
    monkeypatch.setenv("TRTMATRIX_CACHE", str(folder / "cache"))
    scan = GpuScan(gpus=(), reason="none in this test")
    for module in (command, survey):
        monkeypatch.setattr(module, "find_gpus", lambda: scan)
