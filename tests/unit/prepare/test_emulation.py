"""What the host emulates of a case: the ensemble's errors, the defects' shapes, scales of softmax."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_loaded, make_repro
from prepare.test_cases import SHARED, Preparing, files

from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, POSSIBLE, Arithmetic
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.prepare.noise import compute_noise
from trtmatrix.suite.repro_files import LoadedRepro


class Emulating(Preparing):
    """A repro's module that emulates y = x·w, in which a half, or nothing at all, may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, bool]] = []

    def emulate(
        self, params: dict[str, Any], arithmetic: Arithmetic, defect: str = "", seed: int = 0,
        small: bool = False,
    ) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
        if params.get("broken"):
            raise ZeroDivisionError("as asked")
        self.asked.append((defect, small))
        draw = np.random.default_rng(seed)
        x, w = (draw.standard_normal((64, 64)).astype(np.float32) for _ in "xw")
        factor = {"": 1.0, "lost-nothing": 1.0, "lost-half": 0.5}[defect]
        return {"y": factor * arithmetic.matmul(x[: 8 if small else 64], w)}

    def prepare(self, params: dict[str, Any]) -> dict[str, Any]:
        reference = self.emulate(params, FLOAT64) if not params.get("broken") else {"y": SHARED.astype(float)}
        self.asked.clear()
        return {**super().prepare(params), "reference": reference}


DEFECTS = ("lost-half", "lost-nothing")


def emulating() -> LoadedRepro:
    return make_loaded(make_repro(), Emulating())


def test_a_case_that_is_emulated_has_its_noise_and_the_shapes_of_its_defects(tmp_path: Path) -> None:
    repro, case = emulating(), make_case(defects=DEFECTS, noise_key="sdpa-scale: precision=tf32")
    folder = CaseCache(tmp_path).prepare(repro, case)
    assert "defects/lost-half/y.npy" in files(folder)
    assert "lost-nothing" not in " ".join(files(folder)), "what changes nothing has no shape"
    d, reference = np.load(folder / "defects/lost-half/y.npy"), np.load(folder / "reference/y.npy")
    assert d.dtype == np.float32
    np.testing.assert_allclose(d, -0.5 * reference, rtol=1e-6)
    noise = read_noise_file(folder)
    assert (noise["key"], noise["precision"]) == ("sdpa-scale: precision=tf32", "tf32")
    assert noise["defects"] == {"lost-half": {"y": pytest.approx(0.5)}}
    errors, c = noise["outputs"]["y"], noise["c"]["lost-half"]
    assert set(errors) == set(c) == {*ENSEMBLE["fp32"], *ENSEMBLE["tf32"], *POSSIBLE["tf32"]}
    assert errors["fp32"] < 1e-6 < 1e-4 < errors["tf32"] < errors["tf32-truncated"] < 1e-2
    assert all(abs(value) < 1e-2 for value in c.values())
    assert "scales" not in noise


def test_noise_that_several_cases_share_is_computed_once(tmp_path: Path) -> None:
    cache, repro = CaseCache(tmp_path), emulating()
    shared: dict[str, Any] = {"defects": DEFECTS, "noise_key": "k"}
    first = cache.prepare(repro, make_case(params={"precision": "tf32", "level": 0}, **shared))
    asked = list(repro.module.asked)
    second = cache.prepare(repro, make_case(params={"precision": "tf32", "level": 3}, **shared))
    assert asked
    assert repro.module.asked == []
    assert (first / "defects/lost-half/y.npy").samefile(second / "defects/lost-half/y.npy")
    assert read_noise_file(first) == read_noise_file(second)
    third = make_case(params={"precision": "tf32", "level": 4}, defects=(), noise_key="k")
    assert read_noise_file(cache.prepare(repro, third))["defects"] == {}


class Scaled(ModuleType):
    """softmax(scale · s) @ v, whose scale may be another."""

    def softmax_scale(self, params: dict[str, Any]) -> float:
        del params
        return 0.25

    def emulate(
        self, params: dict[str, Any], arithmetic: Arithmetic, defect: str = "", seed: int = 0,
        small: bool = False,
    ) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
        del params, small
        draw = np.random.default_rng(seed)
        scores, v = draw.standard_normal((32, 64)), draw.standard_normal((64, 8))
        factor = 2.0 if defect == "lost-scale" else float((defect or "scale*1").partition("*")[2])
        scores = (0.25 * factor * scores).astype(arithmetic.working)
        return {"y": arithmetic.softmax_matmul(scores, v.astype(arithmetic.working))}


def test_the_signature_of_a_lost_scale_is_known_for_other_scales() -> None:
    module = Scaled("scaled")
    repro = make_loaded(make_repro(), module)
    params = {"precision": "fp32"}
    case = make_case(defects=("lost-scale",), params=params)
    noise, shapes = compute_noise(repro, case, module.emulate(params, FLOAT64))
    assert noise["scales"]["right"] == 0.25
    curve = dict(noise["scales"]["curve"])
    assert (min(curve), max(curve)) == (0.1, 8.0)
    assert (curve[1.0], curve[2.0]) == (0.0, pytest.approx(1.0))
    assert list(curve.values()) == sorted(curve.values())
    assert set(shapes) == {"lost-scale"}
