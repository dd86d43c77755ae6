"""How far two versions are apart: over samples, block by block, with what cannot be compared told."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtmatrix.judge.differences import Difference, compare_outputs
from trtmatrix.records.store import keep_outputs, read_kept

NAMES = ("8.6.1", "10.8.0")


def samples(*arrays: Any) -> list[Any]:
    return [None if array is None else np.asarray(array) for array in arrays]


def compare(before: Any, after: Any) -> Difference:
    (found,) = compare_outputs({"y": before}, {"y": after}, NAMES)
    return found


ROWS = st.lists(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=9), min_size=1, max_size=4)


@settings(max_examples=40)
@given(ROWS, st.data())
def test_figures_are_those_of_all_samples_together(rows: list[list[float]], data: st.DataObject) -> None:
    a = [np.array(row, np.float32) for row in rows]
    b = [x + np.array(data.draw(st.lists(st.sampled_from([0, 0.5, -2]), min_size=x.size, max_size=x.size)),
                      np.float32) for x in a]  # fmt: skip
    found = compare(samples(*a), samples(*b))
    whole_a, whole_b = np.concatenate(a).astype(np.float64), np.concatenate(b).astype(np.float64)
    error = np.abs(whole_a - whole_b)
    assert found.max_abs == error.max()
    assert found.mean_abs == pytest.approx(error.mean())
    assert np.abs(a[found.worst_sample].astype(np.float64) - b[found.worst_sample]).max() == error.max()
    norm = float(np.linalg.norm(whole_a))
    if norm > 1e-3:
        assert found.rel_l2 == pytest.approx(np.linalg.norm(whole_a - whole_b) / norm)
    assert found.samples == len(rows)
    assert ("bitwise equal" in found.note) is (whole_a.tobytes() == whole_b.tobytes())


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ([1.0, math.nan, math.inf], [1.0, math.nan, math.inf], "bitwise equal"), ([0.0], [-0.0], ""),
        (
            np.array([1], np.int32), np.array([1], np.int64),
            "int32 [1] at 8.6.1, int64 [1] at 10.8.0: compared as numbers",
        ),
    ],
)  # fmt: skip
def test_what_is_equal_is_said_so_only_where_each_bit_is(before: Any, after: Any, note: str) -> None:
    found = compare(samples(before), samples(after))
    assert (found.max_abs, found.mean_abs, found.rel_l2, found.nan) == (0.0, 0.0, 0.0, 0)
    assert found.note == note


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_nan_at_one_version_is_counted_and_is_no_small_error(odd: float) -> None:
    found = compare(samples([1.0, 2.0], [1.0, 2.0, 3.0]), samples([1.0, 2.0], [1.0, odd, 3.0]))
    assert (found.nan, found.worst_sample, found.samples) == (1, 1, 2)
    assert (found.max_abs, found.mean_abs, found.rel_l2) == (math.inf, math.inf, math.inf)
    assert found.note == "1 of 5 elements are NaN or infinite and differ"


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (samples(np.zeros((2, 3))), samples(np.zeros((3, 2))), "float64 [2, 3] at 8.6.1, float64 [3, 2] at"),
        ([None], samples([1.0]), "not kept or not given at 8.6.1"),
        (samples([1.0]), [], "not kept or not given at 10.8.0"),
        ([None], [None], "not kept or not given at 8.6.1 and 10.8.0"),
    ],
)
def test_what_cannot_be_compared_is_told(before: Any, after: Any, note: str) -> None:
    found = compare(before, after)
    assert math.isnan(found.max_abs)
    assert found.samples == 0
    assert found.note.startswith(note)


def test_an_output_of_which_a_sample_breaks_off_cannot_be_compared() -> None:
    def broken() -> Iterator[Any]:
        yield np.array([9.0, 9.0])
        raise ValueError("it ends too early")

    found = compare(broken(), samples([1.5, 2.5], [0.0]))
    assert (math.isnan(found.max_abs), found.samples) == (True, 0)
    assert found.note == "it ends too early"


def keep(cache: Path, array: Any) -> dict[str, Any]:
    folder = cache / "out"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "y.npy", array)
    kept: dict[str, Any] = keep_outputs(cache, folder, {"y": {}})["y"]
    return kept


@pytest.mark.parametrize(
    "array",
    [
        np.arange(7, dtype=np.float16), np.zeros((0, 3)), np.float32(3),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([True, False]),
    ],
)  # fmt: skip
def test_kept_outputs_are_read_again(array: Any, tmp_path: Path) -> None:
    again = read_kept(tmp_path, keep(tmp_path, array))
    assert (again.dtype, again.shape) == (array.dtype, np.shape(array))
    assert np.array_equal(again, array)


def test_an_output_that_is_gone_or_damaged_is_told(tmp_path: Path) -> None:
    kept = keep(tmp_path, np.arange(100_000) % 251)
    file = tmp_path / "outputs" / f"{kept['sha256']}.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    found = compare((read_kept(tmp_path, kept) for _ in range(2)), samples(1.0))
    assert found.samples == 0
    assert "damaged" in found.note
    file.unlink()
    with pytest.raises(OSError, match="No such file"):
        read_kept(tmp_path, kept)
