"""A TensorRT engine on the GPU: bind, run, time, and see what it runs.

Outputs whose shape depends on the data: TensorRT asks for their memory while it runs
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/python-api/infer/Core/OutputAllocator.html).
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

import numpy as np

from trtprobe import ends
from trtprobe.backends.base import Engine, fit_feed, sum_up, time_runs
from trtprobe.backends.kernels import launched_kernels, see_fusion
from trtprobe.cuda import Cuda, Memory, Stream

DTYPES: Dict[str, Type[np.generic]] = {
    "FLOAT": np.float32, "HALF": np.float16, "INT8": np.int8, "UINT8": np.uint8,
    "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
"""NumPy's dtype of each tensor type; 8.5's own nptype() breaks on NumPy 1.24 and later."""

WARM_SECONDS = 0.05
"""How long a GPU is kept busy before it is timed: clocks rise from idle within some milliseconds."""

RUNS, SECONDS = 50, 0.1
"""At most so many runs, or about so long, are timed."""


class GpuEngine(Engine):
    """A deserialized engine with one execution context."""

    def __init__(self, backend: Any, engine: Any, names: List[str]) -> None:
        """Create the context; ``names`` are those of the engine's own layers and tactics."""
        self.backend, self.engine, self.names = backend, engine, names
        self.context = engine.create_execution_context()
        if self.context is None:
            raise backend.failure("no execution context", ends.RunFailed)
        self.inputs: List[str] = []
        self.outputs: List[str] = []
        for name in map(engine.get_tensor_name, range(engine.num_io_tensors)):
            is_input = engine.get_tensor_mode(name) == backend.trt.TensorIOMode.INPUT
            (self.inputs if is_input else self.outputs).append(name)
        self._on_host: Dict[str, np.ndarray] = {}
        self._growing: Dict[str, Growing] = {}
        self._has_latency = False

    def dtype(self, name: str) -> np.dtype:
        """Return a tensor's dtype."""
        kind = self.engine.get_tensor_dtype(name).name
        if kind not in DTYPES:
            raise ends.Unsupported("%s is %s, which NumPy does not have" % (name, kind))
        return np.dtype(DTYPES[kind])

    def bind(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, Memory]:
        """Set shapes and addresses, copy the inputs in; returns the device memory of each tensor.

        Memory of tensors that TensorRT wants on the host, and of outputs whose shape depends on the data, is
        kept here instead. Raises as :func:`fit_feed` does, and ``RunFailed`` where the engine does not take
        an input's shape.
        """
        memory: Dict[str, Memory] = {}
        self._on_host = {}
        for name in self.inputs:
            array = fit_feed(inputs, name, self.dtype(name))
            self._set_shape(name, array.shape)
            if self._is_on_host(name):
                self._place_on_host(name, array.copy())
                continue
            memory[name] = self.backend.cuda.alloc(array.nbytes)
            memory[name].put(array)
            self.context.set_tensor_address(name, memory[name].pointer)
        if self._on_host or any(map(self._is_dynamic, self.inputs)):
            self._check_shapes(inputs)
        for name in self.outputs:
            shape = self.shape(name)
            if -1 in shape:
                self._let_grow(name)
            elif self._is_on_host(name):
                self._place_on_host(name, np.zeros(shape, self.dtype(name)))
            else:
                size = int(np.prod(shape, dtype=np.int64)) * self.dtype(name).itemsize
                memory[name] = self.backend.cuda.alloc(size)
                self.context.set_tensor_address(name, memory[name].pointer)
        return memory

    def _set_shape(self, name: str, shape: Tuple[int, ...]) -> None:
        if self.context.set_input_shape(name, shape):
            return
        taken = [self.engine.get_tensor_shape(name)]
        if self._is_dynamic(name):  # the least, the best and the largest
            taken = list(self.engine.get_tensor_profile_shape(name, 0))
        ranges = "; ".join(str([int(n) for n in one]) for one in taken)
        text = "input %s: the engine does not take the shape %s; it was built for %s"
        raise ends.RunFailed(text % (name, list(shape), ranges))

    def _is_dynamic(self, name: str) -> bool:
        return any(int(size) < 0 for size in self.engine.get_tensor_shape(name))

    def _is_on_host(self, name: str) -> bool:
        return bool(self.engine.get_tensor_location(name) == self.backend.trt.TensorLocation.HOST)

    def _place_on_host(self, name: str, array: np.ndarray) -> None:
        self._on_host[name] = array
        self.context.set_tensor_address(name, array.ctypes.data)

    def _let_grow(self, name: str) -> None:
        """Let TensorRT ask for an output's memory."""
        if name not in self._growing:
            self._growing[name] = Growing(self.backend.trt, self.backend.cuda)
        if not self.context.set_output_allocator(name, self._growing[name].allocator):
            raise ends.Unsupported("output %s has a shape that depends on the data: no allocator" % name)

    def _check_shapes(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Let a dynamic engine say whether the inputs' shapes, and values that decide shapes, fit."""
        values = {name: "= %s" % array.tolist() for name, array in self._on_host.items()}
        told = {name: values.get(name, str(list(np.shape(inputs[name])))) for name in self.inputs}
        given = ", ".join("%s %s" % pair for pair in told.items())
        try:
            lacking = self.context.infer_shapes()
        except RuntimeError as error:
            text = "the inputs' shapes do not fit each other or the profile: %s: %s"
            raise ends.RunFailed(text % (given, error)) from error
        if lacking:
            raise ends.RunFailed("shapes of %s are not known, with %s" % (", ".join(lacking), given))

    def shape(self, name: str) -> List[int]:
        """Return a tensor's shape for the inputs that were bound; -1 where it depends on the data."""
        return [int(n) for n in self.context.get_tensor_shape(name)]

    def enqueue(self, stream: Stream) -> None:
        """Put one run on a stream; returns at once."""
        if not self.context.execute_async_v3(stream.handle.value):
            for growing in self._growing.values():
                if growing.trouble is not None:
                    raise growing.trouble
            raise self.backend.failure("execute_async_v3 failed", ends.RunFailed)

    def read(self, name: str, block: Memory) -> np.ndarray:
        """Return device memory as an array of a tensor's shape and dtype (waits for the copy only)."""
        return block.get(np.empty(self.shape(name), self.dtype(name)))

    def _output(self, name: str, memory: Mapping[str, Memory]) -> np.ndarray:
        """Return an output after a run, wherever it lies."""
        if name in self._on_host:
            return np.array(self._on_host[name])
        if name in memory:
            return self.read(name, memory[name])
        growing = self._growing[name]
        y: np.ndarray = np.empty(growing.shape, self.dtype(name))
        return growing.memory.get(y) if growing.memory is not None and y.size else y

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run twice on one stream and keep the second: the first also loads the kernels.

        An engine's first call then times further runs, whose outputs nobody reads.
        """
        memory, stream = self._ready(inputs)
        facts = self.backend.facts
        facts["run_ms"] = self._timed(stream)
        stream.synchronize()
        outputs = {name: self._output(name, memory) for name in self.outputs}
        if not self._has_latency:
            self._has_latency = True
            started = time.perf_counter()
            facts["latency"] = sum_up(self._times(stream, RUNS, SECONDS, warmed=facts["run_ms"] / 1e3))
            facts["latency_seconds"] = time.perf_counter() - started
            engine = self.engine
            if hasattr(engine, "device_memory_size_v2"):
                facts["device_memory_bytes"] = int(engine.device_memory_size_v2)
            elif hasattr(engine, "device_memory_size"):
                facts["device_memory_bytes"] = int(engine.device_memory_size)
        return outputs

    def fusion(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Look at layers, tactics and, where CUPTI is there, at the kernels of one run."""
        memory, stream = self._ready(inputs)
        kernels = launched_kernels(lambda: self.enqueue(stream))
        stream.synchronize()
        del memory
        seen = see_fusion(self.names, kernels)
        self.backend.facts.update(kernels=kernels and list(dict.fromkeys(kernels))[:100], fusion=seen)
        return seen

    def latency(self, inputs: Mapping[str, np.ndarray], runs: int = 50) -> float:
        """Return the median of single runs between events; idle clocks are left behind first."""
        memory, stream = self._ready(inputs)
        times = self._times(stream, runs, math.inf)
        del memory
        return float(np.median(times))

    def _times(self, stream: Stream, runs: int, seconds: float, warmed: float = 0.0) -> List[float]:
        """Return what single runs took, in milliseconds, once the GPU has been busy for a while.

        ``warmed``: for how many seconds it has been busy just now.
        """
        started = time.perf_counter() - warmed
        while time.perf_counter() - started < WARM_SECONDS:
            self.enqueue(stream)
            stream.synchronize()
        times = time_runs(lambda: self._timed(stream), runs, seconds)
        self.backend.facts["clocks"] = self.backend.cuda.clocks()
        return times

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


class Growing:
    """The memory of one output whose shape depends on the data, and its shape after a run."""

    def __init__(self, trt: Any, cuda: Cuda) -> None:
        """Make TensorRT's allocator; ``Unsupported`` where the bindings have none."""
        if not hasattr(trt, "IOutputAllocator"):
            raise ends.Unsupported("an output's shape depends on the data: these bindings have no allocator")
        self.cuda = cuda
        self.memory: Optional[Memory] = None
        self.shape: Tuple[int, ...] = ()
        self.trouble: Optional[Exception] = None
        self.allocator = _make_allocator(trt, self)

    def grow(self, size: int) -> int:
        """Return the address of at least ``size`` bytes; 0 where there are none, which ends the run."""
        try:
            if self.memory is None or self.memory.size < size:
                self.memory = None
                self.memory = self.cuda.alloc(size)
        except Exception as error:  # nothing may be raised through TensorRT
            self.trouble = error
            return 0
        return self.memory.pointer


def _make_allocator(trt: Any, growing: Growing) -> Any:
    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]  # the module is known at run time only
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)

        def reallocate_output(self, name: str, memory: Any, size: int, alignment: int) -> int:
            del name, memory, alignment  # the driver's own alignment, 256 bytes, is the largest asked for
            return growing.grow(int(size))

        def reallocate_output_async(
            self, name: str, memory: Any, size: int, alignment: int, stream: Any
        ) -> int:
            del stream
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Any) -> None:
            del name
            growing.shape = tuple(int(n) for n in shape)

    return Allocator()
