"""The row of a whole version: all its cells in one run, from the records that the run left.

Nothing is run: the records say what the run took, and the least that it could have taken.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.speed.bench import Bench
from bench.speed.gpu import read_bound
from bench.speed.project import moment
from bench.speed.rows import CannotMeasure, Goal, Row
from trtmatrix.suite.model import Product, release_of

LIMIT = 1.3
"""How many times the least a whole version may take."""

MINUTES = {"8.6.0": 15.0}
"""Versions that have a limit of their own."""

Json = Mapping[str, Any]


def measure_whole(bench: Bench) -> None:
    """Tell of each version that was named, or of those that the records are of."""
    if bench.records is None:
        raise CannotMeasure("no run was named: --records FOLDER")
    found = read_run(bench.records)
    wanted = [version for version in found if not bench.versions or version in bench.versions]
    if not wanted:
        raise CannotMeasure(f"{bench.records} holds no record of a TensorRT version that ran on a GPU")
    for version in sorted(wanted, key=release_of):
        bench.tell(make_row(version, found[version]))


def read_run(folder: Path) -> dict[str, list[Json]]:
    """Return TensorRT's records of engines below a folder, by version, in the order in which they began."""
    found: dict[str, list[Json]] = defaultdict(list)
    for file in sorted(folder.rglob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if record.get("product") == Product.TENSORRT.value and record.get("worker"):
            found[record["cell"]["version"]].append(record)
    return {version: sorted(records, key=lambda r: r["started"]) for version, records in found.items()}


def make_row(version: str, records: Sequence[Json]) -> Row:
    """Return what a run took, from its first cell's start to its last's end and the first Builder before.

    The start of containers, and cases that had still to be prepared before the first cell, are not in it.
    """
    bound = read_bound(records)
    workers = max(record.get("workers", 1) for record in records)
    least = bound.builder + bound.inside / workers
    first, last = moment(records[0]["started"]), max(moment(record["finished"]) for record in records)
    seconds = last - first + bound.builder
    cells = {(record["cell"]["repro"], record["cell"]["case"]) for record in records}
    goals = [Goal(what="of the least", value=seconds / least, limit=LIMIT)]
    if version in MINUTES:
        goals.append(Goal(what="wall time", value=seconds / 60, limit=MINUTES[version], unit="min"))
    builds = max(len(record.get("builds") or [record]) for record in records if not record["worker"]["alone"])
    board = records[0]["gpu"]
    return Row(
        name=f"whole:{version}",
        machine={"GPU": f"{board['name']}, {board['driver']}", "date": records[0]["started"][:10]},
        what=f"{len(cells)} cells of TensorRT {version} in one run, {builds} builds each"
        + f", {workers} workers on one GPU" * (workers > 1),
        against="the least: one Builder start, each engine built once, and the runs"
        + ", divided by the workers" * (workers > 1),
        goals=tuple(goals),
        figures={
            "the run": [seconds], "the least": [least], "the first Builder": [bound.builder],
            "the same, building and running alone": [bound.builder + bound.strict / workers],
        },
        note=f"{bound.builds} engines; {len(records) - len(cells)} cells were seen again alone in a fresh "
        "process, whose Builder is not in the least. From the first cell's start, as the records tell it.",
        command=f"nox -s bench -- speed --only whole --trt {version} --records FOLDER",
    )  # fmt: skip
