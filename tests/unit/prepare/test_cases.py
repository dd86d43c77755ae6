"""Prepared cases: made once, found by content, never half there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_case, make_loaded, make_repro
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trtmatrix.common.errors import UsageError
from trtmatrix.prepare.cases import (
    CaseCache,
    case_digest,
    case_key,
    read_content,
    smallest_exact,
)
from trtmatrix.suite.digest import Code
from trtmatrix.suite.repro_files import LoadedRepro
from trtprobe.files import CaseFiles

SHARED = np.arange(6, dtype=np.float32).reshape(2, 3)


def identity_model() -> onnx.ModelProto:
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "g", value[:1], value[1:]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


class Preparing(ModuleType):
    """A repro's module that counts how often it prepares."""

    def __init__(self, **result: Any) -> None:
        super().__init__("preparing")
        self.calls = 0
        self.result = result

    def prepare(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if "raise" in params:
            raise ZeroDivisionError("as asked")
        whole = {
            "model": identity_model(),
            "inputs": {"x": SHARED},
            "reference": {"y": SHARED.astype(np.float64)},
        }
        return {**whole, **self.result}


def loaded(digest: str = "d", **result: Any) -> LoadedRepro:
    repro = make_repro(digest=digest)
    return make_loaded(repro, Preparing(**result), file="sdpa_scale.py")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_case_is_prepared_once_and_whole(tmp_path: Path) -> None:
    cache, repro, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(repro, case)
    assert cache.prepare(repro, case) == folder == cache.folder(repro, case)
    assert repro.module.calls == 1
    assert files(folder) == ["case.json", "inputs/x.npy", "model.onnx", "reference/y.npy"]
    assert json.loads((folder / "case.json").read_text())["params"] == {"precision": "tf32"}
    np.testing.assert_array_equal(np.load(folder / "inputs" / "x.npy"), SHARED)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_case_may_bring_another_graph_to_check_and_more_arrays(tmp_path: Path) -> None:
    whole = loaded(check=identity_model(), extra={"weight": SHARED}, others={"plain": identity_model()})
    folder = CaseCache(tmp_path).prepare(whole, make_case())
    more = {"check.onnx", "extra/weight.npy", "others/plain.onnx"}
    assert set(files(folder)) == {"case.json", "inputs/x.npy", "model.onnx", "reference/y.npy"} | more
    assert (folder / "extra/weight.npy").samefile(folder / "inputs/x.npy")
    assert (folder / "others/plain.onnx").samefile(folder / "model.onnx"), "equal graphs share one file too"
    assert CaseFiles(folder).others == {"plain": folder / "others/plain.onnx"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"id": "other"}, True),
        ({"builds": 3}, True),
        ({"params": {"precision": "fp16"}}, False),
    ],
)
def test_a_folder_depends_on_the_parameters(change: dict[str, Any], same: bool) -> None:
    case = make_case()
    other = dataclasses.replace(case, **change)
    assert (case_key(loaded(), case) == case_key(loaded(), other)) is same
    assert (case_digest(case) == case_digest(other)) is same


@pytest.mark.parametrize(
    ("part", "same"), [({"noise": "a"}, False), ({"authoring": "a"}, False), ({"probe": "a"}, True)]
)
def test_a_folder_depends_on_the_code_that_makes_it(part: dict[str, str], same: bool) -> None:
    other = dataclasses.replace(loaded(), code=Code(**part))
    assert (case_key(other, make_case()) == case_key(loaded(), make_case())) is same


def test_what_a_product_is_given_has_a_digest_and_a_reference_is_no_part_of_it(tmp_path: Path) -> None:
    case, other = make_case(), {"reference": {"y": SHARED.astype(np.float64) + 1}}
    plain, judged = (loaded(digest, **given) for digest, given in (("d", {}), ("e", other)))
    extra = loaded("f", extra={"w": SHARED})
    folders = [CaseCache(tmp_path).prepare(repro, case) for repro in (plain, judged, extra)]
    contents = [read_content(folder) for folder in folders]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("result", "params"),
    [
        ({}, {"raise": 1}),
        ({"model": None}, {}),
        ({"inputs": None}, {}),
        ({"reference": {"y": object()}}, {}),
    ],
)
def test_a_prepare_that_fails_leaves_nothing(
    result: dict[str, Any], params: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="sdpa-tf32") as caught:
        CaseCache(tmp_path).prepare(loaded(**result), make_case(params=params))
    assert "python -m trtmatrix prepare sdpa-scale/sdpa-tf32 --traceback" in str(caught.value)
    assert files(tmp_path) == []


@given(arrays.arrays(np.float64, st.integers(0, 5), elements=st.floats(width=64)))
def test_narrowing_loses_nothing(array: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    narrow = smallest_exact(array)
    np.testing.assert_array_equal(narrow.astype(np.float64), array)
