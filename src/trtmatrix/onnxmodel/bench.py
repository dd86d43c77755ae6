"""A folder in which one model is rewritten again and again; its large weights stay where they are, in files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from trtmatrix.onnxmodel.external import find_external
from trtmatrix.onnxmodel.retype import CannotRewriteError, Retyping
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.onnxmodel.walk import LARGE, Known, elements, infer, known_of, opset_of

WEIGHTS = "trtmatrix-weights.bin"
LEAST_OPSET = 11
"""Below it Equal, Slice and Pad are not what the rewritten graph is made of."""

LARGE_WEIGHTS = 1 << 29
"""Bytes of weights from which on a model is large: fewer ways of computing it are tried."""

Shapes = dict[str, tuple[int, ...]]


class Bench:
    """One model, ready to be rewritten. ``known``: its tensors' types, and their shapes for the first sample."""

    def __init__(self, model: Path, folder: Path, shapes: Shapes) -> None:
        """Read a model; ``folder`` is for what is written, on the same disk. It is emptied by nobody.

        :class:`CannotRewriteError` where its opset is too old.
        """
        self.folder = folder
        self.model = onnx.load(str(model), load_external_data=False)
        if opset_of(self.model) < LEAST_OPSET:
            raise CannotRewriteError(f"its opset is {opset_of(self.model)}, below {LEAST_OPSET}")
        if self.model.functions:
            self.model = onnx.inliner.inline_local_functions(self.model)
        for name, file in find_external(model).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(file, folder / name)
        self._move_weights()
        self.known = known_of(infer(self.model, shapes).graph)

    def _move_weights(self) -> None:
        """Write the data of large initialisers into a file, as ONNX's external data."""
        at = 0
        with (self.folder / WEIGHTS).open("wb") as out:
            for tensor in self.model.graph.initializer:
                is_external = tensor.data_location == TensorProto.EXTERNAL
                if is_external or elements(tensor) <= LARGE or tensor.data_type == TensorProto.STRING:
                    continue
                data = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
                out.write(data)
                bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                bare.data_location = TensorProto.EXTERNAL
                for key, value in (("location", WEIGHTS), ("offset", at), ("length", len(data))):
                    bare.external_data.add(key=key, value=str(value))
                tensor.CopyFrom(bare)
                at += len(data) + out.write(b"\0" * (-len(data) % 64))

    @property
    def is_large(self) -> bool:
        """Whether its weights take so much memory that there should not be much beside them."""
        return _weight_bytes(self.model) > LARGE_WEIGHTS

    def operators(self) -> set[str]:
        """Return the operators of the graph itself."""
        return {node.op_type for node in self.model.graph.node}

    def session(self, name: str, change: Callable[[ModelProto], object], *, optimised: bool = False) -> Session:
        """Load a changed copy of the model; ``name`` is for its file."""
        copy = ModelProto()
        copy.CopyFrom(self.model)
        change(copy)
        path = self.folder / f"{name}.onnx"
        path.write_bytes(copy.SerializeToString())
        try:
            return Session(path, optimised=optimised, frugal=self.is_large)
        finally:
            path.unlink()

    def float32(self, model: ModelProto) -> Known:
        """Rewrite a copy so that all its real numbers are float32; returns what was known before."""
        Retyping(model, self.known, TensorProto.FLOAT).rewrite()
        return self.known


def _weight_bytes(model: ModelProto) -> int:
    total = 0
    for tensor in model.graph.initializer:
        lengths = [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
        total += sum(lengths) or len(tensor.raw_data)
    return total
