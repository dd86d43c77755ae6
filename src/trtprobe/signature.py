"""The signature of a known defect: how much of it an output's error contains."""

from __future__ import annotations

import math
from typing import Dict

import numpy as np


class Signature:
    """What is summed up over the blocks of an error e = y − r and a defect d.

    d is what the defect adds to a right result. Over the elements where all are finite:
    ``c`` = ⟨e, d⟩ / ⟨d, d⟩, 1 where the defect is there and 0 where it is not;
    ``explained`` = ⟨e, d⟩² / (⟨e, e⟩ ⟨d, d⟩), the share of the error (its square) that c·d is; 0 where e is.
    """

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.error2 = self.defect2 = self.product = 0.0

    def add(self, error: np.ndarray, d: np.ndarray) -> None:
        """Take one block in: two flat float64 arrays."""
        error2, defect2 = float(np.dot(error, error)), float(np.dot(d, d))
        if not math.isfinite(error2 + defect2):
            finite = np.flatnonzero(np.isfinite(error) & np.isfinite(d))
            error, d = error[finite], d[finite]
            error2, defect2 = float(np.dot(error, error)), float(np.dot(d, d))
        self.error2 += error2
        self.defect2 += defect2
        self.product += float(np.dot(error, d))

    @property
    def can_tell(self) -> bool:
        """Whether the defect changes anything where it was compared."""
        return self.defect2 > 0

    def result(self) -> Dict[str, float]:
        """Return ``c`` and ``explained``, where the signature can tell."""
        c = self.product / self.defect2
        explained = c * self.product / self.error2 if self.error2 else 0.0
        return {"c": c, "explained": min(explained, 1.0)}
