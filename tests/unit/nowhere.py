"""A host without GPU, engine and records of its own, over the shipped matrix, repros and records."""

from pathlib import Path

import pytest

from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan import survey
from trtmatrix.upgrade import command

ROOT = Path(__file__).parents[2]


def go_nowhere(monkeypatch: pytest.MonkeyPatch, folder: Path, records: str = "nvidia-*") -> None:
    """Make such a project in a folder, with these of the shipped records, and go there."""
    results = folder / "project" / "results"
    for found in ROOT.glob(f"results/{records}"):
        place = results.parent / found.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(found)
    for name in ("matrix.yaml", "repros"):
        (results.parent / name).symlink_to(ROOT / name)
    monkeypatch.chdir(results.parent)
    monkeypatch.setenv("TRTMATRIX_CACHE", str(folder / "cache"))
    scan = GpuScan(gpus=(), reason="none in this test")
    for module in (command, survey):
        monkeypatch.setattr(module, "find_gpus", lambda: scan)
