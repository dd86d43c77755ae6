"""A folder in which one model is rewritten again and again; its large weights stay as they are, in files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.inliner import inline_local_functions
from onnx.version_converter import convert_version

from trtmatrix.onnxmodel.external import find_external
from trtmatrix.onnxmodel.retype import CannotRewriteError, Retyping
from trtmatrix.onnxmodel.sessions import Session
from trtmatrix.onnxmodel.walk import LARGE, Known, elements, infer, known_of, opset_of

WEIGHTS = "trtmatrix-weights.bin"
LEAST_OPSET = 11
"""Below it Equal, Slice and Pad are not what the rewritten graph is made of."""

LARGE_WEIGHTS = 1 << 29
"""Bytes of weights from which on a model is large: fewer ways of computing it are tried."""

NEWER_OPSET = 13
"""What an older model is converted to."""

Shapes = dict[str, tuple[int, ...]]


class Bench:
    """One model, ready to be rewritten. ``known``: its tensors' types, and the first sample's shapes."""

    def __init__(self, model: Path, folder: Path, shapes: Shapes, runner: type[Session] = Session) -> None:
        """Read a model; ``folder`` is for what is written, on the same disk. It is emptied by nobody.

        :class:`CannotRewriteError` where its opset is old and cannot be converted.
        """
        self.folder, self.runner = folder, runner
        self.model = onnx.load(str(model), load_external_data=False)
        if opset_of(self.model) < LEAST_OPSET:
            self.model = _converted(self.model)
        if self.model.functions:
            self.model = inline_local_functions(self.model)
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

    def real_type(self, name: str) -> str:
        """Return the type of a tensor that holds real numbers, by NumPy's name; nothing of another."""
        kind = self.known.types[name] if self.known.is_float(name) else None
        return "" if kind is None else str(onnx.helper.tensor_dtype_to_np_dtype(kind))

    def operators(self) -> set[str]:
        """Return the operators of the graph itself."""
        return {node.op_type for node in self.model.graph.node}

    def session(
        self, name: str, change: Callable[[ModelProto], object], *, optimised: bool = False,
        runner: type[Session] | None = None,
    ) -> Session:  # fmt: skip
        """Load a changed copy of the model; ``name`` is for its file, ``runner`` if it is another."""
        copy = ModelProto()
        copy.CopyFrom(self.model)
        change(copy)
        path = self.folder / f"{name}.onnx"
        path.write_bytes(copy.SerializeToString())
        try:
            return (runner or self.runner)(path, optimised=optimised, frugal=self.is_large)
        finally:
            path.unlink()

    def float32(self, model: ModelProto) -> Known:
        """Rewrite a copy so that all its real numbers are float32; returns what was known before."""
        Retyping(model, self.known, TensorProto.FLOAT).rewrite()
        return self.known


def _converted(model: ModelProto) -> ModelProto:
    """Return an old model in a newer opset; :class:`CannotRewriteError` where onnx cannot convert it."""
    was = opset_of(model)
    try:
        return convert_version(model, NEWER_OPSET)
    except Exception as error:  # whatever stops the converter, the model stays as it is
        said = " ".join(str(error).split())[:200]
        raise CannotRewriteError(f"its opset is {was}, which onnx cannot convert: {said}") from error


def _weight_bytes(model: ModelProto) -> int:
    total = 0
    for tensor in model.graph.initializer:
        lengths = [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
        total += sum(lengths) or len(tensor.raw_data)
    return total
