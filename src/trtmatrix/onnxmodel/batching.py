"""A user's samples with one row more, where the graph's batch is dynamic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.core.tensors import Range

Array = NDArray[Any]


class NoBatchError(ValueError):
    """A model's batch cannot be changed; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Batched:
    """Samples by file name and the profile of all, with one row more; ``size``: the first sample's rows."""

    arrays: Mapping[str, Array]
    profile: Mapping[str, Range]
    size: int


def add_row(
    model: Path, folder: Path, inputs: Mapping[str, str], marks: Sequence[str], profile: Mapping[str, Range]
) -> Batched:
    """Return the samples in a folder, with each one's last row there once more.

    ``inputs``: a file's name → the input's; ``marks``: what stands behind it, for each sample. Raises
    :class:`NoBatchError` where no input's first dimension is dynamic, or where they differ in size.
    """
    rows = _dynamic_rows(model, inputs)
    arrays = {file + mark: np.load(folder / f"{file}{mark}.npy") for file in inputs for mark in marks}
    for mark in marks:
        sizes = {len(arrays[file + mark]) for file in rows}
        if len(sizes) != 1 or 0 in sizes:
            raise NoBatchError("the inputs' first dimensions are dynamic, but no batch: they differ in size")
    grown = {file + mark for file in rows for mark in marks}
    more = {name: np.concatenate([a, a[-1:]]) if name in grown else a for name, a in arrays.items()}
    names = {inputs[file]: max(len(more[file + mark]) for mark in marks) for file in rows}
    wider = {name: _widen(shapes, names.get(name, 0)) for name, shapes in profile.items()}
    return Batched(arrays=more, profile=wider, size=len(more[rows[0] + marks[0]]))


def _widen(shapes: Range, rows: int) -> Range:
    """Let a profile's largest shape have so many rows at least."""
    least, best, most = shapes
    return (least, best, (max(most[0], rows), *most[1:])) if rows else shapes


def _dynamic_rows(model: Path, inputs: Mapping[str, str]) -> list[str]:
    """Return the files of the inputs whose first dimension is the graph's batch."""
    graph = onnx.load(str(model), load_external_data=False).graph
    first = {
        info.name: info.type.tensor_type.shape.dim[0] for info in graph.input
        if info.type.tensor_type.shape.dim
    }  # fmt: skip
    symbols = {
        file: first[name].dim_param for file, name in inputs.items()
        if name in first and not first[name].HasField("dim_value")
    }  # fmt: skip
    if not symbols:
        raise NoBatchError("the graph's batch is fixed: no input's first dimension is dynamic")
    symbol = next(iter(symbols.values()))
    return [file for file, other in symbols.items() if other == symbol]
