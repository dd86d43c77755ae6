"""The rows of ONNX Runtime in the test image: the warm worker, a second run, what the harness adds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.project import (
    TEST_IMAGE,
    TEST_VERSION,
    Scratch,
    Timed,
    containers_started,
    moment,
    need_test_image,
    open_scratch,
    prepare,
    selecting,
    spread_evenly,
)
from bench.speed.rows import Goal, Row
from trtmatrix.suite.model import Product

PLAIN_SECONDS = 360.0
"""What the plain side of the row ``worker`` may take; where all cells would take longer, a sample is run."""

CONTAINER_SECONDS = 1.5
"""About what a container and a fresh process cost a cell: only decides whether a sample is needed."""

FEW, MANY = 20, 220
"""Cells of the row ``harness``."""


def measure_worker(bench: Bench) -> None:
    """Run the same cells by the warm worker and in a fresh container each, alternately."""
    scratch, cases = bench.on_cpu()
    first = bench.first_run()
    plain_cell = first.seconds / len(cases) + CONTAINER_SECONDS
    sample = spread_evenly(cases, int((PLAIN_SECONDS / 6 if bench.quick else PLAIN_SECONDS) / plain_cell))
    words = selecting(sample)
    sides: dict[str, list[Timed]] = {"worker": [], "container": []}
    for number in range(bench.times(2)):
        for side, runs in sides.items():
            bench.say(f"running {len(sample)} cells, isolation {side}")
            runs.append(scratch.run(f"--isolation={side}", *words, results=f"{side}-{number}"))
            bench.row(_worker_row(scratch, sample, len(cases), sides))


def _worker_row(scratch: Scratch, sample: Sequence[str], count: int, sides: dict[str, list[Timed]]) -> Row:
    warm, plain = ([timed.seconds for timed in runs] for runs in sides.values())
    own = [sum(record["worker"]["seconds"] for record in timed.records) for timed in sides["worker"]]
    goals: tuple[Goal, ...] = ()
    if plain:
        warm_verdicts, plain_verdicts = (scratch.verdicts(f"{side}-0", *selecting(sample)) for side in sides)
        differ = sum(plain_verdicts[cell] != verdict for cell, verdict in warm_verdicts.items())
        goals = (
            Goal(what="times faster", value=median(plain) / median(warm), limit=4.0, at_least=True),
            Goal(what="cells with another verdict", value=differ, limit=0),
        )
    whole = "all" if len(sample) == count else f"{len(sample)} of {count}, evenly spread"
    return Row(
        name="worker", what=f"{len(sample)} graph cases, ONNX Runtime in the test image, CPU: a warm worker",
        against="a fresh container a cell", goals=goals,
        figures={
            "a warm worker": warm, "a fresh container a cell": plain,
            "the cells' own time inside the warm worker": own,
        },
        note=f"Cells: {whole}; cases prepared before; whole runs, each with new results. What the cells take "
        "by themselves (building, running, measuring) is the same on both sides and bounds the ratio.",
    )  # fmt: skip


def measure_again(bench: Bench) -> None:
    """Run all graph cases again, with nothing changed."""
    scratch, cases = bench.on_cpu()
    first = bench.first_run()
    runs = [
        scratch.run("--isolation=worker", *selecting(cases), results="first") for _ in range(bench.times(9))
    ]
    seconds = [timed.seconds for timed in runs]
    started = sum(len(containers_started(timed)) for timed in runs)
    again = sum(len(timed.records) for timed in runs)
    bench.row(
        Row(
            name="again", what=f"a second run of {len(cases)} cells with nothing changed",
            against="the first", figures={"the first": [first.seconds], "again": seconds},
            goals=(
                Goal(what="in all", value=median(seconds), limit=1.0, unit="s"),
                Goal(what="containers started", value=started, limit=0),
                Goal(what="cells run", value=again, limit=0),
            ),
            note=f"The first takes {first.seconds / median(seconds):.0f} times as long, its cases prepared "
            "before. Containers by the engine's own events.",
        )
    )  # fmt: skip


def measure_harness(bench: Bench) -> None:
    """Take the slope of the wall time over the number of cells, and the probe's own time off it."""
    need_test_image()
    scratch = open_scratch(bench.folder / "tiny", {TEST_VERSION: TEST_IMAGE}, ROOT / "bench" / "repros")
    cases = [f"tiny/n{number:03}" for number in range(MANY)]
    prepare(scratch, cases)
    runs: dict[int, list[Timed]] = {FEW: [], MANY: []}
    for _ in range(bench.times(5)):
        for count, timed in runs.items():
            timed.append(scratch.run("--isolation=worker", *selecting(cases[:count]), results="tiny"))
            shutil.rmtree(scratch.folder / "tiny")
            time.sleep(0.2)
    bench.row(_harness_row(runs))


def _harness_row(runs: dict[int, list[Timed]]) -> Row:
    own = [1e3 * median(record["worker"]["seconds"] for record in timed.records) for timed in runs[MANY]]
    gaps = [1e3 * median(_gaps(timed)) for timed in runs[MANY]]
    few, many = ([timed.seconds for timed in timed_runs] for timed_runs in runs.values())
    slope = 1e3 * (median(many) - median(few)) / (MANY - FEW)
    return Row(
        name="harness", what="what the harness adds to a cell", against="the probe's own time for it",
        goals=(Goal(what="added", value=slope - median(own), limit=10.0, unit="ms"),),
        figures={
            f"{FEW} cells": few, f"{MANY} cells": many, "slope of the medians, ms a cell": [slope],
            "the probe's own time, ms a cell, median of a run": own,
            "from one record's end to the next one's start, ms, median of a run": gaps,
        },
        note=f"Cells that give back their input ({Product.ONNXRUNTIME.value}, a warm worker). The slope is "
        f"that of the whole run's wall time between {FEW} and {MANY} cells: writing orders, moving records, "
        "judging and storing them, and rendering the table are in it.",
    )  # fmt: skip


def _gaps(timed: Timed) -> list[float]:
    """Return the seconds between the end of each record and the start of the next."""
    return [
        moment(later["started"]) - moment(earlier["finished"]) for earlier, later in pairwise(timed.records)
    ]
