"""How far two versions' outputs are apart, over all samples, block by block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only what compares needs NumPy
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An output of one sample at one version.

    ``blocks`` yields its elements in row-major order, flat, in blocks of the same lengths for tensors of the
    same shape; ``OSError`` or ``ValueError`` where it cannot be read.
    """

    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[Array]] = field(repr=False)

    @property
    def words(self) -> str:
        """Dtype and shape for people."""
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the outputs of the two versions are apart, over all samples; |a − b|, and ‖a − b‖/‖a‖.

    Figures are infinite where an element is NaN or infinite at one version only (``nan`` counts those), and
    NaN where nothing can be compared. ``samples``: how many were compared; ``note``: what is to be said of
    it (``"bitwise equal"``, other shapes or dtypes, an output that is not there), or nothing. ``integers``:
    it holds integers or booleans, and all samples were compared.
    """

    output: str
    max_abs: float
    mean_abs: float
    rel_l2: float
    worst_sample: int
    samples: int = 0
    nan: int = 0
    note: str = ""
    integers: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it needs no noise floor: integers that are the same at both versions."""
        return self.integers and self.max_abs == 0


Samples = Sequence[Tensor | None]
"""One output over all samples; None where a sample's is not there."""
_NUMBERS = "biuf"
"""Kinds of NumPy's dtypes that are real numbers."""


def compare_outputs(
    before: Mapping[str, Samples], after: Mapping[str, Samples], names: tuple[str, str]
) -> tuple[Difference, ...]:
    """Return a difference for each output of either version, in order of name.

    ``names``: those of the two versions, for the notes. What cannot be compared has NaN for its figures, and
    its note says why. An element that is NaN or infinite at one version and something else at the other
    makes the figures infinite. ``worst_sample`` is the sample with the largest |a − b|.
    """
    found = []
    for output in sorted({*before, *after}):
        sides = before.get(output, ()), after.get(output, ())
        notes, count, seen = list[str](), max(map(len, sides)), _Seen()
        for sample, (a, b) in enumerate(zip_longest(*sides)):
            if a is None or b is None:
                where = " and ".join(name for name, side in zip(names, (a, b), strict=True) if side is None)
                notes.append(f"not kept or not given at {where}")
                continue
            if a.shape != b.shape:
                notes.append(f"{a.words} at {names[0]}, {b.words} at {names[1]}: not compared")
                continue
            if a.dtype != b.dtype:
                notes.append(f"{a.dtype} at {names[0]}, {b.dtype} at {names[1]}: compared as numbers")
            try:
                seen = deepcopy(seen).with_sample(sample, a, b)
            except (OSError, ValueError) as error:
                notes.append(f"sample {sample} cannot be compared: {error}")
        words = ["bitwise equal"] if seen.samples and seen.same else []
        if seen.odd:
            words.append(f"{seen.odd} of {seen.count} elements are NaN or infinite and differ")
        for note, n in Counter(notes).items():
            words.append(note + (f" ({n} of {count} samples)" if n < count else ""))
        kinds = {tensor.dtype.rstrip("0123456789") for side in sides for tensor in side if tensor is not None}
        nothing = math.inf if seen.odd else math.nan
        figures = seen.sums.result(seen.count) if seen.samples and not seen.odd else {}
        worst, mean, rel = (float(figures.get(name, nothing)) for name in ("max_abs", "mean_abs", "rel_l2"))
        found.append(
            Difference(
                output=output, max_abs=worst, mean_abs=mean, rel_l2=rel, worst_sample=seen.worst_sample,
                samples=seen.samples, nan=seen.odd, note="; ".join(words),
                integers=seen.samples == count > 0 and kinds <= {"bool", "int", "uint"},
            )
        )  # fmt: skip
    return tuple(found)


class _Seen:
    def __init__(self) -> None:
        from trtprobe.measure import Sums

        self.sums, self.same = Sums(), True
        self.count = self.odd = self.samples = self.worst_sample = 0

    def with_sample(self, sample: int, a: Tensor, b: Tensor) -> _Seen:
        """Take one sample in; ``OSError`` or ``ValueError`` where it cannot be read."""
        import numpy as np

        from trtprobe.measure import difference_of_integers

        before = (self.odd, self.sums.max_abs)
        for x, y in zip(a.blocks(), b.blocks(), strict=True):
            same = x.dtype == y.dtype and x.tobytes() == y.tobytes()
            self.count += x.size
            self.same &= same
            if unknown := next((dtype for dtype in (x.dtype, y.dtype) if dtype.kind not in _NUMBERS), None):
                if not same:
                    raise ValueError(f"NumPy knows no numbers of the dtype {unknown}; bit by bit they differ")
                continue
            p, q = x.astype(np.float64), y.astype(np.float64)
            finite = np.isfinite(p) & np.isfinite(q)
            self.odd += int((~finite & (p != q) & ~(np.isnan(p) & np.isnan(q))).sum())
            self.sums.add(0, q, p, difference_of_integers(x, y))
        self.samples += 1
        self.same &= a.dtype == b.dtype
        if not before[0] and (self.odd, self.sums.max_abs) > before:
            self.worst_sample = sample
        return self
