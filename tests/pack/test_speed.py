"""A pack is written and checked at the speed of the disk, in little memory, whatever its size."""

from __future__ import annotations

import os
from pathlib import Path

from bench.pack import FACTOR, MEMORY, measure

BESIDE = 4.0
"""So much slower it may be here, beside other suites; ``nox -s bench -- pack`` holds the goal."""

SIZE = int(os.environ.get("TRTMATRIX_TEST_PACK_MB", "2048")) << 20


def test_it_keeps_up_with_the_disk_in_200_mb(tmp_path: Path) -> None:
    rounds = list(measure(tmp_path, SIZE, rounds=6))
    told = "\n".join(speed.told() for speed in rounds)
    print(told)
    assert max(speed.memory for speed in rounds) <= MEMORY, told
    assert min(speed.write / speed.copy for speed in rounds) <= BESIDE * FACTOR, told
    assert min(speed.check / speed.read for speed in rounds) <= BESIDE * FACTOR, told
    assert not list(tmp_path.iterdir())
