"""A pack is written and checked at the speed of the disk, in little memory, whatever its size."""

from __future__ import annotations

import os
from pathlib import Path

from bench.pack import FACTOR, MEMORY, measure

SIZE = int(os.environ.get("TRTMATRIX_TEST_PACK_MB", "2048")) << 20


def test_within_twice_the_disks_own_time_and_200_mb(tmp_path: Path) -> None:
    rounds = list(measure(tmp_path, SIZE, rounds=6))
    told = "\n".join(speed.told() for speed in rounds)
    print(told)
    assert max(speed.memory for speed in rounds) <= MEMORY, told
    assert min(speed.write / speed.copy for speed in rounds) <= FACTOR, told
    assert min(speed.check / speed.read for speed in rounds) <= FACTOR, told
    assert not list(tmp_path.iterdir())
