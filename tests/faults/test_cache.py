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


@pytest.mark.parametrize("same_run", [True, False])
def test_a_file_that_cases_share_is_mended_for_all(same_run: bool, tmp_path: Path) -> None:
    """Both cases link one blob, whose digest the run that wrote it knows: neither is believed."""
    cache, source = CaseCache(tmp_path), loaded()
    cases = [make_case(name, params={"n": n}) for n, name in enumerate("ab")]
    first, second = (cache.prepare(source, case) for case in cases)
    assert (first / "reference/y.npy").samefile(second / "reference/y.npy")
    flip(first / "reference/y.npy")
    assert find_change(second) == "reference/y.npy differs"
    cache = cache if same_run else CaseCache(tmp_path)
    assert [find_change(cache.prepare(source, case)) for case in cases] == ["", ""]


def test_a_damaged_file_of_no_case_is_not_linked(tmp_path: Path) -> None:
    cache, source, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(source, case)
    right = np.load(folder / "reference/y.npy")
    flip(folder / "reference/y.npy")
    shutil.rmtree(folder)
    again = CaseCache(tmp_path).prepare(source, case)
    np.testing.assert_array_equal(np.load(again / "reference/y.npy"), right)


@pytest.mark.parametrize("ended", ["build failed", "probe failed"])
def test_on_a_full_disk_no_build_fails(ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe is played: a real one ends so only where the disk is filled at one moment of a build."""

    def attack(left: Left) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        left.record.update(ended=ended, detail="raised OSError: [Errno 28] No space left on device")
        left.keep()

    seen = run_beside(tmp_path, attack)
    assert seen["attacked"] == ("NO VERDICT", "launcher failed")
    assert "bytes left" in reason(tmp_path)
