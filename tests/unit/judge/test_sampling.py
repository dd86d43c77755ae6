"""Which cells of a run must pass in a fresh process too."""

from __future__ import annotations

import pytest

from trtmatrix.judge.confirm import sample_cells
from trtmatrix.suite.model import CellId


@pytest.mark.parametrize(("cells", "sampled"), [(0, 0), (1, 0), (9, 0), (10, 1), (50, 1), (51, 2), (178, 4)])
def test_one_in_fifty_of_a_run_of_some_size(cells: int, sampled: int) -> None:
    every = [CellId(repro="r", case=f"c{n}", version="10.7.0", gpu="l4") for n in range(cells)]
    assert len(sample_cells(every, b"seed")) == sampled
    assert cells < 50 or sample_cells(every, b"seed") != sample_cells(every, b"other")
