"""What every measurement is handed: a folder, how long it may take, whom to tell of a row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.speed.machine import read_machine
from bench.speed.project import (
    TEST_IMAGE,
    TEST_VERSION,
    Scratch,
    Timed,
    graph_cases,
    need_test_image,
    open_scratch,
    prepare,
    selecting,
    spread_evenly,
)
from bench.speed.rows import Row
from trtmatrix.suite.model import Product

QUICK_CELLS = 30
"""Graph cases of a quick benchmark."""


@dataclass(kw_only=True)
class Bench:
    """One call of the benchmark. ``tell`` takes a row as soon as it has figures, and again as it grows.

    ``quick``: fewer cells and repetitions. On a GPU: ``seconds``, its row's wall time; ``versions``,
    ``repros`` where not all; ``cache``, where cases lie prepared. ``records``: what a run left.
    """

    folder: Path
    tell: Callable[[Row], None]
    quick: bool = False
    seconds: float = 540.0
    versions: tuple[str, ...] = ()
    repros: tuple[str, ...] = ()
    cache: Path | None = None
    records: Path | None = None
    _machine: dict[str, str] = field(default_factory=dict)
    _cases: list[str] = field(default_factory=list)
    _first: Timed | None = None

    def row(self, row: Row) -> None:
        """Tell of a row, with where it was measured and how it is measured again."""
        self._machine = self._machine or read_machine()
        kind, *about = row.name.split(":")
        words = "".join(
            f" {option} {word}" for option, word in zip(("--trt", "--repro"), about, strict=False)
        )
        command = row.command or f"nox -s bench -- speed --only {kind}{words}{' --quick' * self.quick}"
        self.tell(replace(row, machine=self._machine, command=command))

    def say(self, text: str) -> None:
        """Tell what is being done."""
        print(f"bench.speed: {text}", file=sys.stderr, flush=True)

    def times(self, count: int) -> int:
        """Return how often something is measured."""
        return max(1, count // 3) if self.quick else count

    def on_cpu(self) -> tuple[Scratch, list[str]]:
        """Return the project of the test image with its graph cases, prepared; made once."""
        need_test_image()
        scratch = open_scratch(self.folder / "cpu", {TEST_VERSION: TEST_IMAGE})
        if not self._cases:
            cases = graph_cases(scratch.repros, Product.ONNXRUNTIME)
            self._cases = spread_evenly(cases, QUICK_CELLS) if self.quick else cases
            self.say(f"preparing {len(self._cases)} cases")
            prepare(scratch, self._cases)
        return scratch, self._cases

    def first_run(self) -> Timed:
        """Return the first run of all graph cases by the warm worker; its records lie in ``first``."""
        scratch, cases = self.on_cpu()
        if self._first is None:
            self.say(f"running {len(cases)} cells by the warm worker")
            self._first = scratch.run("--isolation=worker", *selecting(cases), results="first")
        return self._first
