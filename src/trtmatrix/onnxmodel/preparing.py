"""What the generated repro of a user's model calls on the host: its files, its reference, its noise floor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.onnxmodel.computing import Computed, compute
from trtmatrix.onnxmodel.sessions import Evaluator, Session

Array = NDArray[Any]
Names = Mapping[str, str]

RUNTIME, EVALUATOR = "onnxruntime", "onnx.reference"
RUNNERS = {RUNTIME: (Session,), EVALUATOR: (Evaluator, Session)}
"""Who computes the reference: where ONNX Runtime is judged, it is not by itself if that can be."""


def mark_of(sample: int, samples: int) -> str:
    """Return what stands behind the names of a sample's files and outputs."""
    return f".s{sample}" if samples > 1 else ""


def model_of(repro: Path) -> Path:
    """Return the model that lies beside a generated repro's folder."""
    return repro.resolve().parent.parent / "model" / "model.onnx"


def prepare(
    repro: Path, inputs: Names, outputs: Names, samples: int, precision: str, by: str = RUNTIME
) -> dict[str, Any]:
    """Return what a repro's ``prepare`` does; no reference where none can be computed."""
    computed = _computed(repro, tuple(inputs.items()), samples, precision, by)
    arrays = {
        file + mark_of(sample, samples): array
        for sample, feeds in enumerate(_samples(repro, inputs, samples))
        for file, array in ((file, feeds[name]) for file, name in inputs.items())
    }
    reference = {
        file + mark_of(sample, samples): found[name]
        for sample, found in enumerate(computed.references)
        for file, name in outputs.items()
    }
    return {"model": model_of(repro), "inputs": arrays, "reference": reference}


def noise(
    repro: Path, inputs: Names, outputs: Names, samples: int, precision: str, by: str = RUNTIME
) -> dict[str, Any]:
    """Return what a repro's ``noise`` does: errors by output and member, and the reference in words."""
    computed = _computed(repro, tuple(inputs.items()), samples, precision, by)
    errors = {
        file + mark_of(sample, samples): dict(found[name])
        for sample, found in enumerate(computed.errors)
        for file, name in outputs.items() if found[name] and _tells(computed.references[sample][name])
    }  # fmt: skip
    told = {
        "silent": sorted(
            {
                file for sample in computed.references for file, name in outputs.items()
                if not _tells(sample[name])
            }
        ),
        "not_finite": {
            file: share for file, name in outputs.items()
            if (share := max((_not_finite(sample[name]) for sample in computed.references), default=0.0))
        },
        "by": computed.by, "precision": computed.precision, "why_not": computed.why_not,
        "instead": computed.instead,
        "own_error": {
            file: computed.own_error[name] for file, name in outputs.items() if name in computed.own_error
        },
        "own_error_means": computed.own_means,
    }  # fmt: skip
    types = {
        file + mark_of(sample, samples): computed.types[name]
        for sample in range(samples) for file, name in outputs.items() if name in computed.types
    }  # fmt: skip
    return {"outputs": errors, "types": types, "c": {}, "precision": precision, "reference": told}


def _tells(reference: Array) -> bool:
    """Whether a reference has an element to be compared with: not NaN, not infinite, and not zero."""
    return bool(np.any(np.isfinite(reference) & (reference != 0)))


def _not_finite(reference: Array) -> float:
    """Return the share of elements that are NaN or infinite, where nothing is compared."""
    return float(np.mean(~np.isfinite(reference))) if reference.size else 0.0


@lru_cache(maxsize=1)
def _computed(
    repro: Path, inputs: tuple[tuple[str, str], ...], samples: int, precision: str, by: str
) -> Computed:
    """Compute once what both functions of a repro need."""
    model, feeds = model_of(repro), _samples(repro, dict(inputs), samples)
    return compute(model, feeds, precision, model.parent, RUNNERS[by])


def _samples(repro: Path, inputs: Names, samples: int) -> list[dict[str, Array]]:
    """Return the feeds of each sample by the graph's names, mapped from their files."""
    folder = model_of(repro).parent.parent / "inputs"
    return [
        {
            name: np.load(folder / f"{file}{mark_of(sample, samples)}.npy", mmap_mode="r")
            for file, name in inputs.items()
        }
        for sample in range(samples)
    ]
