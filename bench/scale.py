"""Times the tables of very many records against reading their files with json alone."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.records import COUNT, ROOT, make_records

REPEATS = 5
GOAL_RATIO, GOAL_BYTES = 3.0, 500_000_000
PLAIN = """
import glob, json, sys
for pattern in ("local/*/*/*/*/*.json", "[!l]*/*/*/*/*.json"):
    for path in glob.iglob(f"{sys.argv[1]}/{pattern}"):
        with open(path, encoding="utf-8") as file:
            json.loads(file.read())
"""
"""The plain way to read the same files; nothing is kept."""

WAITER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
seconds, code = time.perf_counter() - start, os.waitstatus_to_exitcode(status)
print(json.dumps([seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, code]))
"""
"""Starts a process from a small one: to the kernel, what a process was forked from counts as its own peak."""

FORMATS = ("md", "json", "html", "txt")


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One process: seconds from start to end, seconds of the processor, its largest resident set in bytes."""

    seconds: float
    processor: float
    peak: int


def measure(folder: Path, repeats: int = REPEATS) -> dict[str, Any]:
    """Return how long both ways take over a results folder, alternating, and what the tables need of memory.

    ``seconds`` and ``processor`` list all runs, ``ratio`` is that of the medians, ``ratios`` those of
    the pairs. The first pair, which warms the page cache, is not counted.
    """
    runs: dict[str, list[Timed]] = {"plain": [], "tables": []}
    with tempfile.TemporaryDirectory() as name:
        outputs = [part for suffix in FORMATS for part in ("-o", str(Path(name) / f"tables.{suffix}"))]
        place = ["--cache", str(Path(name) / "cache"), "--results", str(folder)]
        commands = {
            "plain": [sys.executable, "-c", PLAIN, str(folder)],
            "tables": [sys.executable, "-m", "trtmatrix", "table", *place, *outputs],
        }
        for number in range(repeats + 1):
            for way, command in commands.items():
                timed = run_timed(command)
                runs[way] += [timed] if number else []
    return {"folder": str(folder), "formats": list(FORMATS), **_figures(runs)}


def _figures(runs: dict[str, list[Timed]]) -> dict[str, Any]:
    pairs = zip(runs["plain"], runs["tables"], strict=True)
    ways: dict[str, dict[str, Any]] = {
        way: {
            "seconds": [run.seconds for run in mine], "processor": [run.processor for run in mine],
            "least": min(run.seconds for run in mine), "median": statistics.median(r.seconds for r in mine),
            "peak_bytes": max(run.peak for run in mine),
        }
        for way, mine in runs.items()
    }  # fmt: skip
    return {
        **ways,
        "ratio": ways["tables"]["median"] / ways["plain"]["median"],
        "ratios": [tables.seconds / plain.seconds for plain, tables in pairs],
        "goal_ratio": GOAL_RATIO, "goal_bytes": GOAL_BYTES,
    }  # fmt: skip


def run_timed(command: Sequence[str]) -> Timed:
    """Run a command to its end in the project's folder; ``RuntimeError`` where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", WAITER, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, processor, peak, code = json.loads(done.stdout)
    if code not in {0, 1}:  # 1: a table with surprises
        raise RuntimeError(f"{command[1:4]} ended with {code}: {done.stderr[-2000:]}")
    return Timed(seconds=seconds, processor=processor, peak=peak)


@contextmanager
def records(count: int, folder: Path | None) -> Iterator[Path]:
    """Give a results folder with so many records; what is there already is taken as it is."""
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        place = folder or Path(name)
        made = make_records(place, count)
        print(f"made {made.files} records, {made.bytes} bytes", flush=True)
        yield place


def text(figures: dict[str, Any]) -> str:
    """Return the figures as lines."""
    lines = [
        f"{way}: median {figures[way]['median']:.2f} s, least {figures[way]['least']:.2f} s, "
        f"processor {statistics.median(figures[way]['processor']):.2f} s, "
        f"peak {figures[way]['peak_bytes'] / 1e6:.0f} MB"
        for way in ("plain", "tables")
    ]
    pairs = ", ".join(f"{ratio:.2f}" for ratio in figures["ratios"])
    return "\n".join((*lines, f"ratio {figures['ratio']:.2f} (pairs {pairs}), goal {GOAL_RATIO:g}"))


def main(argv: Sequence[str] | None = None) -> None:
    """Make records, time both ways, print, and write JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--folder", type=Path, help="where records are, or are made and stay")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    args = parser.parse_args(argv)
    with records(args.count, args.folder) as folder:
        figures = measure(folder.resolve(), args.repeats)
    print(text(figures))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
