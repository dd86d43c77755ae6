"""Rates of verdicts with their confidence intervals, as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

Rows = Sequence[Mapping[str, Any]]
MOST = 25
"""Rows of what was missed that are shown."""
BINS = ((0.0, 0.5), (0.5, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, math.inf))
HEADERS = ("", "outcomes", "FAIL", "undecided", "PASS")


def interval(hits: int, count: int, risk: float = 0.05) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) two-sided confidence interval of a rate, by bisection.

    Source: C. Clopper, E. S. Pearson, Biometrika 26 (1934), 404 to 413.
    """
    low = 0.0 if hits == 0 else _solve(lambda p: 1 - _cumulated(hits - 1, count, p) - risk / 2)
    high = 1.0 if hits == count else _solve(lambda p: risk / 2 - _cumulated(hits, count, p))
    return low, high


def _solve(rising: Any) -> float:  # noqa: ANN401 - a function of one number
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def _cumulated(hits: int, count: int, p: float) -> float:
    """Return the probability of at most so many hits."""
    if p <= 0 or p >= 1:
        return 1.0 if p <= 0 else float(hits >= count)
    logs = (
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        + k * math.log(p) + (count - k) * math.log1p(-p)
        for k in range(hits + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def rate(hits: int, count: int) -> str:
    """Write a rate with its interval: ``0 (0% to 0.307%)``."""
    low, high = interval(hits, count)
    return f"{hits} ({100 * low:.3g}% to {100 * high:.3g}%)"


def render_rates(rows: Rows, fail_factor: float) -> str:
    """Return the page: right engines by repro and precision, defects by kind and by size."""
    mute = [row for row in rows if row["mute"]]
    spoken = [row for row in rows if not row["mute"]]
    right = [row for row in spoken if row["label"] == "right"]
    wrong = [row for row in spoken if row["label"] != "right"]
    known = [row for row in wrong if row["known"] and row["usable"]]
    others = [row for row in wrong if not (row["known"] and row["usable"])]
    precisions = [_row(" ".join(key), some) for key, some in _by(right, "repro", "precision")]
    worst = max((row["error"] for row in right), default=0.0)
    parts = [
        "# How often the judge is wrong",
        f"{len(spoken)} outcomes of engines made up on a CPU, {len(right)} right and {len(wrong)} with a "
        "defect, judged blind; in brackets the exact 95% interval of the rate. `python -m bench.verdicts "
        "--write` makes this page; how they are made and judged: [verdicts.md](verdicts.md).",
        _about_mute(mute),
        "## Right engines",
        _table([*precisions, _row("all", right)]),
        f"The largest error of a right engine: {worst:.2f} noise floors.",
        "## Known defects, by their size in noise floors",
        "Those of which the case has a usable signature, at their full size.",
        _table([*_by_size(known), _row("all", known)]),
        "## All other defects, by their size in noise floors",
        f"The norm finds them, from {fail_factor:g} floors on; what is smaller is missed by design, unless a "
        "signature shows it (another scale has the shape of a lost one).",
        _table([*_by_size(others), _row("all", others)]),
        "## Defects by kind",
        _table([_row(label, some) for (label,), some in _by(wrong, "label")]),
        "## What was missed from 3 floors on",
        _missed([row for row in wrong if row["size"] >= 3 and row["verdict"] == "PASS"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about_mute(rows: Rows) -> str:
    if not rows:
        return ""
    verdicts = sorted({row["verdict"] for row in rows})
    keys = "; ".join(f"`{key}`" for (key,), _ in _by(rows, "key"))
    return f"Beside them {len(rows)} of cases that say nothing, all {' or '.join(verdicts)}: {keys}."


def _by_size(rows: Rows) -> list[list[str]]:
    return [_row(_bin(b), [row for row in rows if b[0] <= row["size"] < b[1]]) for b in BINS]


def _by(rows: Rows, *names: str) -> list[tuple[tuple[Any, ...], Rows]]:
    keys = sorted({tuple(row[name] for name in names) for row in rows})
    return [(key, [row for row in rows if tuple(row[name] for name in names) == key]) for key in keys]


def _bin(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:g} and more" if math.isinf(high) else f"{low:g} to {high:g}"


def _row(name: str, rows: Rows) -> list[str]:
    counts = {
        verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("FAIL", "INVALID", "PASS")
    }
    shown = [rate(count, len(rows)) if rows else "" for count in counts.values()]
    return [name, str(len(rows)), *shown]


def _table(rows: list[list[str]]) -> str:
    return tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True)


def _missed(rows: Rows) -> str:
    if not rows:
        return "Nothing."
    shown = sorted(rows, key=lambda row: -row["size"])[:MOST]
    return f"{len(rows)} outcomes, the largest defects first.\n\n" + tabulate(
        [[row["key"], row["label"], f"{row['size']:.3g}", f"{row['error']:.3g}"] for row in shown],
        ("case", "defect", "its floors", "floors of the output"), tablefmt="github", disable_numparse=True,
    )  # fmt: skip
