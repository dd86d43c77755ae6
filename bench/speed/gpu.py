"""The row of the GPU: all graph cases of one TensorRT version, against the least that they can take.

The least is one Builder start and the builds and runs themselves, as the records have them. A fresh container
for each cell is run over a sample at even distances, and taken times the number of cells; whether the sample
stands for all is told by what its cells take in the warm worker. It works on a host without a network, where
the image is there; each part's figures are told at once, so that a run that is cut leaves what it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.project import Scratch, Timed, graph_cases, moment, prepare, selecting, spread_evenly
from bench.speed.rows import CannotMeasure, Goal, Row
from trtmatrix.suite.model import Product, release_of

SHARE = 0.6
"""Of the time that there is, what the warm worker may take at most."""

SAMPLE = 24
PLAIN_TIMES = {"8.6.0": 4.0}
OTHER_TIMES = 2.0
"""How many times faster than a fresh container a cell: where the first Builder takes long, and elsewhere."""

Json = Mapping[str, Any]


def measure_gpu(bench: Bench) -> None:
    """Measure each version that was named, or those whose image is here."""
    versions = bench.versions or _versions_here()
    if not versions:
        raise CannotMeasure("an NVIDIA GPU and the image of a TensorRT version are needed")
    for version in versions:
        _Version(bench, version).measure()


def _versions_here() -> tuple[str, ...]:
    """Return the TensorRT versions that a run would run here without a pull or a build."""
    from trtmatrix.plan.context import ProjectOptions, open_context
    from trtmatrix.plan.survey import take_survey
    from trtmatrix.suite.plan import Pull

    options = ProjectOptions(matrix=ROOT / "matrix.yaml", repros=ROOT / "repros", results=ROOT / "results")
    context = open_context(options)
    launches = take_survey(context, Pull.NEVER).plan.launches
    names = [each.version.name for each in launches if each.version.product is Product.TENSORRT]
    return tuple(sorted(set(names), key=release_of))


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What the builds and runs of some records take: ``builder``: the first Builder, all in seconds.

    ``inside``: each repro's own run, that is parsing, building, running and looking at the engine;
    ``strict``: building and running alone. ``builds``: how many engines that is, each counted once. What a
    cell builds alone, to be believed, is built anew and counts again.
    """

    builder: float
    inside: float
    strict: float
    builds: int


def read_bound(records: Sequence[Json]) -> Bound:
    """Add up what the records say; a Builder that was made inside a run is taken off it.

    So is an engine that an earlier cell had built, outside of cells alone: it need not have been built again.
    """
    inside, strict = 0.0, 0.0
    built: set[tuple[str, int | None]] = set()
    for record in records:
        worker = record.get("worker", {})
        place = worker.get("number") if worker.get("alone") else None
        for build in record.get("builds") or [record]:
            engine = build.get("engine", {})
            if "run_seconds" not in engine:
                continue
            inside += engine["run_seconds"] - engine.get("builder_seconds", 0.0)
            strict += engine.get("run_ms", 0.0) / 1e3 + engine.get("latency_seconds", 0.0)
            for each in engine.get("engines", ()):
                if (key := (each["name"], place)) not in built:
                    built.add(key)
                    strict += each["build_seconds"]
                elif "shared_with" not in each:
                    inside -= each["build_seconds"]
    starts = [s for record in records if (s := record.get("worker", {}).get("builder_seconds")) is not None]
    return Bound(builder=starts[0] if starts else math.nan, inside=inside, strict=strict, builds=len(built))


