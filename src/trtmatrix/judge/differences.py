"""How far two versions' outputs are apart, over all samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

Samples = Iterable[Any]
"""One output over all samples: arrays, each read when it is compared; None where a sample's is not there."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the outputs of the two versions are apart, over all samples; |a − b|, and ‖a − b‖/‖a‖.

    Figures are infinite where an element is NaN or infinite at one version only (``nan`` counts those), and
    NaN where nothing can be compared. ``samples``: how many were compared; ``note``: what is to be said of
    it (``"bitwise equal"``, other shapes or dtypes, an output that is not there), or nothing. ``integers``:
    it holds integers or booleans, and all samples were compared.
    """

    output: str
    max_abs: float = math.nan
    mean_abs: float = math.nan
    rel_l2: float = math.nan
    worst_sample: int = 0
    samples: int = 0
    nan: int = 0
    note: str = ""
    integers: bool = False


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
        try:
            found.append(_compare(output, before.get(output, ()), after.get(output, ()), names))
        except (OSError, ValueError) as error:
            found.append(Difference(output=output, note=str(error)))
    return tuple(found)


def _compare(output: str, before: Samples, after: Samples, names: tuple[str, str]) -> Difference:
    """Compare one output's samples; ``OSError`` or ``ValueError`` where one cannot be read."""
    import numpy as np

    from trtprobe.measure import BLOCK, Sums, difference_of_integers

    sums, notes, kinds = Sums(), Counter[str](), set[str]()
    total = count = odd = samples = equal = worst = 0
    for total, sides in enumerate(zip_longest(before, after), start=1):
        a, b = sides
        kinds |= {side.dtype.kind for side in sides if side is not None}
        if a is None or b is None:
            where = " and ".join(name for name, side in zip(names, sides, strict=True) if side is None)
            notes[f"not kept or not given at {where}"] += 1
            continue
        words = [f"{x.dtype} {list(x.shape)} at {name}" for name, x in zip(names, (a, b), strict=True)]
        if a.shape != b.shape:
            notes[f"{', '.join(words)}: not compared"] += 1
            continue
        if a.dtype != b.dtype:
            notes[f"{', '.join(words)}: compared as numbers"] += 1
        samples, count, same = samples + 1, count + a.size, a.dtype == b.dtype and a.tobytes() == b.tobytes()
        equal += same
        if not {a.dtype.kind, b.dtype.kind} <= set("biuf"):
            if not same:
                raise ValueError(f"NumPy knows no numbers of {' or '.join(words)}; bit by bit they differ")
            continue
        seen = (odd, sums.max_abs)
        for start in range(0, a.size, BLOCK):
            x, y = (side.reshape(-1)[start : start + BLOCK] for side in (a, b))
            p, q = x.astype(np.float64), y.astype(np.float64)
            sums.add(0, q, p, difference_of_integers(x, y))
            finite = np.isfinite(p) & np.isfinite(q)
            odd += int((~finite & (p != q) & ~(np.isnan(p) & np.isnan(q))).sum())
        if not seen[0] and (odd, sums.max_abs) > seen:
            worst = total - 1
    told = ["bitwise equal"] if samples and equal == samples else []
    told += [f"{odd} of {count} elements are NaN or infinite and differ"] if odd else []
    told += [note + (f" ({n} of {total} samples)" if n < total else "") for note, n in notes.items()]
    figures = sums.result(count) if samples and not odd else {}
    nothing = math.inf if odd else math.nan
    max_abs, mean_abs, rel_l2 = (float(figures.get(n, nothing)) for n in ("max_abs", "mean_abs", "rel_l2"))
    return Difference(
        output=output, max_abs=max_abs, mean_abs=mean_abs, rel_l2=rel_l2, worst_sample=worst,
        samples=samples, nan=odd, note="; ".join(told),
        integers=samples == total > 0 and kinds <= set("biu"),
    )  # fmt: skip
