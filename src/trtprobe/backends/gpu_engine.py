"""A TensorRT engine on the GPU: bind, run, time, and see what it runs."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Tuple, Type

import numpy as np

from trtprobe import ends
from trtprobe.backends.base import Engine
from trtprobe.clocks import read_clocks
from trtprobe.cuda import Memory, Stream
from trtprobe.kernels import launched_kernels, see_fusion

DTYPES: Dict[str, Type[np.generic]] = {
    "FLOAT": np.float32, "HALF": np.float16, "INT8": np.int8, "UINT8": np.uint8,
    "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
"""NumPy's dtype of each tensor type; 8.5's own nptype() breaks on NumPy 1.24 and later."""

WARM_SECONDS = 0.05
"""How long a GPU is kept busy before it is timed: clocks rise from idle within some milliseconds."""


class GpuEngine(Engine):
    """A deserialized engine with one execution context."""

    def __init__(self, backend: Any, engine: Any, names: List[str]) -> None:
        """Create the context; ``names`` are those of the engine's own layers and tactics."""
        self.backend, self.engine, self.names = backend, engine, names
        self.context = engine.create_execution_context()
        if self.context is None:
            raise backend.failure("no execution context", ends.RunFailed)
        trt = backend.trt
        tensors = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        is_input = {n: engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT for n in tensors}
        self.inputs = [name for name in tensors if is_input[name]]
        self.outputs = [name for name in tensors if not is_input[name]]

    def dtype(self, name: str) -> np.dtype:
        """Return a tensor's dtype."""
        kind = self.engine.get_tensor_dtype(name).name
        if kind not in DTYPES:
            raise ends.Unsupported("%s is %s, which NumPy does not have" % (name, kind))
        return np.dtype(DTYPES[kind])

    def bind(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, Memory]:
        """Set shapes and addresses, copy the inputs in; returns the device memory of each tensor."""
        memory: Dict[str, Memory] = {}
        for name in self.inputs:
            array = np.ascontiguousarray(inputs[name])
            if array.dtype != self.dtype(name):
                raise ValueError("%s: engine wants %s, got %s" % (name, self.dtype(name), array.dtype))
            self.context.set_input_shape(name, array.shape)
            memory[name] = self.backend.cuda.alloc(array.nbytes)
            memory[name].put(array)
        for name in self.outputs:
            size = int(np.prod(self.shape(name), dtype=np.int64)) * self.dtype(name).itemsize
            memory[name] = self.backend.cuda.alloc(size)
        for name, block in memory.items():
            self.context.set_tensor_address(name, block.pointer)
        return memory

    def shape(self, name: str) -> List[int]:
        """Return a tensor's shape for the inputs that were bound."""
        return [int(n) for n in self.context.get_tensor_shape(name)]

    def enqueue(self, stream: Stream) -> None:
        """Put one run on a stream; returns at once."""
        if not self.context.execute_async_v3(stream.handle.value):
            raise self.backend.failure("execute_async_v3 failed", ends.RunFailed)

    def read(self, name: str, block: Memory) -> np.ndarray:
        """Return device memory as an array of a tensor's shape and dtype (waits for the copy only)."""
        return block.get(np.empty(self.shape(name), self.dtype(name)))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run twice on one stream and keep the second: the first also loads the kernels."""
        memory, stream = self._ready(inputs)
        self.backend.facts["run_ms"] = self._timed(stream)
        stream.synchronize()
        return {name: self.read(name, memory[name]) for name in self.outputs}

    def fusion(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Look at layers, tactics and, where CUPTI is there, at the kernels of one run."""
        memory, stream = self._ready(inputs)
        kernels = launched_kernels(lambda: self.enqueue(stream))
        stream.synchronize()
        del memory
        facts = self.backend.facts
        facts["kernels"] = kernels and list(dict.fromkeys(kernels))[:100]
        facts["fusion"] = see_fusion(self.names, kernels)
        return str(facts["fusion"])

    def latency(self, inputs: Mapping[str, np.ndarray], runs: int = 50) -> float:
        """Return the median of single runs between events; idle clocks are left behind first."""
        memory, stream = self._ready(inputs)
        started = time.perf_counter()
        while time.perf_counter() - started < WARM_SECONDS:
            self.enqueue(stream)
            stream.synchronize()
        times = [self._timed(stream) for _ in range(runs)]
        self.backend.facts["clocks"] = read_clocks(self.backend.cuda.bus())
        del memory
        return float(np.median(times))

    def _ready(self, inputs: Mapping[str, np.ndarray]) -> Tuple[Dict[str, Memory], Stream]:
        """Bind, and run once: the first run also loads the kernels."""
        memory, stream = self.bind(inputs), self.backend.cuda.stream()
        self.backend.cuda.synchronize()
        self.enqueue(stream)
        stream.synchronize()
        return memory, stream

    def _timed(self, stream: Stream) -> float:
        before = stream.record()
        self.enqueue(stream)
        return stream.record().milliseconds_since(before)
