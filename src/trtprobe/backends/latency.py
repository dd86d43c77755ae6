"""How long an engine's runs take: a median and a spread."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

import numpy as np

RUNS = 50
SECONDS = 0.1
"""At most so many single runs, or about so long."""

LEAST = 3
"""So many at least, unless they are slow."""

SLOW_SECONDS = 0.5


def time_runs(
    run: Callable[[], float], runs: int = RUNS, seconds: float = SECONDS, least: int = LEAST
) -> List[float]:
    """Return what each of some runs took, in milliseconds, as ``run`` tells it."""
    times: List[float] = []
    started = time.perf_counter()
    while len(times) < runs:
        times.append(run())
        spent = time.perf_counter() - started
        if spent > seconds and (len(times) >= least or spent > SLOW_SECONDS):
            break
    return times


def sum_up(times: List[float]) -> Dict[str, Any]:
    """Return the median, the 5% and 95% quantiles (in milliseconds), and how many runs they rest on."""
    low, median, high = (float(value) for value in np.percentile(times, (5, 50, 95)))
    return {"median_ms": median, "low_ms": low, "high_ms": high, "runs": len(times)}
