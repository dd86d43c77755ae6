"""The archive that is kept as an example is whole, and what stands beside it is its own."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from trtmatrix.effects.unpack import read_archive

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples" / "bundle"
ARCHIVE = FOLDER / "wrong-scale-tf32-8.6.0.tar.gz"


def test_it_unpacks_and_each_file_has_its_digest(tmp_path: Path) -> None:
    top = read_archive(ARCHIVE, tmp_path)
    assert (top / "ISSUE.md").read_bytes() == (FOLDER / "ISSUE.md").read_bytes()


def test_it_is_the_one_that_was_verified() -> None:
    told = json.loads((FOLDER / f"{ARCHIVE.name}.verify.json").read_text())
    assert told["verified"]
    assert told["sha256"] == sha256(ARCHIVE.read_bytes()).hexdigest()
    assert told["gpu"] == "NVIDIA H200"
