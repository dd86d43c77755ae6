"""What the repro of a user's model calls on the host: its files, its reference, its noise floor.

A model lies in ``<cache>/models/<name>``, with the folders ``model``, ``inputs`` and ``repros``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.onnxmodel.computing import Computed, compute
from trtmatrix.onnxmodel.sessions import Evaluator, Session

Array = NDArray[Any]

RUNTIME, EVALUATOR = "onnxruntime", "onnx.reference"
RUNNERS = {RUNTIME: (Session,), EVALUATOR: (Evaluator, Session)}
"""Who computes the reference: where ONNX Runtime is judged, it is not by itself if that can be."""


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
    by: str = RUNTIME

    def prepare(self) -> dict[str, Any]:
        """Return what a repro's ``prepare`` does; no reference where none can be computed."""
        feeds = _feeds(self.repro, tuple(self.inputs.items()), self.samples)
        return {
            "model": Path(self.repro).resolve().parent.parent / "model" / "model.onnx",
            "inputs": dict(self._by_file(feeds, self.inputs)),
            "reference": dict(self._by_file(self._computed.references, self.outputs)),
        }

    def noise(self) -> dict[str, Any]:
        """Return what a repro's ``noise`` does: errors by output and member, and the reference in words."""
        computed = self._computed
        references = dict(self._by_file(computed.references, self.outputs))
        not_finite = {
            file: max((_share_not_finite(sample[name]) for sample in computed.references), default=0.0)
            for file, name in self.outputs.items()
        }
        own_error = {name: computed.own_error.get(graph) for name, graph in self.outputs.items()}
        told = {
            "silent": sorted(
                file
                for file, name in self.outputs.items()
                if not all(_tells(sample[name]) for sample in computed.references)
            ),
            "not_finite": {file: share for file, share in not_finite.items() if share},
            "by": computed.by, "precision": computed.precision, "why_not": computed.why_not,
            "instead": computed.instead, "own_error_means": computed.own_means,
            "own_error": {file: error for file, error in own_error.items() if error is not None},
        }  # fmt: skip
        errors = self._by_file(computed.errors, self.outputs)
        types = self._by_file([computed.types] * self.samples, self.outputs)
        return {
            "outputs": {file: dict(found) for file, found in errors if found and _tells(references[file])},
            "types": dict(types), "c": {}, "precision": self.precision, "reference": told,
        }  # fmt: skip

    @property
    def _computed(self) -> Computed:
        return _compute_once(
            self.repro, tuple(self.inputs.items()), self.samples, self.precision, RUNNERS[self.by]
        )

    def _by_file(
        self, samples: Sequence[Mapping[str, Any]], names: Mapping[str, str]
    ) -> Iterator[tuple[str, Any]]:
        """Yield what is known of each tensor in each sample, by the name of its file."""
        for number, found in enumerate(samples):
            mark = mark_of(number, self.samples)
            yield from ((file + mark, found[name]) for file, name in names.items() if name in found)


@lru_cache(maxsize=1)
def _compute_once(
    repro: str, inputs: tuple[tuple[str, str], ...], samples: int, precision: str,
    runners: tuple[type[Session], ...],
) -> Computed:  # fmt: skip
    """Compute once what both functions of a repro need."""
    model = Path(repro).resolve().parent.parent / "model" / "model.onnx"
    return compute(model, _feeds(repro, inputs, samples), precision, model.parent, runners)


def _feeds(repro: str, inputs: tuple[tuple[str, str], ...], samples: int) -> list[dict[str, Array]]:
    """Return the feeds of each sample by the graph's names, mapped from their files."""
    folder = Path(repro).resolve().parent.parent / "inputs"
    return [
        {
            name: np.load(folder / f"{file}{mark_of(number, samples)}.npy", mmap_mode="r")
            for file, name in inputs
        }
        for number in range(samples)
    ]


def _tells(reference: Array) -> bool:
    """Whether a reference has an element to be compared with: not NaN, not infinite, and not zero."""
    return bool(np.any(np.isfinite(reference) & (reference != 0)))


def _share_not_finite(reference: Array) -> float:
    """Return the share of elements that are NaN or infinite, where nothing is compared."""
    return float(np.mean(~np.isfinite(reference))) if reference.size else 0.0
