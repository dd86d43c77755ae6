"""The row of pulls: two versions whose images come over a slow line, pulled and run in one run.

Two images, each the test image with a layer of its own of random bytes, lie in a registry on loopback behind
a line that all downloads share. The best that any order can do is to run the first while the second is
pulled: both pulls, then one run of cells. With a pull P and a run R (R < P) that is (2P + R) / 2P of the
longer of pulling and running; the goal of 1.15 leaves room for R up to 0.3 P. So the line is made just so
slow that a pull takes five times a run of its cells, start of the program included: 1.10 at best.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from bench.registry import Registry, RegistryError, forget, open_registry
from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.project import TEST_IMAGE, Scratch, need_test_image, open_scratch, prepare, selecting
from bench.speed.rows import CannotMeasure, Goal, Row
from bench.throttle import Throttle

VERSIONS = ("onnxruntime-1.31.1", "onnxruntime-1.31.1.1")
TAGS = ("one", "two")
MEGABYTES = 60
CELLS = 40
PULL_TO_RUN = 5.0
"""How many times as long as a run a pull takes."""


def measure_pull(bench: Bench) -> None:
    """Measure pulling alone, running alone, both in one run, and one version after the other."""
    need_test_image()
    try:
        with open_registry() as registry:
            for tag in TAGS:
                registry.push_with_ballast(tag, MEGABYTES << 20)
            run = _running(bench, "calibrating", dict.fromkeys(VERSIONS, TEST_IMAGE))
            rate = (MEGABYTES << 20) / (PULL_TO_RUN * run)
            with Throttle(registry.port, rate) as line:
                _Pulls(bench, registry, line, rate).measure()
    except RegistryError as error:
        raise CannotMeasure(str(error)) from error


def _scratch(bench: Bench, images: dict[str, str]) -> tuple[Scratch, tuple[str, ...]]:
    """Return a project of these versions with its words; its cases are prepared."""
    cases = [f"tiny/n{number:03}" for number in range(CELLS)]
    scratch = open_scratch(bench.folder / "pulls", images, ROOT / "bench" / "repros")
    prepare(scratch, cases)
    return scratch, selecting(cases)


def _running(bench: Bench, results: str, images: dict[str, str]) -> float:
    """Return how long a run of one version takes whose image is here, the median over the versions."""
    scratch, words = _scratch(bench, images)
    return median(
        scratch.run(*words, "--trt", version, results=f"{results}-{version}").seconds for version in images
    )


class _Pulls:
    """The measurement over one line."""

    def __init__(self, bench: Bench, registry: Registry, line: Throttle, rate: float) -> None:
        self.bench, self.registry, self.rate = bench, registry, rate
        self.names = [registry.name(tag, line.port) for tag in TAGS]
        self.images = dict(zip(VERSIONS, self.names, strict=True))
        self.figures: dict[str, list[float]] = {
            "pulling both images": [], "running both versions": [], "pulled and run in one run": [],
            "one after the other": [],
        }  # fmt: skip

    def measure(self) -> None:
        scratch, words = _scratch(self.bench, self.images)
        pulling, running, both, apart = self.figures.values()
        try:
            for number in range(self.bench.times(3)):
                self.bench.say(f"pulls, repetition {number + 1}")
                pulling.append(self._pull())
                running.append(self._run(scratch, words, f"run-{number}", [VERSIONS[0]], [VERSIONS[1]]))
                forget(self.registry.client, *self.names)
                both.append(self._run(scratch, words, f"both-{number}", VERSIONS))
                forget(self.registry.client, *self.names)
                apart.append(self._run(scratch, words, f"apart-{number}", [VERSIONS[0]], [VERSIONS[1]]))
                self.bench.row(self._row())
                forget(self.registry.client, *self.names)
        finally:
            forget(self.registry.client, *self.names)

    def _pull(self) -> float:
        """Pull both, one after the other, by the engine alone."""
        forget(self.registry.client, *self.names)
        started = time.monotonic()
        for name in self.names:
            self.registry.client.images.pull(name)
        return time.monotonic() - started

    def _run(self, scratch: Scratch, words: Sequence[str], results: str, *turns: Sequence[str]) -> float:
        """Run versions, those of one turn in one run; returns the seconds of all turns."""
        return sum(
            scratch.run(*words, "--trt", ",".join(turn), results=f"{results}-{number}").seconds
            for number, turn in enumerate(turns)
        )

    def _row(self) -> Row:
        pulling, running, both, apart = (median(values) for values in self.figures.values())
        longer = max(pulling, running)
        return Row(
            name="pull",
            what="two versions whose images must be pulled (registry on loopback, throttled) and run",
            against="one after the other", figures=self.figures,
            goals=(Goal(what="of the longer of pulling and running", value=both / longer, limit=1.15),),
            note=f"{MEGABYTES} MiB of its own for each image over a line of {self.rate / 1e6:.2f} MB/s that "
            f"all downloads share; {CELLS} small cells of each version, ONNX Runtime, CPU. At best it is "
            f"pulling both and running one: {(pulling + running / 2) / longer:.3f} of the longer. One after "
            f"the other: {apart / longer:.2f} of it.",
        )  # fmt: skip
