"""What the host measures of a trial's outputs, in place of the probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtmatrix.run.session import _measure, _without_reference
from trtprobe.files import CaseFiles, write_json


def made(folder: Path, *engines: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """Return what the probe leaves of some engines, and the folder with their outputs."""
    (folder / "case" / "reference").mkdir(parents=True)
    (folder / "case" / "inputs").mkdir()
    (folder / "out").mkdir()
    np.save(folder / "case" / "inputs" / "x.npy", np.ones(3))
    write_json(folder / "case" / "case.json", {"params": {}})
    kept, builds = {}, []
    for number, outputs in enumerate(engines):
        for name, array in outputs.items():
            np.save(folder / "case" / "reference" / f"{name}.npy", np.full((2, 2), 2.0))
            np.save(folder / "out" / f"{name}{f'@{number}' if number else ''}.npy", array)
            kept[f"{name}{f'@{number}' if number else ''}"] = {"dtype": "float32", "shape": list(array.shape)}
        builds.append(
            {"measurements": {"outputs": {name: {"count": array.size} for name, array in outputs.items()}}}
        )
    data = {"ended": "ran", "detail": "", "kept": kept, **builds[0]}
    return {**data, **({"builds": builds} if len(builds) > 1 else {})}, folder


def test_each_engine_is_measured_against_the_reference(tmp_path: Path) -> None:
    right, wrong = np.full((2, 2), 2, np.float32), np.full((2, 2), np.nan, np.float32)
    data, folder = made(tmp_path, {"y": right, "z": 2 * right}, {"y": wrong, "z": right})
    _measure(data, folder / "out", CaseFiles(folder / "case"))
    first, second = (build["measurements"]["outputs"] for build in data["builds"])
    assert (first["y"]["rel_l2"], first["z"]["rel_l2"], second["z"]["rel_l2"]) == (0.0, 1.0, 0.0)
    assert second["y"]["nan_unexpected"] == 4
    assert data["measurements"]["outputs"] == first
    assert (data["ended"], "kept" in data) == ("ran", False)


def test_both_shapes_are_named_and_the_other_outputs_measured(tmp_path: Path) -> None:
    data, folder = made(tmp_path, {"y": np.full((2, 2), 3.0), "z": np.ones((2, 1))})
    _measure(data, folder / "out", CaseFiles(folder / "case"))
    assert data["measurements"]["outputs"]["y"]["rel_l2"] == pytest.approx(0.5)
    assert "z" not in data["measurements"]["outputs"]
    assert (data["ended"], data["detail"]) == ("probe failed", "z: shape (2, 1), the reference has (2, 2)")


def test_what_did_not_run_is_left_as_it_is(tmp_path: Path) -> None:
    data, folder = made(tmp_path, {"y": np.ones((2, 2))})
    before = {**data, "ended": "crashed"}
    after = dict(before)
    _measure(after, folder / "out", CaseFiles(folder / "case"))
    assert after == {name: value for name, value in before.items() if name != "kept"}


def test_the_probe_is_given_no_reference(tmp_path: Path) -> None:
    _, folder = made(tmp_path, {"y": np.ones((2, 2))})
    bare = CaseFiles(_without_reference(folder / "case"))
    assert (dict(bare.reference), list(bare.inputs), bare.params) == ({}, ["x"], {})
