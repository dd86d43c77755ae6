"""The rows without cells: how soon the program starts, and how it copes with 100,000 records."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.rows import CannotMeasure, Goal, Row

RECORDS = 100_000
STARTS = {
    "python -c pass": ("-c", "pass"), "--help": ("-m", "trtmatrix", "--help"),
    "list": ("-m", "trtmatrix", "list"),
}  # fmt: skip
LIMITS = {"--help": 350.0, "list": 1000.0}
"""Milliseconds above a Python that does nothing."""


READ = """\
import json, sys
from pathlib import Path
for file in Path(sys.argv[1]).rglob("*.json"):
    json.loads(file.read_bytes())
"""


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
    """Make records, and let them be read, judged and rendered; and read the same files with json alone."""
    try:
        from bench.records import make_records
    except ModuleNotFoundError as error:
        raise CannotMeasure(f"there is no {error.name}") from error
    folder, count = bench.folder / "records", RECORDS // 10 if bench.quick else RECORDS
    bench.say(f"making {count} records")
    with ProcessPoolExecutor(1) as other:  # not here: a child's peak is at least what its parent has
        other.submit(make_records, folder, count).result()
    table = ["-m", "trtmatrix", "table", f"--results={folder}", f"--cache={bench.folder / 'cache'}"]
    table += [f"--output={bench.folder / name}" for name in ("all.md", "all.json")]
    seconds: dict[str, list[float]] = {"json alone": [], "table, Markdown and JSON": []}
    peaks: list[float] = []
    for number in range(bench.times(3) + 1):
        bench.say(f"reading them, {number} of {bench.times(3)}")
        plain, (took, peak) = _measure("-c", READ, str(folder))[0], _measure(*table)
        if number:  # the first reads the files into memory
            peaks.append(peak)
            seconds["json alone"].append(plain)
            seconds["table, Markdown and JSON"].append(took)
    times = median(seconds["table, Markdown and JSON"]) / median(seconds["json alone"])
    bench.row(
        Row(
            name="records", what=f"{count} records to all tables, Markdown and JSON",
            against="reading the same files with json alone",
            figures={**seconds, "peak memory, MB": peaks},
            goals=(
                Goal(what="of reading them", value=times, limit=3.0),
                Goal(what="memory", value=max(peaks), limit=500.0, unit="MB"),
            ),
            note="Whole processes in turn, the files in the page cache. Memory: the largest process's.",
        )
    )  # fmt: skip


def _measure(*words: str) -> tuple[float, float]:
    """Return the seconds and the peak memory (MB) of a Python; a table with surprises ends with 1."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise RuntimeError(f"{' '.join(words)[:200]} ended with {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024 / 1e6
