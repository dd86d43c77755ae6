"""The acceptance script for detectors that is shipped: boxes are matched by IoU, whatever their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trtmatrix.model.acceptance import run_check

SCRIPT = Path(__file__).parents[3] / "docs" / "examples" / "check_boxes.py"
RNG = np.random.default_rng(0)
LOW = RNG.uniform(0, 100, (1, 40, 2))
BOXES = np.concatenate([LOW, LOW + RNG.uniform(10, 40, (1, 40, 2))], -1).astype(np.float32)
SCORES = RNG.uniform(0.5, 1, (1, 40)).astype(np.float32)
LABELS = RNG.integers(0, 5, (1, 40))


def save(folder: Path, name: str, boxes: object, scores: object, labels: object) -> list[dict[str, Path]]:
    files = {}
    for output, array in (("boxes", boxes), ("scores", scores), ("labels", labels)):
        files[output] = folder / f"{name}-{output}.npy"
        np.save(files[output], np.asarray(array))
    return [files]


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ("none", True), ("order", True), ("little", True), ("one more of a low score", True),
        ("labels", False), ("moved", False), ("lost", False), ("none found", False),
    ],
)  # fmt: skip
def test_boxes_are_matched(tmp_path: Path, change: str, passed: bool) -> None:
    boxes, scores, labels = BOXES.copy(), SCORES.copy(), LABELS.copy()
    match change:
        case "order":
            order = RNG.permutation(40)
            boxes, scores, labels = boxes[:, order], scores[:, order], labels[:, order]
        case "little":
            boxes += RNG.normal(0, 0.2, boxes.shape).astype(np.float32)
        case "one more of a low score":
            boxes = np.concatenate([boxes, boxes[:, :1] + 500], 1)
            scores, labels = np.append(scores, [[0.1]], 1), np.append(labels, [[0]], 1)
        case "labels":
            labels[:, :10] = 7
        case "moved":
            boxes[:, :10] += 1000
        case "lost":
            boxes, scores, labels = boxes[:, :30], scores[:, :30], labels[:, :30]
        case "none found":
            boxes, scores, labels = boxes[:, :0], scores[:, :0], labels[:, :0]
    right = save(tmp_path, "right", BOXES, SCORES, LABELS)
    found = run_check(SCRIPT, right, save(tmp_path, "after", boxes, scores, labels), right)
    assert (found.passed, found.error) == (passed, "")
    assert found.label == "share of boxes matched by IoU"
