"""What several cases share in the cache is not believed where it was changed; nor are ends on a full disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builders import make_case
from prepare.test_cases import loaded

from tests.border.leaving import Left, reason, run_beside
from tests.faults.disturbing import flip
from trtmatrix.prepare.cases import CaseCache, find_change


def test_a_file_that_cases_share_is_mended_for_all(tmp_path: Path) -> None:
    """Both cases link one blob: were it believed, preparing anew would link the damage again."""
    cache, source = CaseCache(tmp_path), loaded()
    first, second = (cache.prepare(source, make_case(name, params={"n": n})) for n, name in enumerate("ab"))
    assert (first / "reference/y.npy").samefile(second / "reference/y.npy")
    flip(first / "reference/y.npy")
    assert find_change(second) == "reference/y.npy differs"
    fresh = CaseCache(tmp_path)
    assert find_change(fresh.prepare(source, make_case("a", params={"n": 0}))) == ""
    assert find_change(fresh.prepare(source, make_case("b", params={"n": 1}))) == ""


def test_what_a_run_has_written_itself_is_not_believed_either(tmp_path: Path) -> None:
    """A run knows the digests of the blobs that it wrote, and would link one that changed since."""
    cache, source = CaseCache(tmp_path), loaded()
    case, other = (make_case(name, params={"n": n}) for n, name in enumerate("ab"))
    flip(cache.prepare(source, case) / "reference/y.npy")
    for each in (case, other):
        assert find_change(cache.prepare(source, each)) == ""


def test_a_damaged_file_of_no_case_is_not_linked(tmp_path: Path) -> None:
    cache, source, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(source, case)
    right = np.load(folder / "reference/y.npy")
    flip(folder / "reference/y.npy")
    shutil.rmtree(folder)
    again = CaseCache(tmp_path).prepare(source, case)
    np.testing.assert_array_equal(np.load(again / "reference/y.npy"), right)


@pytest.mark.parametrize("ended", ["build failed", "probe failed"])
def test_on_a_full_disk_neither_builds_nor_the_probe_fail(
    ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe is played: a real one ends so only where the disk is filled at one moment of a build."""

    def attack(left: Left) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        left.record.update(ended=ended, detail="raised OSError: [Errno 28] No space left on device")
        left.keep()

    seen = run_beside(tmp_path, attack)
    assert seen["attacked"] == ("NO VERDICT", "launcher failed")
    assert "bytes left" in reason(tmp_path)
