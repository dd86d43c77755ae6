"""What the repro of a user's model calls on the host: its files, its reference, its noise floor.

A model lies in ``<cache>/models/<name>``, with the folders ``model``, ``inputs`` and ``repros``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.onnxmodel.computing import Computed
from trtmatrix.onnxmodel.crosscheck import compute

Array = NDArray[Any]

EVALUATOR = "onnx.reference"
"""Who computes the reference where ONNX Runtime is what is judged, if it can."""


def mark_of(sample: int, samples: int) -> str:
    """Return what stands behind the names of a sample's files and outputs."""
    return f".s{sample}" if samples > 1 else ""


@dataclass(frozen=True)
class OwnModel:
    """A model as its repro describes it.

    ``repro``: the repro's file. ``inputs``, ``outputs``: names of files → those of the graph. ``precision``:
    of the noise floor. ``by``: who computes the reference.
    """

    repro: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    samples: int
    precision: str
    by: str = ""

    def prepare(self) -> dict[str, Any]:
        """Return what a repro's ``prepare`` does; no reference where none can be computed."""
        return {
            "model": self._folder / "model" / "model.onnx",
            "inputs": dict(self._by_file(self._feeds, self.inputs)),
            "reference": dict(self._by_file(self._computed.references, self.outputs)),
        }

    def noise(self) -> dict[str, Any]:
        """Return what a repro's ``noise`` does: errors by output and member, and the reference in words."""
        computed = self._computed
        references = dict(self._by_file(computed.references, self.outputs))
        arrays = {
            file: [sample[name] for sample in computed.references if name in sample]
            for file, name in self.outputs.items()
        }
        shares = {file: max(map(_share_not_finite, found), default=0.0) for file, found in arrays.items()}
        own_error = {file: computed.own_error.get(graph) for file, graph in self.outputs.items()}
        told = {
            "silent": sorted(file for file, found in arrays.items() if not all(map(_tells, found))),
            "not_finite": {file: share for file, share in shares.items() if share},
            "by": computed.by, "precision": computed.precision, "why_not": computed.why_not,
            "instead": computed.instead, "own_error_means": "float32 against float64",
            "own_error": {file: error for file, error in own_error.items() if error is not None},
        }  # fmt: skip
        errors = self._by_file(computed.errors, self.outputs)
        types = self._by_file([computed.types] * self.samples, self.outputs)
        return {
            "outputs": {file: dict(found) for file, found in errors if found and _tells(references[file])},
            "types": dict(types), "c": {}, "precision": self.precision, "reference": told,
        }  # fmt: skip

    @property
    def _folder(self) -> Path:
        return Path(self.repro).resolve().parent.parent

    @property
    def _feeds(self) -> list[dict[str, Array]]:
        """The feeds of each sample by the graph's names, mapped from their files."""
        folder, marks = self._folder / "inputs", [mark_of(n, self.samples) for n in range(self.samples)]
        return [
            {name: np.load(folder / f"{file}{mark}.npy", mmap_mode="r") for file, name in self.inputs.items()}
            for mark in marks
        ]

    @property
    def _computed(self) -> Computed:
        """What both functions of a repro need; it is computed once."""
        if self.repro not in _COMPUTED:
            _COMPUTED.clear()
            _COMPUTED[self.repro] = compute(
                self._folder / "model" / "model.onnx", self._feeds, self.precision,
                independent=self.by == EVALUATOR,
            )  # fmt: skip
        return _COMPUTED[self.repro]

    def _by_file(
        self, samples: Sequence[Mapping[str, Any]], names: Mapping[str, str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield what is known of each tensor in each sample, by the name of its file."""
        for number, found in enumerate(samples):
            mark = mark_of(number, self.samples)
            yield from ((file + mark, found[name]) for file, name in names.items() if name in found)


_COMPUTED: dict[str, Computed] = {}


def _tells(reference: Array) -> bool:
    """Whether a reference has an element to be compared with: not NaN, not infinite, and not zero."""
    return bool(np.any(np.isfinite(reference) & (reference != 0)))


def _share_not_finite(reference: Array) -> float:
    """Return the share of elements that are NaN or infinite, where nothing is compared."""
    return float(np.mean(~np.isfinite(reference))) if reference.size else 0.0
