"""The rows without cells: how soon the program starts, and how it copes with 100,000 records."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.rows import CannotMeasure, Goal, Row

RECORDS = 100_000
STARTS = {
    "python -c pass": ("-c", "pass"), "--help": ("-m", "trtmatrix", "--help"),
    "list": ("-m", "trtmatrix", "list"),
}  # fmt: skip
LIMITS = {"--help": 120.0, "list": 250.0}
"""Milliseconds above a Python that does nothing."""


def measure_start(bench: Bench) -> None:
    """Start the program for its help and its list, and a Python that does nothing, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for number in range(bench.times(21) + 1):
        for name, words in STARTS.items():
            took = _time(words)
            if number:  # the first reads the files into memory
                seconds[name].append(took)
    plain = median(seconds["python -c pass"])
    bench.row(
        Row(
            name="start", what="`--help`, `list`", against="python -c pass", figures=seconds,
            goals=tuple(
                Goal(
                    what=f"{name} above it", value=1e3 * (median(seconds[name]) - plain),
                    limit=limit, unit="ms",
                )
                for name, limit in LIMITS.items()
            ),
            note="In turn, over the project's own matrix.yaml and repros; output to nowhere.",
        )
    )  # fmt: skip


def _time(words: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def measure_records(bench: Bench) -> None:
    """Make records and let them be read, judged and rendered."""
    try:
        from bench.records import make_records
        from bench.scale import measure
    except ModuleNotFoundError as error:
        raise CannotMeasure(f"there is no {error.name}") from error
    folder = bench.folder / "records"
    count = RECORDS // 10 if bench.quick else RECORDS
    bench.say(f"making {count} records")
    make_records(folder, count)
    found = measure(folder, bench.times(3))
    raise NotImplementedError(found)
