"""How far two versions' outputs are apart, over all samples; block by block: no output is held whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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


_NUMBERS = "biuf"
"""Kinds of NumPy's dtypes that are real numbers."""

_INTEGERS = {"bool", "int", "uint"}

Samples = Sequence[Tensor | None]
"""One output over all samples; None where a sample's is not there."""


def compare_outputs(
    before: Mapping[str, Samples], after: Mapping[str, Samples], names: tuple[str, str]
) -> tuple[Difference, ...]:
    """Return a difference for each output of either version, in order of name.

    ``names``: those of the two versions, for the notes. What cannot be compared has NaN for its figures, and
    its note says why. An element that is NaN or infinite at one version and something else at the other
    makes the figures infinite. ``worst_sample`` is the sample with the largest |a − b|.
    """
    return tuple(
        _compare(output, before.get(output, ()), after.get(output, ()), names)
        for output in sorted({*before, *after})
    )


def _compare(output: str, before: Samples, after: Samples, names: tuple[str, str]) -> Difference:
    sums, notes, count = _Sums(), list[str](), max(len(before), len(after))
    for sample in range(count):
        a = before[sample] if sample < len(before) else None
        b = after[sample] if sample < len(after) else None
        if a is None or b is None:
            where = " and ".join(name for name, side in zip(names, (a, b), strict=True) if side is None)
            notes.append(f"not kept or not given at {where}")
        elif a.shape != b.shape:
            notes.append(f"{a.words} at {names[0]}, {b.words} at {names[1]}: not compared")
        else:
            if a.dtype != b.dtype:
                notes.append(f"{a.dtype} at {names[0]}, {b.dtype} at {names[1]}: compared as numbers")
            trouble = sums.add_sample(sample, a, b)
            notes += [trouble] if trouble else []
    shares = {note: f" ({n} of {count} samples)" if n < count else "" for note, n in Counter(notes).items()}
    found = sums.result(output, [note + share for note, share in shares.items()])
    kinds = {tensor.dtype.rstrip("0123456789") for tensor in (*before, *after) if tensor is not None}
    return replace(found, integers=sums.samples == count > 0 and kinds <= _INTEGERS)


@dataclass(kw_only=True)
class _Sums:
    """What is summed up over blocks and samples."""

    count: int = 0
    finite: int = 0
    odd: int = 0
    samples: int = 0
    total: float = 0.0
    error2: float = 0.0
    norm2: float = 0.0
    worst: float = -1.0
    worst_sample: int = 0
    same: bool = True

    def add_sample(self, sample: int, a: Tensor, b: Tensor) -> str:
        """Take one sample in; returns why it cannot be read, or nothing."""
        before = replace(self)
        try:
            for x, y in zip(a.blocks(), b.blocks(), strict=True):
                self._add(sample, x, y)
        except (OSError, ValueError) as error:
            vars(self).update(vars(before))
            return f"sample {sample} cannot be compared: {error}"
        self.samples += 1
        self.same &= a.dtype == b.dtype
        return ""

    def _add(self, sample: int, x: Array, y: Array) -> None:
        import numpy as np

        self.count += x.size
        same = x.dtype == y.dtype and x.tobytes() == y.tobytes()
        self.same &= same
        for dtype in {x.dtype, y.dtype}:
            if dtype.kind not in _NUMBERS:
                if same:
                    return
                raise ValueError(f"NumPy knows no numbers of the dtype {dtype}; bit by bit they differ")
        a, b = x.astype(np.float64), y.astype(np.float64)
        both = np.isfinite(a) & np.isfinite(b)
        if not both.all():
            odd = ~both & ~((a == b) | (np.isnan(a) & np.isnan(b)))
            self._see(sample, math.inf if odd.any() else 0.0)
            self.odd += int(odd.sum())
            a, b = a[both], b[both]
        if not a.size:
            return
        error = np.abs(a - b)
        self.finite += a.size
        self.total += float(error.sum())
        self.error2 += float(np.dot(error, error))
        self.norm2 += float(np.dot(a, a))
        self._see(sample, float(error.max()))

    def _see(self, sample: int, largest: float) -> None:
        if largest > self.worst:
            self.worst, self.worst_sample = largest, sample

    def result(self, output: str, notes: Sequence[str]) -> Difference:
        """Return the difference; ``notes`` tell what was odd."""
        words = list(notes)
        if self.odd:
            words.insert(0, f"{self.odd} of {self.count} elements are NaN or infinite at one version only")
        if not self.samples:
            worst = mean = rel = math.nan
        elif self.odd:
            worst = mean = rel = math.inf
        else:
            worst, mean, rel = max(0.0, self.worst), self.total / max(1, self.finite), self._rel_l2()
        if self.samples and self.same:
            words.insert(0, "bitwise equal")
        return Difference(
            output=output, max_abs=worst, mean_abs=mean, rel_l2=rel, worst_sample=self.worst_sample,
            samples=self.samples, nan=self.odd, note="; ".join(words),
        )  # fmt: skip

    def _rel_l2(self) -> float:
        if not self.norm2:
            return math.inf if self.error2 else 0.0
        return math.sqrt(self.error2 / self.norm2)
