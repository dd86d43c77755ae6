"""A failing model with what it is fed: read, written, computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto

from trtmatrix.common.errors import UsageError
from trtmatrix.onnxmodel.graphs import find_external
from trtmatrix.onnxmodel.samples import digest_samples
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.onnxmodel.tensors import Range

Array = NDArray[Any]
Sample = Mapping[str, Array]

LARGEST = 1 << 30
"""Bytes of a model that is still copied for each step of a search; protobuf itself ends at twice that."""


@dataclass(frozen=True, kw_only=True)
class FailingModel:
    """A model, its samples by the names of its inputs, and the profile of dynamic inputs. Never changed."""

    model: ModelProto
    samples: tuple[Sample, ...]
    profile: Mapping[str, Range] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what is fed."""
        weights = {tensor.name for tensor in self.model.graph.initializer}
        return tuple(info.name for info in self.model.graph.input if info.name not in weights)

    @property
    def is_dynamic(self) -> bool:
        """Whether an input takes several shapes."""
        fed = [info for info in self.model.graph.input if info.name in self.samples[0]]
        return any(not d.HasField("dim_value") for info in fed for d in info.type.tensor_type.shape.dim)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of model, samples and profile (hexadecimal)."""
        total = sha256(self.model.SerializeToString(deterministic=True))
        total.update(f"{digest_samples(self.samples)} {sorted(self.profile.items())}".encode())
        return total.hexdigest()

    @property
    def size(self) -> dict[str, int]:
        """What a reader counts."""
        return {
            "nodes": len(self.model.graph.node), "inputs": len(self.inputs), "samples": len(self.samples),
            "values": sum(array.size for sample in self.samples for array in sample.values()),
            "weights": sum(prod(tensor.dims) for tensor in self.model.graph.initializer),
        }  # fmt: skip

    def fed_with(self, model: ModelProto, values: Sequence[Sample]) -> FailingModel:
        """Return another model, which is fed by sample with those of these values that it takes."""
        after = replace(self, model=model)
        samples = tuple({name: sample[name] for name in after.inputs} for sample in values)
        profile = {name: shapes for name, shapes in self.profile.items() if name in after.inputs}
        return replace(after, samples=samples, profile=profile)


def read_failing_model(file: Path, samples: Sequence[Sample], profile: Mapping[str, Range]) -> FailingModel:
    """Read a model with all its weights; :class:`UsageError` where that is too much to be copied again."""
    size = sum(path.stat().st_size for path in [file, *find_external(file).values()])
    if size > LARGEST:
        raise UsageError(f"the model has {size >> 20} MiB: every step of the search would write them again")
    model = onnx.load(str(file))
    return FailingModel(model=model, samples=(), profile=dict(profile)).fed_with(model, samples)


def write_failing_model(failing: FailingModel, folder: Path) -> tuple[Path, Path]:
    """Write ``model.onnx`` and its inputs: ``inputs.npz``, or a folder ``inputs`` of several samples."""
    model, count = folder / "model.onnx", len(failing.samples)
    model.write_bytes(failing.model.SerializeToString(deterministic=True))
    inputs = folder / ("inputs.npz" if count == 1 else "inputs")
    if count > 1:
        inputs.mkdir()
    for number, sample in enumerate(failing.samples):
        file = inputs if count == 1 else inputs / f"{number:0{len(str(count - 1))}}.npz"
        np.savez(file, **dict(sample))  # type: ignore[arg-type] # arrays alone
    return model, inputs


def compute(model: ModelProto, sample: Sample) -> dict[str, Array]:
    """Return a model's outputs; :class:`NotComputedError` where ONNX Runtime cannot run it."""
    return Session(bytes(model.SerializeToString())).run(sample)


def size_text(size: Mapping[str, int]) -> str:
    """Return a model's size in words."""
    nodes, values, weights = (f"{size[name]:,}" for name in ("nodes", "values", "weights"))
    return f"{nodes} node{'' if nodes == '1' else 's'}, {values} numbers fed, {weights} in weights"
