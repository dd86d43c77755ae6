"""What the stand-in of TensorRT runs engines with: NumPy, over the host's memory."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np


class IOutputAllocator:
    def __init__(self) -> None:
        self.ready = True


class IExecutionContext:
    """Every output is the ReLU of the first input, computed when the run is enqueued; one of the shape [-1]
    holds what of it is not zero.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.addresses = {}  # type: dict[str, int]
        self.allocators = {}  # type: dict[str, Any]
        self.shapes = {name: list(shape) for name, (_, shape) in engine.tensors.items()}
        self.first = next(iter(engine.graph["inputs"]))

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name in self.engine.graph["inputs"]
        declared, ranges = self.engine.tensors[name][1], self.engine.graph["ranges"].get(name)
        if -1 not in declared:
            return bool(list(shape) == declared)
        if len(shape) != len(declared) or not all(
            ranges[0][i] <= size <= ranges[2][i] for i, size in enumerate(shape)
        ):
            return False
        self.shapes[name] = list(shape)
        return True

    def infer_shapes(self) -> list[str]:
        shapes = [self.shapes[name] for name in self.engine.graph["inputs"] if name not in self._host]
        if any(shape[0] != shapes[0][0] for shape in shapes):
            raise RuntimeError("broadcast: dimensions differ")
        for name in self._host:
            least, _, most = self.engine.graph["ranges"][name]
            values = enumerate(self._values(name), start=1)
            if not all(least[i] <= value <= most[i] for i, value in values):
                raise RuntimeError(f"{name}: the values are outside of the profile")
        return [name for name in self.engine.graph["inputs"] if name not in self.addresses]

    @property
    def _host(self) -> list[str]:
        return list(self.engine.graph.get("host", ()))

    def get_tensor_shape(self, name: str) -> list[int]:
        """Return an output's shape: the first input's where it has as many sizes; [-1] stays unknown.

        Where the graph says "expands": {output: input}, it is the values of that input.
        """
        if name in self.engine.graph.get("expands", ()):
            return self._values(self.engine.graph["expands"][name])
        shape = self.shapes[name]
        like = self.shapes[self.first]
        return like if -1 in shape and len(shape) == len(like) else shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        assert allocator.ready, "IOutputAllocator.__init__ was not called"
        self.allocators[name] = allocator
        return True

    def execute_async_v3(self, stream: int) -> bool:
        default = "STANDIN_DEFAULT_STREAM" in os.environ and stream == 0
        assert default or stream >> 56 == 0x7F, "no stream of the stand-in driver"
        if "run_says" in self.engine.graph:
            self.engine.complain(self.engine.graph["run_says"])
            return False
        driver = ctypes.CDLL("libcuda.so.1")
        driver.standinNote(b"run")
        if self.engine.graph.get("waits") and driver.cuStreamSynchronize(ctypes.c_void_p(stream)):
            self.engine.complain("the run waits for the host")
            return False
        if self.shapes[self.first][:1] == self.engine.graph.get("faults_at"):
            driver.standinBreak(700)
        x = self._array(self.first)
        for name in self.engine.graph["outputs"]:
            relu = np.maximum(x, 0)
            if name in self.allocators:
                if not self._write(name, relu[relu > 0]):
                    return False
                continue
            y = self._array(name)
            y[...] = np.broadcast_to(relu, y.shape).astype(y.dtype)
        return True

    def _write(self, name: str, values: Any) -> bool:
        """Ask for the memory of an output of unknown shape, as 10 does where it can, and fill it."""
        values = values.astype(self._dtype(name))
        allocator = self.allocators[name]
        if self.engine.major >= 10:
            address = allocator.reallocate_output_async(name, 0, values.nbytes, 256, 0)
        else:
            address = allocator.reallocate_output(name, 0, values.nbytes, 256)
        if not address:
            return False
        ctypes.memmove(address, values.ctypes.data, values.nbytes)
        allocator.notify_shape(name, list(values.shape))
        return True

    def _values(self, name: str) -> list[int]:
        """Return the values of a shape tensor, which must lie in the host's memory."""
        if ctypes.string_at(self.addresses[name] - 16, 15) == b"device's memory":
            raise RuntimeError(f"{name}: a shape tensor is read on the host")
        return [int(n) for n in self._array(name).reshape(-1)]

    def _dtype(self, name: str) -> Any:
        word = self.engine.tensors[name][0]
        return np.dtype("int32" if word == "int64" and self.engine.major < 9 else word)

    def _array(self, name: str) -> Any:
        dtype, shape = self._dtype(name), self.get_tensor_shape(name)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        block = (ctypes.c_uint8 * size).from_address(self.addresses[name])
        return np.frombuffer(block, dtype).reshape(shape)
