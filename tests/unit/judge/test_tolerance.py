"""The user's own tolerance decides; the noise floor is told beside it; outputs are kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_case, make_cell, make_record
from model.test_own_model import Opened, npz, opened
from onnxmodels import mlp, normal

from trtmatrix.common.errors import ConfigError
from trtmatrix.judge.judge import judge
from trtmatrix.judge.noise import NO_FLOOR
from trtmatrix.judge.record import record_from
from trtmatrix.model.own_model import model_repro
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.suite.model import Outcome, Verdict
from trtmatrix.suite.repro_files import parse_repro, read_repro
from trtmatrix.suite.repros import Case
from trtprobe.cell import run_and_measure

__all__ = ["opened"]

NOISE = {"precision": "tf32", "outputs": {"y": {"fp32": 1e-7, "tf32": 1e-4}}}
OWN: dict[str, Any] = {"limits": {}, "keep": True}
WITHIN: dict[str, Any] = {"limits": {"beyond": 0.0}, "tolerance": {"atol": 1e-3, "rtol": 0.01}, "keep": True}


def judged(case: Case, rel_l2: float | None, noise: Any = None, **fields: Any) -> Outcome:
    cell = make_cell(case=case)
    record = make_record(cell, rel_l2=rel_l2, noise=noise or {}, **fields)
    return judge([record], case, cell.version, cell.repro)


@pytest.mark.parametrize(
    ("rel_l2", "reason"),
    [
        (1e-4, ""),
        (5e-4, "within atol 0.001, rtol 0.01; the noise floor does not decide: y: 5 noise floors"),
        (1e-2, "within atol 0.001, rtol 0.01; the noise floor fails it: y: 100 noise floors"),
    ],
)
def test_what_is_within_the_tolerance_passes_whatever_the_floor_says(rel_l2: float, reason: str) -> None:
    outcome = judged(make_case(**WITHIN), rel_l2, NOISE, scalars={"beyond": 0.0})
    assert outcome.verdict is Verdict.PASS
    assert outcome.reason.startswith(reason)
    assert bool(outcome.reason) == bool(reason)


def test_one_element_beyond_fails_however_small_the_error_is() -> None:
    outcome = judged(make_case(**WITHIN), 1e-9, NOISE, scalars={"beyond": 1.0})
    assert (outcome.verdict, outcome.reason) == (Verdict.FAIL, "beyond 1 > 0")


def test_without_a_floor_the_tolerance_alone_decides_and_else_only_what_is_exact_passes() -> None:
    outcome = judged(make_case(**WITHIN), 0.5, scalars={"beyond": 0.0})
    assert outcome.verdict is Verdict.PASS
    assert "there is no noise floor" in outcome.reason
    assert judged(make_case(**OWN), 1e-9) == Outcome(verdict=Verdict.INVALID, reason=NO_FLOOR, builds=1)
    assert judged(make_case(**OWN), None).reason == NO_FLOOR
    assert judged(make_case(**OWN), 0.0).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("nan", "zeros", "silent"), [(3, 0, True), (0, 3, True), (1, 2, True), (1, 1, False)]
)
def test_exact_outputs_of_nothing_but_zeros_and_nan_say_nothing(nan: int, zeros: int, silent: bool) -> None:
    cell = make_cell(case=make_case(**OWN))
    data = dict(make_record(cell, rel_l2=0.0).data)
    seen = {"count": 3, "nan": nan, "inf": 0, "zeros": zeros, "nan_unexpected": 0, "rel_l2": 0.0}
    seen["share_10_bits"] = 1.0  # as real numbers have it
    data["measurements"] = {**data["measurements"], "outputs": {"y": seen}}
    outcome = judge([record_from(data)], cell.case, cell.version, cell.repro)
    assert (outcome.verdict is Verdict.INVALID) is silent


SOURCE = """FACTS = {
    "title": "t", "upstream": "u", "url": "", "summary": "s", "figure": {"measure": "m", "label": "l"}
}"""


def parsed(**case: Any) -> Case:
    raw = {"id": "a", "params": {"precision": "tf32"}, **case}
    return parse_repro(SOURCE, "f.py", "f", [raw]).cases[0]


def test_a_tolerance_is_a_limit_and_outputs_may_be_kept() -> None:
    case = parsed(keep=True, tolerance={"atol": 1e-3, "rtol": 0.0}, limits={"slow": 2.0})
    assert (case.keep, case.limits, parsed().keep) == (True, {"slow": 2.0, "beyond": 0.0}, False)


def test_a_repros_noise_comes_from_one_function(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    body = "def cases(): yield {'id': 'a', 'params': {}}\ndef prepare(p): ...\ndef run(p, f, t): ...\n"
    file.write_text(f"{SOURCE}\n{body}def noise(p): ...\ndef emulate(p, a): ...\n")
    with pytest.raises(ConfigError, match="from one of them"):
        read_repro(file)


@pytest.mark.parametrize(("atol", "verdict"), [("1e-4", Verdict.PASS), ("1e-12", Verdict.FAIL)])
def test_a_run_is_judged_by_tolerance(atol: str, verdict: Verdict, opened: Opened, tmp_path: Path) -> None:
    for number in range(2):
        npz(tmp_path / "in" / f"{number}.npz", x=normal(number + 1, 64, seed=number))
    context = opened(mlp(), "--inputs", str(tmp_path / "in"), "--atol", atol)
    loaded = model_repro(context)
    (case,) = loaded.repro.cases
    folder = CaseCache(context.project.cache).prepare(loaded, case)
    result = run_and_measure({
        "product": "onnxruntime", "repro": str(loaded.file), "params": {**case.params, **case.tolerance},
        "files": str(folder), "keep_outputs": True,
    })  # fmt: skip
    assert result["ended"] == "ran", result["detail"]
    assert set(result["measurements"]["outputs"]) == set(result["kept"]) == {"y.s0", "y.s1"}
    outcome = judged(case, None, read_noise_file(folder), measurements=result["measurements"])
    assert outcome.verdict is verdict
    assert (result["measurements"]["scalars"]["beyond"] > 0) is (verdict is Verdict.FAIL)


def test_every_element_counts_and_nan_never_is_near(opened: Opened) -> None:
    beyond = model_repro(opened(mlp())).module.beyond
    r = np.array([1.0, -10.0, 0.0, np.inf, np.nan, 2.0])
    y = np.array([1.1, -11.0, 0.1, np.inf, np.nan, np.nan], np.float32)
    assert beyond(y, r, {"atol": 0.11, "rtol": 0.1}) == 2
    assert beyond(y, r, {"atol": 0.0, "rtol": 0.101}) == 3


@pytest.mark.parametrize("bad", [{"atol": -1.0, "rtol": 0.0}, {"atol": math.nan, "rtol": 0.0}, {"atol": 1.0}])
def test_a_tolerance_that_is_none_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="tolerance"):
        parsed(tolerance=bad)
