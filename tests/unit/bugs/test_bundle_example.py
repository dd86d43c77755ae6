"""The archive that is kept as an example is whole, and what this version makes."""

from __future__ import annotations

from pathlib import Path

from trtmatrix.bugs.script import TEMPLATE, read_recorded
from trtmatrix.common.archive import read_archive

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "bundle"
ARCHIVE = FOLDER / "wrong-scale-tf32-8.6.0.tar.gz"


def test_it_unpacks_and_its_script_is_the_template_with_other_constants(tmp_path: Path) -> None:
    top = read_archive(ARCHIVE, tmp_path)
    assert (top / "ISSUE.md").read_bytes() == (FOLDER / "ISSUE.md").read_bytes()
    script, template = (file.read_text(encoding="utf-8") for file in (top / "repro.py", TEMPLATE))
    assert len(script.splitlines()) == len(template.splitlines()) <= 120
    differ = [
        one for one, other in zip(script.splitlines(), template.splitlines(), strict=True) if one != other
    ]
    assert {line.partition(":")[0].partition(" =")[0] for line in differ} == {"RECORDED", "LIMITS"}
    assert read_recorded(script)["gpu"] == "NVIDIA H200"