class _Version:
    """The measurement of one version."""

    def __init__(self, bench: Bench, version: str) -> None:
        self.bench, self.version, self.only = bench, version, bench.repros
        self.deadline = time.monotonic() + bench.seconds
        self.scratch = Scratch(
            folder=bench.folder / "-".join(["gpu", version, *bench.repros]),
            matrix=ROOT / "matrix.yaml", repros=ROOT / "repros",
            words=("--trt", version), own_cache=bench.cache,
        )  # fmt: skip
        self.scratch.folder.mkdir(parents=True)

    def measure(self) -> None:
        cases = graph_cases(self.scratch.repros, Product.TENSORRT)
        cases = [name for name in cases if not self.only or name.partition("/")[0] in self.only]
        self.bench.say(f"preparing {len(cases)} cases")
        prepare(self.scratch, cases)
        self.bench.say(f"running {len(cases)} cells of {self.version} by the warm worker")
        warm = self._run("worker", cases, SHARE * self._left)
        row = self._warm_row(warm, len(cases))
        self.bench.row(row)
        sample = self._sample(warm)
        self.bench.say(f"running {len(sample)} cells of {self.version} in a fresh container each")
        plain = self._run("container", sample, self._left)
        self.bench.row(self._with_plain(row, warm, plain))

    @property
    def _left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def _run(self, isolation: str, cases: Sequence[str], limit: float) -> Timed:
        """Run cells; a cell that cannot run here is no matter, but something must have run."""
        timed = self.scratch.run(
            f"--isolation={isolation}", *selecting(cases), results=isolation, limit=limit, codes={0, 1, 3}
        )
        if not timed.records:
            raise CannotMeasure(f"no cell of {self.version} ran:\n{timed.told[-2000:]}")
        return timed

    def _warm_row(self, warm: Timed, count: int) -> Row:
        bound, cells = read_bound(warm.records), _cells(warm)
        least = bound.builder + bound.inside
        seconds = _seconds(warm)
        cut = f" It was cut after {len(cells)} of {count} cells." if warm.cut else ""
        confirmed = len(warm.records) - len(cells)
        return Row(
            name=":".join(["gpu", self.version, *([",".join(self.only)] if self.only else [])]),
            what=f"{len(cells)} graph cases{' of ' * bool(self.only)}{', '.join(self.only)}, "
            f"TensorRT {self.version}: a warm worker",
            against="the least: one Builder start and the builds and runs; a fresh container a cell",
            goals=(Goal(what="of the least", value=seconds / least, limit=1.2),),
            figures={
                "a warm worker": [seconds], "the least": [least], "the first Builder": [bound.builder],
                "repros' own runs": [bound.inside],
                "the same, building and running alone": [bound.builder + bound.strict],
                "times that": [seconds / (bound.builder + bound.strict)],
            },
            note=f"{bound.builds} engines; {confirmed} cells were seen again alone in a fresh process, whose "
            f"Builder is not in the least. Cases prepared before.{cut}",
        )  # fmt: skip

    def _sample(self, warm: Timed) -> list[str]:
        """Return cells that ran, as many as there is time for in fresh containers."""
        ran = sorted({_name(record) for record in warm.records})
        bound = read_bound(warm.records)
        each = bound.builder + bound.inside / len(ran) + 1.5
        return spread_evenly(ran, max(3, min(self.bench.times(SAMPLE), int(0.8 * self._left / each))))

    def _with_plain(self, row: Row, warm: Timed, plain: Timed) -> Row:
        """Return the row with what a fresh container a cell would take for all cells."""
        sample, cells = _cells(plain), _cells(warm)
        whole, each = _seconds(warm), _seconds(plain) / len(sample)
        own = {_name(r): r["worker"]["seconds"] for r in warm.records if not r["worker"]["alone"]}
        part = sum(own.get(name, 0.0) for name in sample) / len(sample)
        typical = part / (sum(own.values()) / len(own)) if own else math.nan
        times = each * len(cells) / whole
        limit = PLAIN_TIMES.get(self.version, OTHER_TIMES)
        return replace(
            row, goals=(*row.goals, Goal(what="times faster", value=times, limit=limit, at_least=True)),
            figures={
                **row.figures, "a fresh container a cell, of one": [each],
                "its sample's own time in the warm worker, of an average cell's": [typical],
            },
            note=f"{row.note} A fresh container: {len(sample)} cells at even distances, taken times "
            f"{len(cells) / len(sample):.1f}{', cut' * plain.cut}.",
        )  # fmt: skip


def _seconds(timed: Timed) -> float:
    """Return a run's seconds; of one that was cut, those until its last record."""
    if not timed.cut:
        return timed.seconds
    return max(moment(record["finished"]) for record in timed.records) - timed.began


def _name(record: Json) -> str:
    return f"{record['cell']['repro']}/{record['cell']['case']}"


def _cells(timed: Timed) -> set[str]:
    return {_name(record) for record in timed.records}
