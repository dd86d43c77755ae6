"""How often two versions' latencies are told apart wrongly, by pairs whose answer is known.

``python -m bench.latency`` prints the tables of docs/upgrade.md; ``--pairs N`` makes fewer. Each of the 2,000
made-up pairs has three engines a side with 50 runs each. An engine's own speed varies by 1% from build to
build (standard deviation); runs have a jitter of 0.5% with a tail upwards, as on an H200.

Real engines vary more: ``engines.json`` has the figures of engines of one version each, of which pairs are
drawn (A/A). ``--records FOLDER`` reads them anew from what ``upgrade --from X --to X`` has left there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtmatrix.upgrade.performance import (
    LEAST_CHANGE,
    MORE_ROOM,
    ROOM,
    Figure,
    p_value_beyond,
    why_not_compared,
)

ENGINES, MORE, RUNS, LIMIT = 3, 7, 50, 1.1
DRAWN = 20_000
"""Pairs that are drawn of real engines for each figure."""
REAL = Path(__file__).with_name("engines.json")
TIMED = {"latency": "latency", "end to end": "end_to_end", "with a CUDA graph": "end_to_end_graph"}
"""Figure → its name in a record."""
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
    low, median = np.percentile(times, (5, 50))
    return Figure(median=float(median), low=float(low), sm_mhz=round(clock / 15) * 15)


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
                slower += p_value_beyond(before, after, LIMIT, ROOM) is not None
        counts[name] = (share, slower, left)
    return counts


def read_engines(records: Path) -> tuple[str, dict[str, list[list[float]]]]:
    """Return what was measured where, and the 5% quantile and median (ms) of each engine of each figure."""
    found: dict[str, list[list[float]]] = {}
    about: dict[str, None] = {}
    for file in sorted(records.rglob("*.json")):
        data = json.loads(file.read_bytes())
        if not isinstance(data, dict) or "cell" not in data or data["cell"]["repro"] == "controls":
            continue
        gpu, what = data["gpu"], f"{data['product']} {data['cell']['version']}"
        about[f"{what} on an {gpu['name']}, driver {gpu['driver']}, {data['started'][:10]}"] = None
        for name, key in TIMED.items():
            if figure := (data.get("engine") or {}).get(key):
                model = data["cell"]["repro"].rpartition("-")[0]
                found.setdefault(f"{model}, {name}", []).append([figure["low_ms"], figure["median_ms"]])
    return "; ".join(about), found


def draw_pairs(drawn: int = DRAWN) -> dict[str, tuple[float, ...]]:
    """Return for each real figure the largest median ÷ the least, and what share of pairs drawn is called.

    Wrongly: apart by the rank test alone; worse or better, as a run says it; slower beyond the limit, by
    three engines a side, and by the seven that are built where three say so. Rightly: slower, where one side
    is made 1.5 times so.
    """
    rng, shares = np.random.default_rng(0), {}
    for name, values in json.loads(REAL.read_text())["engines"].items():
        counts = np.zeros(5)
        for _ in range(drawn):
            chosen = [values[i] for i in rng.permutation(len(values))[: 2 * MORE]]
            sides = [
                [Figure(median=f * median, low=f * low) for low, median in side]
                for side, f in ((chosen[:MORE], 1.0), (chosen[MORE:], 1.0), (chosen[MORE:], 1.5))
            ]
            before, after, _ = (side[:ENGINES] for side in sides)
            more = p_value_beyond(before, after, LIMIT) is not None
            pair = (sides[0], sides[1]) if more else (before, after)
            counts += (
                _is_apart(before, after, LEAST_CHANGE, None),
                _is_apart(*pair, LEAST_CHANGE, MORE_ROOM) or p_value_beyond(*pair, LIMIT, ROOM) is not None,
                p_value_beyond(before, after, LIMIT, ROOM) is not None,
                *(_is_slower(sides[0], after) for after in sides[1:]),
            )
        medians = [median for _, median in values]
        shares[name] = (max(medians) / min(medians), *(float(count) / drawn for count in counts))
    return shares


def _is_apart(one: list[Figure], other: list[Figure], limit: float, room: float | None) -> bool:
    return any(p_value_beyond(*way, limit, room) is not None for way in ((one, other), (other, one)))


def _is_slower(before: list[Figure], after: list[Figure]) -> bool:
    """Whether all engines say so, where the first of them seem to."""
    seems = p_value_beyond(before[:ENGINES], after[:ENGINES], LIMIT) is not None
    return seems and p_value_beyond(before, after, LIMIT, ROOM) is not None


def main() -> None:
    """Print the tables in Markdown, and the two rates that the first must keep to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--records", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.records is not None:
        about, engines = read_engines(args.records)
        REAL.write_text(json.dumps({"about": about, "engines": engines}, sort_keys=True) + "\n")
    counts = measure(args.pairs)
    print("| made as | pairs | called slower beyond 1.1× | not comparable |\n| --- | --- | --- | --- |")
    for name, (share, slower, left) in counts.items():
        print(f"| {name} | {share} | {slower} | {left} |")
    for word, wanted in (("false alarms", False), ("found", True)):
        mine = [counts[name] for name, kind in KINDS.items() if kind.slower is wanted]
        print(f"\n{word}: {sum(m[1] for m in mine)} of {sum(m[0] for m in mine)}", end="")
    print("\n\n| engines of one version | largest ÷ least | apart by rank alone | worse or better ", end="")
    print("| slower beyond 1.1× | by seven engines | 1.5× slower found |\n|" + " --- |" * 7)
    for name, (spread, *shares) in draw_pairs().items():
        print(f"| {name} | {spread:.2f}× | {' | '.join(f'{share:.2%}' for share in shares)} |")


if __name__ == "__main__":
    main()
