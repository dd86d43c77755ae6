"""Labelled outcomes: right engines, and engines with a defect of a known size, made on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.groups import Group
from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, Arithmetic, round_fp16
from trtmatrix.judge.factors import ALLOWED
from trtmatrix.judge.record import Measured
from trtprobe.measure import measure_output, measure_signature

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Kind = Callable[[Arithmetic, Arrays], tuple[Arrays, Arrays]]
"""Makes an output with a defect, by some arithmetic or of a right output, and the same without noise."""
RIGHT = "right"
STRENGTHS = (0.5, 1.0, 3.0, 10.0, 30.0)
"""Noise floors that a defect is graded to, where its strength can be chosen."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one made-up engine gave. ``floors``: the size of what is wrong, in noise floors; 0: nothing is.

    ``known``: it is a defect that the case has a signature of, at its full size.
    """

    label: str
    member: str
    floors: float
    known: bool
    build: Measured


class HalfSums(Arithmetic):
    """Softmax whose running sum is kept in float16."""

    def softmax_matmul(self, scores: Array, v: Array) -> Array:
        """softmax(scores) @ v, the sums of exponentials rounded to float16 after each term of 16."""
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        sums = np.zeros((*scores.shape[:-1], 1), scores.dtype)
        for start in range(0, scores.shape[-1], 16):
            sums = round_fp16(sums + scores[..., start : start + 16].sum(axis=-1, keepdims=True))
        scores /= sums
        return self.matmul(self.stored(scores), v)


@dataclass(kw_only=True)
class Maker:
    """Makes the outcomes of one group and one seed; ``floor`` gives each output's noise floor."""

    group: Group
    seed: int
    floor: Callable[[str], float | None]

    def __post_init__(self) -> None:
        """Compute the references and the shapes of the known defects."""
        self.random = np.random.default_rng([self.seed, len(self.group.key)])
        self.right: Arrays = self.group.emulate(FLOAT64, seed=self.seed)
        self.wrong = {d: self.group.emulate(FLOAT64, d, self.seed) for d in self.group.case.defects}
        self.output = max(self.right, key=lambda name: self.right[name].size)

    def members(self) -> list[tuple[str, Arithmetic]]:
        """Return the arithmetics that the group's precision allows, shuffled."""
        allowed = ALLOWED[self.group.case.precision]
        found = [item for precision in allowed for item in ENSEMBLE[precision].items()]
        return [found[i] for i in self.random.permutation(len(found))]

    def outcomes(self, count: int) -> Iterator[Outcome]:
        """Yield ``count`` right outcomes, and as many wrong ones: known defects and others by turns."""
        makers = self.kinds()
        known, others = (
            [kind for kind in makers if (kind[0] in self.wrong) is flag] for flag in (True, False)
        )
        members = self.members()
        for i in range(count):
            name, member = members[i % len(members)]
            y = self.group.emulate(member, seed=self.seed)
            yield self.measure(RIGHT, name, y, self.right)
            kinds = known if known and i % 2 == 0 else others
            yield self.draw_wrong(kinds or others, name, member, y)

    def draw_wrong(
        self, kinds: Sequence[tuple[str, Kind]], name: str, member: Arithmetic, y: Arrays
    ) -> Outcome:
        """Return an outcome with a defect of one of these kinds that changes something in this group."""
        for number in self.random.permutation(len(kinds)):
            label, make = kinds[number]
            found = self.measure(label, name, *make(member, y))
            if found.floors > 0:
                return found
        return self.measure("zeroed tile", name, *self.graded(member, y, self.zeroed))

    def measure(self, label: str, member: str, y: Arrays, exact: Arrays) -> Outcome:
        """Measure an outcome as the probe does; ``exact`` is what it would be without noise."""
        outputs = {name: dict(measure_output(y[name], r)) for name, r in self.right.items()}
        signatures = {
            defect: {
                name: found
                for name, r in self.right.items()
                if (found := measure_signature(y[name], r, wrong[name] - r))
            }
            for defect, wrong in self.wrong.items()
        }
        build = Measured(outputs=outputs, scalars={}, signatures=signatures)
        known = label in self.wrong
        return Outcome(label=label, member=member, floors=self.size(exact), known=known, build=build)

    def size(self, exact: Arrays) -> float:
        """Return how far a result without noise is from the reference, in the floors of its worst output.

        What is off where every right way of computing is exact is infinitely many floors off.
        """
        sizes = [0.0]
        for name, r in self.right.items():
            error, floor = float(np.linalg.norm(exact[name] - r) / np.linalg.norm(r)), self.floor(name)
            if floor is not None and error:
                sizes.append(error / floor if floor else math.inf)
        return max(sizes)

    def kinds(self) -> list[tuple[str, Kind]]:
        """Return the defects that this group can have, each with what makes it."""
        kinds: dict[str, Kind] = {name: partial(self.emulated, defect=name) for name in self.wrong}
        if hasattr(self.group.loaded.module, "softmax_scale"):
            kinds["scale doubled"] = partial(self.emulated, defect="scale*2")
            kinds["scale 5% off"] = partial(self.emulated, defect="scale*1.05")
            kinds["softmax summed in FP16"] = self.half_sums
        if "lost-mask" in self.wrong:
            kinds["mask ignored in one row"] = self.one_row
        kinds["zeroed tile"] = partial(self.graded, make=self.zeroed)
        kinds["rows swapped"] = partial(self.graded, make=self.swapped)
        kinds["stale buffer"] = partial(self.graded, make=self.stale)
        return list(kinds.items())

    def emulated(self, member: Arithmetic, y: Arrays, defect: str) -> tuple[Arrays, Arrays]:
        """Put a defect into the mathematics."""
        del y
        exact = self.wrong.get(defect) or self.group.emulate(FLOAT64, defect, self.seed)
        return self.group.emulate(member, defect, self.seed), exact

    def half_sums(self, member: Arithmetic, y: Arrays) -> tuple[Arrays, Arrays]:
        """Sum softmax's exponentials up in float16; the size is that of float32 with such sums."""
        fields = {**vars(member), "late": False, "exp2": False}
        del y
        plain = {**vars(ENSEMBLE["fp32"]["fp32"])}
        given, exact = (
            self.group.emulate(HalfSums(**arithmetic), seed=self.seed) for arithmetic in (fields, plain)
        )
        return given, exact

    def one_row(self, member: Arithmetic, y: Arrays) -> tuple[Arrays, Arrays]:
        """Ignore the mask in one row of the output."""
        other, exact = self.emulated(member, y, "lost-mask")
        row = int(self.random.integers(len(_rows(y[self.output]))))

        def put(target: Array, source: Array) -> None:
            _rows(target)[row] = _rows(source)[row]

        return self._changed(y, other, put), self._changed(self.right, exact, put)

    def graded(
        self, member: Arithmetic, y: Arrays, make: Callable[[Array, int], Array]
    ) -> tuple[Arrays, Arrays]:
        """Make a local defect of at least some strength (by chance), by doubling its extent."""
        del member
        strength = float(self.random.choice(STRENGTHS))
        extent, seed = 1, int(self.random.integers(1 << 30))
        exact = dict(self.right)
        while True:
            self.random = np.random.default_rng(seed)
            exact = {**self.right, self.output: make(self.right[self.output], extent)}
            if self.size(exact) >= strength or extent >= y[self.output].size:
                break
            extent *= 2
        self.random = np.random.default_rng(seed)
        return {**y, self.output: make(y[self.output], extent)}, exact

    def zeroed(self, y: Array, extent: int) -> Array:
        """Set a run of elements to zero."""
        changed: Array = y.copy()
        start = int(self.random.integers(max(1, y.size - extent)))
        changed.reshape(-1)[start : start + extent] = 0
        return changed

    def swapped(self, y: Array, extent: int) -> Array:
        """Exchange so many elements at the start of two rows, then more rows."""
        changed: Array = y.copy()
        rows = _rows(changed)
        first, second = self.random.permutation(len(rows))[:2] if len(rows) > 1 else (0, 0)
        width = min(extent, rows.shape[1])
        rows[[first, second], :width] = rows[[second, first], :width]
        for other in range(extent // rows.shape[1]):
            a, b = other % len(rows), (other + 1) % len(rows)
            rows[[a, b]] = rows[[b, a]]
        return changed

    def stale(self, y: Array, extent: int) -> Array:
        """Leave what another run had written in a run of elements."""
        changed: Array = y.copy()
        old = self.group.emulate(FLOAT64, seed=self.seed + 1)[self.output]
        start = int(self.random.integers(max(1, y.size - extent)))
        changed.reshape(-1)[start : start + extent] = old.reshape(-1)[start : start + extent]
        return changed

    def _changed(self, y: Arrays, other: Arrays, put: Callable[[Array, Array], None]) -> Arrays:
        changed = y[self.output].copy()
        put(changed, other[self.output])
        return {**y, self.output: changed}


def _rows(y: Array) -> Array:
    """Return a view of an array as rows of its last extent."""
    return y.reshape(-1, y.shape[-1])
