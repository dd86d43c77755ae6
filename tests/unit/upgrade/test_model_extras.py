"""What a report tells of a user's model beside its verdicts, also where little of it is there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_entry, make_loaded, make_repro

from trtmatrix.judge.entry import Entry
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.records.store import keep_outputs
from trtmatrix.suite.model import Cause
from trtmatrix.upgrade.model_section import add_extras
from trtmatrix.upgrade.report import ModelSection

BEFORE, AFTER = "8.6.1", "10.8.0"
REPRO = make_repro(make_case("fp32", keep=True), id="my-0")
SECTION = ModelSection(name="my.onnx", repro="my-0", facts=(), reference="", floor="", cases=())


def make_context(folder: Path, samples: int = 1) -> Any:
    module = ModuleType("my")
    module.OUTPUTS, module.SAMPLES = {"y_0": "y/0"}, samples  # type: ignore[attr-defined]
    loaded = make_loaded(REPRO, module)
    return SimpleNamespace(repros={"my-0": loaded}, project=SimpleNamespace(cache=folder))


def entry(folder: Path, version: str, *arrays: Any, **fields: Any) -> Entry:
    """An entry whose record kept these samples."""
    kept: dict[str, Any] = {}
    for number, array in enumerate(arrays):
        name = f"y_0.s{number}" if len(arrays) > 1 else "y_0"
        folder.mkdir(exist_ok=True)
        np.save(folder / f"{name}.npy", array)
        kept |= keep_outputs(folder, folder, {name: {}})
    more: dict[str, Any] = {"kept": kept} if kept else {}
    return make_entry(make_cell(REPRO, REPRO.cases[0], version), **more, **fields)


def extras(folder: Path, entries: list[Entry], samples: int = 1, **args: Any) -> ModelSection:
    return add_extras(SECTION, make_context(folder, samples), entries, BEFORE, AFTER, ModelOptions(**args))


def test_kept_outputs_of_all_samples_are_compared(tmp_path: Path) -> None:
    one, two = np.ones(3, np.float32), np.zeros(3, np.float32)
    entries = [entry(tmp_path, BEFORE, one, two), entry(tmp_path, AFTER, one, two + 1)]
    section = extras(tmp_path, entries, samples=2)
    (found,) = section.differences
    assert (found.output, found.max_abs, found.worst_sample, found.samples) == ("y/0", 1.0, 1, 2)
    assert section.troubles == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ended": Cause.BUILD_FAILED.value}, "at 10.8.0 it ended with: build failed"),
        ({}, "none were kept at 10.8.0: python -m trtmatrix run --model … --trt 10.8.0 --rerun"),
    ],
)
def test_a_version_without_outputs_is_told_with_what_would_supply_them(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    entries = [entry(tmp_path, BEFORE, np.ones(3)), entry(tmp_path, AFTER, **fields)]
    section = extras(tmp_path, entries, check=Path("accept.py"))
    assert section.differences == ()
    assert section.troubles == (f"the two versions' outputs cannot be compared: {words}",)
    assert section.check is not None
    assert section.check.passed is None
    assert section.check.error == f"accept.py was not run: {words}"


def test_the_script_is_given_both_versions_and_no_reference_where_there_is_none(tmp_path: Path) -> None:
    script = tmp_path / "accept.py"
    script.write_text(
        "def check(before, after, reference):\n"
        "    a, b = before[0]['y/0'], after[0]['y/0']\n"
        "    return reference is None and bool((a != b).all()), float(b[0])\n"
    )
    entries = [entry(tmp_path / "c", BEFORE, np.ones(3)), entry(tmp_path / "c", AFTER, np.full(3, 2.0))]
    section = extras(tmp_path / "c", entries, check=script)
    assert section.check is not None
    assert (section.check.passed, section.check.figure, section.check.error) == (True, 2.0, "")
    assert list((tmp_path / "c" / "checks").iterdir()) == []


def test_an_output_that_is_gone_is_not_given_and_told(tmp_path: Path) -> None:
    script = tmp_path / "accept.py"
    script.write_text("def check(before, after, reference):\n    return after == [{}]\n")
    entries = [entry(tmp_path / "c", BEFORE, np.ones(3)), entry(tmp_path / "c", AFTER, np.zeros(3))]
    record = entries[1].record
    assert record is not None
    (tmp_path / "c" / "outputs" / f"{record.data['kept']['y_0']['sha256']}.npz").unlink()
    section = extras(tmp_path / "c", entries, check=script)
    assert section.check is not None
    assert section.check.passed is True
    assert any("is not given y/0 of sample 0 at 10.8.0" in trouble for trouble in section.troubles)
