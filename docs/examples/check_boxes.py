"""An acceptance script for detectors: boxes of the new version are matched with those of the reference by IoU.

Copy it, name your outputs below, and give it to ``upgrade --check``. The order of boxes does not matter, and
neither do boxes whose score is low: near the threshold a right engine may find one more or one less.
"""

import numpy as np

BOXES, SCORES, LABELS = "boxes", "scores", "labels"
"""Outputs: [..., N, 4] as (x1, y1, x2, y2), [..., N], and [..., N], or None where there are no labels."""

LEAST_SCORE = 0.3
LEAST_IOU = 0.5
SHARE = 0.99
"""So much of all boxes must have a partner, of the same label, on the other side."""


def iou(a, b):
    """Return how much each box of a [N, 4] and each of b [M, 4] have in common: [N, M], from 0 to 1."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both = np.prod(np.clip(high - low, 0, None), axis=-1)
    area = [np.prod(np.clip(x[:, 2:] - x[:, :2], 0, None), axis=-1) for x in (a, b)]
    union = area[0][:, None] + area[1][None, :] - both
    return np.where(union > 0, both / np.maximum(union, 1e-12), 0.0)


def images(sample):
    """Yield boxes, scores and labels of each image of a sample, those with a low score left out."""
    boxes = np.asarray(sample[BOXES], np.float64)
    boxes = boxes.reshape(int(np.prod(boxes.shape[:-2])), *boxes.shape[-2:])
    scores = np.asarray(sample[SCORES], np.float64).reshape(boxes.shape[:2])
    labels = np.zeros(scores.shape) if LABELS is None else np.asarray(sample[LABELS]).reshape(scores.shape)
    for box, score, label in zip(boxes, scores, labels):
        keep = score >= LEAST_SCORE
        yield box[keep], score[keep], label[keep]


def matches(right, found):
    """Return how many boxes there are on both sides, and how many of them have a partner."""
    a, scores, labels = right
    b, _, others = found
    common = np.where(labels[:, None] == others[None, :], iou(a, b), 0.0)
    taken = 0
    for row in np.argsort(-scores):  # the surest chooses first
        if common.shape[1] and common[row].max() >= LEAST_IOU:
            taken += 1
            common[:, common[row].argmax()] = 0.0
    return len(a) + len(b), 2 * taken


def check(before, after, reference):
    """Return whether enough boxes are matched, the share that is, and its label."""
    pairs = [
        matches(right, found)
        for one, other in zip(reference or before, after)
        for right, found in zip(images(one), images(other))
    ]
    total, matched = (sum(column) for column in zip(*pairs))
    share = matched / total if total else 1.0
    return share >= SHARE, share, "share of boxes matched by IoU"
