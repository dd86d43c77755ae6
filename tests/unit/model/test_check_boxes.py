"""The acceptance script for detectors that is shipped: boxes are matched by IoU, whatever their order."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

CHECK = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "examples" / "check_boxes.py"))["check"]
RNG = np.random.default_rng(0)
LOW = RNG.uniform(0, 100, (1, 40, 2))
RIGHT = (
    np.concatenate([LOW, LOW + RNG.uniform(10, 40, (1, 40, 2))], -1).astype(np.float32),
    RNG.uniform(0.5, 1, (1, 40)).astype(np.float32), RNG.integers(0, 5, (1, 40)),
)  # fmt: skip
TEN, ORDER = np.arange(40) < 10, RNG.permutation(40)
Found = tuple[NDArray[Any], ...]
CHANGES: dict[str, tuple[Callable[..., Found], bool]] = {
    "none": (lambda *found: found, True),
    "order": (lambda *found: tuple(array[:, ORDER] for array in found), True),
    "little": (lambda boxes, *rest: (boxes + RNG.normal(0, 0.2, boxes.shape), *rest), True),
    "one more of a low score": (
        lambda boxes, scores, labels: (
            np.append(boxes, boxes[:, :1] + 500, 1), np.append(scores, [[0.1]], 1),
            np.append(labels, [[0]], 1),
        ), True,
    ),
    "labels": (lambda boxes, scores, labels: (boxes, scores, np.where(TEN, 7, labels)), False),
    "moved": (lambda boxes, *rest: (boxes + 1000 * TEN[:, None], *rest), False),
    "lost": (lambda *found: tuple(array[:, :30] for array in found), False),
    "none found": (lambda *found: tuple(array[:, :0] for array in found), False),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_boxes_are_matched(name: str) -> None:
    change, passed = CHANGES[name]
    right, found = (
        dict(zip(("boxes", "scores", "labels"), side, strict=True)) for side in (RIGHT, change(*RIGHT))
    )
    said, share, label = CHECK([right], [found], [right])
    assert (bool(said), share >= 0.99, label) == (passed, passed, "share of boxes matched by IoU")
