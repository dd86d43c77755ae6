"""How often two versions' latencies are told apart wrongly: 2,000 made-up pairs whose answer is known.

``python -m bench.latency`` prints the table of docs/upgrade.md; ``--pairs N`` makes fewer. Each pair has
three engines a side with 50 runs each. An engine's own speed varies by 1% from build to build (standard
deviation); runs have a jitter of 0.5% with a tail upwards, as on an H200.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from trtmatrix.upgrade.performance import Figure, p_value_beyond, why_not_compared

ENGINES, RUNS, LIMIT = 3, 50, 1.1
Rng = np.random.Generator
Pair = tuple[list[Figure], list[Figure]]


@dataclass(frozen=True)
class Kind:
    """A kind of pair: how it is made, and whether the slowdown must be found (None: either is right)."""

    make: Callable[[Rng], Pair]
    slower: bool


def _engine(rng: Rng, base: float, modes: float = 1.0, clock: float = 1980.0) -> Figure:
    """Return one engine: ``modes``: how much slower its second mode is, in which each run may be."""
    times = (
        base * rng.normal(1, 0.01) * (1 + np.abs(rng.normal(0, 0.005, RUNS)) + rng.exponential(0.01, RUNS))
    )
    share = rng.uniform(0.2, 0.8)
    times = times * np.where(rng.uniform(size=RUNS) < share, modes, 1.0) * (1980 / clock)
    low, median, high = np.percentile(times, (5, 50, 95))
    return Figure(median=float(median), low=float(low), high=float(high), sm_mhz=round(clock / 15) * 15)


def _slower(ratio: float) -> Callable[[Rng], Pair]:
    def make(rng: Rng) -> Pair:
        base = float(np.exp(rng.uniform(np.log(0.05), np.log(20))))
        before, after = ([_engine(rng, b) for _ in range(ENGINES)] for b in (base, base * ratio))
        return before, after

    return make


def _two_modes(rng: Rng) -> Pair:
    """Return engines of one speed, each run of which is in one of two modes, up to 60% apart."""
    modes = rng.uniform(1.15, 1.6)
    before, after = ([_engine(rng, 1.0, modes) for _ in range(ENGINES)] for _ in range(2))
    return before, after


def _drift(rng: Rng) -> Pair:
    """Return engines of one speed, measured one after the other while the clock falls by up to 40%."""
    clocks = np.linspace(1980, 1980 * (1 - rng.uniform(0.02, 0.4)), 2 * ENGINES)
    engines = [_engine(rng, 1.0, clock=float(clock)) for clock in clocks]
    return engines[:ENGINES], engines[ENGINES:]


KINDS: Mapping[str, Kind] = {
    "the same": Kind(_slower(1.0), slower=False),
    "3% slower": Kind(_slower(1.03), slower=False),
    "10% slower, which is the limit": Kind(_slower(LIMIT), slower=False),
    "two modes, the same speed": Kind(_two_modes, slower=False),
    "falling clocks, the same speed": Kind(_drift, slower=False),
    "21% slower: 10% beyond the limit": Kind(_slower(LIMIT * 1.1), slower=True),
    "50% slower": Kind(_slower(1.5), slower=True),
}


def measure(pairs: int, seed: int = 0) -> dict[str, tuple[int, int, int]]:
    """Return for each kind how many pairs there are, are called slower, and are not comparable."""
    rng, counts = np.random.default_rng(seed), {}
    for number, (name, kind) in enumerate(KINDS.items()):
        share = pairs // len(KINDS) + (number < pairs % len(KINDS))
        slower = left = 0
        for _ in range(share):
            before, after = kind.make(rng)
            if why_not_compared(before, after, clocked=True):
                left += 1
            else:
                slower += p_value_beyond(before, after, LIMIT) is not None
        counts[name] = (share, slower, left)
    return counts


def main() -> None:
    """Print the table in Markdown, and the two rates that it must keep to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    counts = measure(parser.parse_args().pairs)
    print("| made as | pairs | called slower beyond 1.1× | not comparable |\n| --- | --- | --- | --- |")
    for name, (share, slower, left) in counts.items():
        print(f"| {name} | {share} | {slower} | {left} |")
    for word, wanted in (("false alarms", False), ("found", True)):
        mine = [counts[name] for name, kind in KINDS.items() if kind.slower is wanted]
        print(f"\n{word}: {sum(m[1] for m in mine)} of {sum(m[0] for m in mine)}", end="")
    print()


if __name__ == "__main__":
    main()
