"""What every repro's emulate() promises; graphs of controls are right or off by exactly their defect."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from projects import ROOT

from tests.numerics.graphs import Array, on_onnxruntime, relative
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, Arithmetic
from trtmatrix.judge.entry import expected_verdict
from trtmatrix.judge.factors import ALLOWED
from trtmatrix.plan.context import read_matrix
from trtmatrix.suite.cells import Selection, expand
from trtmatrix.suite.model import NO_GPU, Control, Product, Verdict
from trtmatrix.suite.repro_files import read_repros
from trtprobe.cell import load_repro

Outputs = dict[str, Array]
LOADED = {path.stem: load_repro(path) for path in sorted((ROOT / "repros").glob("*.py"))}
REPROS = {name: module for name, module in LOADED.items() if hasattr(module, "emulate")}
FEWER = {"sdpa_scale": {"batch": 1, "heads": 3}, "flash_attention": {"batch": 3, "heads": 2}}
"""Params that make a whole case quick: fewer heads also make the sums of the projections shorter."""
CASES = {
    f"{repro}-{case['id']}": (module, case)
    for repro, module in REPROS.items()
    for case in ({**case, "params": {**case["params"], **FEWER.get(repro, {})}} for case in module.cases())
    if case["params"].get("precision")
}
Pair = tuple[ModuleType, dict[str, Any]]


def first_of(key: Any, *, defect: str = "") -> dict[str, Pair]:
    """The first case of each kind, of those that can have a defect: the others would say the same."""
    found: dict[Any, tuple[str, Pair]] = {}
    for name, (module, case) in CASES.items():
        if defect not in {"", *case.get("defects", ())}:
            continue
        found.setdefault((module.__file__, *key(module, case)), (name, (module, case)))
    return dict(found.values())


BY_DEFECTS = first_of(lambda _, case: (case["params"]["precision"] == "fp16", *case.get("defects", ())))
BY_PRECISION = first_of(lambda _, case: (ALLOWED[case["params"]["precision"]][-1],))
BY_SCALE = first_of(lambda *_: (), defect="lost-scale")
BY_NOISE = first_of(lambda module, case: [case["params"][name] for name in module.NOISE])


def member(params: dict[str, Any]) -> Arithmetic:
    """The plainest of the coarsest arithmetics that a precision allows."""
    return next(iter(ENSEMBLE[ALLOWED[params["precision"]][-1]].values()))


def same(a: Outputs, b: Outputs) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


UNEVEN = {"causal-ahead"}  # defects of the first few queries, of which a part has more or fewer


@pytest.mark.parametrize("name", BY_PRECISION | BY_DEFECTS)
def test_float64_is_the_reference_and_the_small_part_as_noisy_and_as_wrong_as_the_whole(name: str) -> None:
    module, case = CASES[name]
    params, seen = case["params"], []
    for small in (False, True):
        right = module.emulate(params, FLOAT64, small=small)
        results = {"": module.emulate(params, member(params), small=small)}
        for defect in set(case.get("defects", ())) - UNEVEN:
            results[defect] = module.emulate(params, FLOAT64, defect, small=small)
        seen.append(
            {(d, name): relative(y, right[name]) for d, ys in results.items() for name, y in ys.items()}
        )
        assert small or same(right, module.prepare(params)["reference"]), "bit for bit"
    assert seen[1] == pytest.approx(seen[0], rel=0.15)


@pytest.mark.parametrize("name", BY_SCALE)
def test_the_scale_can_be_set(name: str) -> None:
    module, case = CASES[name]
    params = case["params"]
    right, whole, lost, factor = (
        module.emulate(params, FLOAT64, defect, small=True)
        for defect in ("", "scale*1", "lost-scale", f"scale*{module.softmax_scale(params) ** -0.5!r}")
    )
    assert same(right, whole)
    for output in lost:
        np.testing.assert_allclose(lost[output], factor[output], rtol=1e-9, atol=1e-12)
    assert not same(module.emulate(params, FLOAT64, "scale*0.5", small=True), right)


@pytest.mark.parametrize("name", BY_PRECISION)
def test_noise_names_all_that_is_needed(name: str) -> None:
    module, case = CASES[name]
    params = case["params"]
    needed = {key: params[key] for key in module.NOISE}
    assert same(*(module.emulate(p, member(params), small=True) for p in (params, needed)))


@pytest.mark.parametrize("name", sorted(BY_NOISE.keys() - BY_PRECISION.keys()))
def test_every_case_can_be_emulated(name: str) -> None:
    module, case = CASES[name]
    saturated = "amplitude1000" in name  # in FP16 its scores are beyond 65504
    with np.errstate(invalid="ignore" if saturated else "raise", over="ignore"):
        outputs = module.emulate(case["params"], member(case["params"]), small=True)
    assert all(saturated or np.isfinite(y).all() for y in outputs.values())


def test_a_negative_control_is_expected_to_fail_at_every_version_of_tensorrt() -> None:
    repros = [loaded.repro for loaded in read_repros(ROOT / "repros")]
    wrong = [
        f"{cell.id}: {expected}"
        for cell in expand(read_matrix(ROOT / "matrix.yaml"), repros, (NO_GPU,), Selection())
        if cell.version.product is Product.TENSORRT and cell.case.control is Control.NEGATIVE
        if (expected := expected_verdict(cell)) is not Verdict.FAIL
    ]
    assert not wrong


CONTROLS = {case["id"]: case for case in REPROS["controls"].cases()}


def test_each_precision_has_a_right_and_a_wrong_graph() -> None:
    (repro,) = (loaded.repro for loaded in read_repros(ROOT / "repros") if loaded.repro.id == "controls")
    found = {(case.precision, case.control) for case in repro.cases}
    assert found == {(p, c) for p in ("tf32", "fp32", "fp16", "fp16-flag") for c in Control}


@pytest.mark.parametrize("name", CONTROLS)
def test_right_graphs_compute_the_reference_and_wrong_ones_the_defect(name: str) -> None:
    case = CONTROLS[name]
    prepared = REPROS["controls"].prepare(case["params"])
    expected = REPROS["controls"].emulate(case["params"], FLOAT64, case.get("defect", ""))
    outputs = on_onnxruntime(prepared["model"], prepared["inputs"])
    assert set(outputs) == set(prepared["reference"]) == set(expected)
    for output, y in outputs.items():
        assert relative(y, expected[output]) < (2e-3 if name.endswith("fp16") else 2e-6)
        if case["control"] == "negative":
            assert relative(y, prepared["reference"][output]) > 1
