"""What each number of an output says, and engine plans that cells share."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy
from numpy.typing import NDArray

from trtprobe import measure, plans
from trtprobe.files import write_json
from trtprobe.job import Job, Limits
from trtprobe.measure import measure_output, measure_with_signatures
from trtprobe.plans import Plans

Array = NDArray[Any]

FLOATS = (np.float16, np.float32, np.float64)
ANY = st.floats(-1e3, 1e3, width=16) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Draw an output in any float dtype, a float64 reference and a float32 defect of its shape."""
    shape = draw(numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    dtypes = (draw(st.sampled_from(FLOATS)), np.float64, np.float32)
    y, r, d = (draw(numpy.arrays(dtype, shape, elements=ANY)) for dtype in dtypes)
    return y, r, d


def plain(y: Array, r: Array) -> dict[str, float]:
    """Measure element by element, as the definitions read."""
    both = [(float(a), float(b)) for a, b in zip(y.ravel(), r.ravel(), strict=True)]
    finite = [(a, b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    errors = [abs(a - b) for a, b in finite]
    error, norm = math.hypot(*errors), math.hypot(*(b for _, b in finite))
    missed = sum(math.isinf(b) and a != b for a, b in both)
    return {
        "count": len(both),
        "nan": sum(math.isnan(a) for a, _ in both),
        "inf": sum(math.isinf(a) for a, _ in both),
        "nan_unexpected": sum(unexpected(a, b) for a, b in both),
        **({"inf_missed": missed} if missed else {}),
        "zeros": sum(a == 0 for a, _ in both),
        "max_abs": max(errors, default=0.0),
        "mean_abs": math.fsum(errors) / max(1, len(errors)),
        "sum_abs": math.fsum(errors),
        "rel_l2": error / norm if norm else math.inf if error else 0.0,
        "share_zeros": sum(a == 0 for a, _ in both) / max(1, len(both)),
        "share_not_close": sum(not close(a, b) for a, b in both) / max(1, len(both)),
        "cosine": cosine(finite),
        "psnr": psnr(errors, [b for _, b in finite]),
        **worst(both),
        **share_10_bits(y),
    }


def unexpected(a: float, b: float) -> bool:
    return (math.isfinite(b) and not math.isfinite(a)) or (math.isinf(b) and a != b)


def share_10_bits(y: Array) -> dict[str, float]:
    if y.dtype != np.float32:
        return {"share_10_bits": 1} if y.dtype == np.float16 else {}
    bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in y.ravel()]
    return {"share_10_bits": sum(number % (1 << 13) == 0 for number in bits) / max(1, len(bits))}


def close(a: float, b: float) -> bool:
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) <= measure.ATOL + measure.RTOL * abs(b)
    return a == b


def cosine(finite: list[tuple[float, float]]) -> float:
    y, r = math.hypot(*(a for a, _ in finite)), math.hypot(*(b for _, b in finite))
    if not y or not r:
        return float(y == r)
    return math.fsum(a * b for a, b in finite) / y / r


def psnr(errors: list[float], reference: list[float]) -> float:
    if not any(errors):
        return math.inf
    peak = max(map(abs, reference))
    mean = math.fsum(e * e for e in errors) / len(errors)
    return 20 * math.log10(peak) - 10 * math.log10(mean) if peak else -math.inf


def worst(both: list[tuple[float, float]]) -> dict[str, float]:
    """The place and values of the first unexpected NaN or infinity, else of the largest error."""
    bad = [i for i, pair in enumerate(both) if unexpected(*pair)]
    fine = [i for i, (a, b) in enumerate(both) if math.isfinite(a) and math.isfinite(b)]
    at = bad[0] if bad else max(fine, key=lambda i: abs(both[i][0] - both[i][1]), default=None)
    return {} if at is None else {"worst_at": at, "worst_y": both[at][0], "worst_r": both[at][1]}


BIG = 2**60


@pytest.mark.parametrize(
    ("y", "r", "dtype", "error"),
    [
        ([BIG + 1, 5], [BIG, 5], np.int64, 1),
        ([2**63 - 1, 5], [-(2**63), 5], np.int64, 2**64 - 1),
        ([2**64 - 1, 5], [2**64 - 2, 5], np.uint64, 1),
        ([BIG, 5], [BIG, 5], np.int64, 0),
    ],
)
def test_integers_are_compared_as_integers(y: list[int], r: list[int], dtype: Any, error: int) -> None:
    measured = measure_output(np.array(y, dtype), np.array(r, dtype))
    assert (measured["max_abs"], measured["rel_l2"] == 0) == (float(error), error == 0)
    assert (measured["worst_y"], measured["worst_r"]) == (y[0], r[0])


def test_an_engine_s_int32_is_compared_with_an_int64_and_other_integers_with_floats() -> None:
    assert measure_output(np.array([7], np.int32), np.array([BIG]))["max_abs"] == float(BIG - 7)
    for dtype in (np.int64, np.int8, np.bool_):
        assert measure_output(np.array([1], dtype), np.array([1.5]))["max_abs"] == 0.5


def plain_signature(y: Array, r: Array, d: Array) -> dict[str, float]:
    """Compute the signature element by element, as the definitions read; empty where d is zero."""
    rows = [tuple(map(float, row)) for row in zip(y.ravel(), r.ravel(), d.ravel(), strict=True)]
    both = [(a - b, c) for a, b, c in rows if all(map(math.isfinite, (a, b, c)))]
    product = math.fsum(e * c for e, c in both)
    error2, defect2 = math.fsum(e * e for e, _ in both), math.fsum(c * c for _, c in both)
    if not defect2:
        return {}
    return {"c": product / defect2, "explained": product**2 / error2 / defect2 if error2 else 0}


@given(drawn(), st.integers(1, 7))
def test_each_number_is_what_its_name_says(arrays: tuple[Array, Array, Array], block: int) -> None:
    y, r, d = arrays
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BLOCK", block)
        measured, signatures = measure_with_signatures(y, r, {"a": d, "b": -d, "c": np.zeros(d.shape)})
        assert measured == pytest.approx(plain(y, r), rel=1e-9, abs=1e-12, nan_ok=True)
        wanted = {name: found for name, x in (("a", d), ("b", -d)) if (found := plain_signature(y, r, x))}
        assert signatures.keys() == wanted.keys()
        for name, found in wanted.items():
            assert signatures[name] == pytest.approx(found, rel=1e-9, abs=1e-12)


# Engine plans that cells share: how many are kept, and what is not.
FACTS = {"build_seconds": 1.5, "engine_bytes": 4}
PLAN = memoryview(b"plan")


def test_no_more_is_kept_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "ALL", 9)
    for number, name in enumerate("abc"):
        Plans(tmp_path / str(number), "r/a").keep(name, PLAN, FACTS)
    assert [Plans(tmp_path / "9").find(name) is not None for name in "abc"] == [True, True, False]


def test_a_plan_that_cannot_be_kept_costs_no_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    Plans(tmp_path / "file" / "0", "r/a").keep("a", PLAN, FACTS)
    monkeypatch.setattr(plans, "LARGEST", 3)
    large = Plans(tmp_path / "0", "r/a")
    large.keep("a", PLAN, FACTS)
    assert large.find("a") is None


def test_plans_do_not_count_as_a_cell_s_output(tmp_path: Path) -> None:
    for folder in ("job", "out/0"):
        (tmp_path / folder).mkdir(parents=True)
    write_json(tmp_path / "job" / "job.json", {"product": "tensorrt", "output_bytes": 100_000})
    (tmp_path / "job" / "heartbeat").touch()
    limits = Limits(Job(tmp_path / "job"), tmp_path / "out", 60.0)
    assert limits.check() is None
    plan = memoryview(bytes(1 << 20))
    Plans(tmp_path / "out" / plans.FOLDER / "0", "r/a").keep("a", plan, FACTS)
    assert limits.check() is None
    (tmp_path / "out" / "0" / "y.npy").write_bytes(plan)
    assert limits.check() is not None
