"""Bundles: what is private, when a failure counts as come back, and the archive that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtmatrix.bugs.redact import Redactor, known_values
from trtmatrix.bugs.script import TEMPLATE, as_code, read_recorded
from trtmatrix.bugs.verify import compare
from trtmatrix.common.archive import read_archive


def test_a_setting_that_is_a_word_of_the_program_is_no_secret() -> None:
    values = known_values(environment={"UV_KEYRING_PROVIDER": "subprocess", "API_TOKEN": "hunter2hunter2"})
    assert "subprocess" not in values
    text = "import subprocess  # hunter2hunter2"
    assert Redactor(known=values).clean("repro.py", text).startswith("import subprocess  # [")


@pytest.mark.parametrize(
    ("recorded", "said", "same"),
    [((1.1e16, 1.7e16), "3.0", True), ((0.5, 0.6), "4.9", True), ((0.5, 0.6), "900", False)],
)
def test_absurd_numbers_are_the_same_failure_whatever_their_size(
    recorded: tuple[float, float], said: str, same: bool
) -> None:
    line = f"y: {said}, right up to 1e-06, wrong from 2e-06: WRONG\nrecorded: {{}}\n"
    assert (list(compare({"wrong": {"y": recorded}}, line)) == []) is same


def test_a_recorded_error_may_be_nan() -> None:
    recorded = {"how": "y: NaN", "wrong": {"y": (1.5, float("nan"))}}
    told = read_recorded(f"RECORDED: Dict[str, Any] = {as_code(recorded)}  # what was seen, and where\n")
    assert told["wrong"] == {"y": (1.5, "nan")}
    assert list(compare(told, "\ny: nan, right up to 1e-06, wrong from 2e-06: WRONG\nrecorded: {}\n")) == []


def test_another_shape_is_not_the_wrong_numbers_that_were_recorded() -> None:
    recorded = {"how": "y: wrong", "wrong": {"y": (0.5, 0.6)}}
    said = "y: wrong shape: (1,) instead of (2,): WRONG\nrecorded: {}\n"
    assert list(compare(recorded, said)) == ["something else is wrong; recorded: y"]


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
