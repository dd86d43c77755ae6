"""What a model costs its user: end to end, with and without a CUDA graph, and throughput.

A model of one's own asks for it after its outputs were read. Trouble here is a reason, never the cell's.

End to end is what the host sees: inputs in pinned memory are copied to the GPU, the engine is run, outputs
are copied back into pinned memory, and the host waits for them. With a CUDA graph all of this is captured
once and launched each time; trtexec's --useCudaGraph captures the run alone, without the copies. Names and
signatures: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__GRAPH.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
from functools import partial
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import numpy as np

from trtprobe.backends.base import LEAST, SLOW_SECONDS, sum_up, time_runs
from trtprobe.backends.gpu_engine import RUNS, SECONDS, WARM_SECONDS
from trtprobe.cuda import Cuda, Memory, Stream

WINDOWS = 10  # throughput is that of so many windows, each of many runs, which together take about SECONDS
MOST_BYTES = 1 << 30
"""Inputs of the profile's largest shapes that are larger than this are not made on the host."""

Range = Tuple[Sequence[int], ...]


class NotTimedError(Exception):
    """A figure that an engine cannot have, and why."""


def time_engine(
    backend: Any, engine: Any, inputs: Mapping[str, np.ndarray], profile: Mapping[str, Range]
) -> None:
    """Put an engine's ``end_to_end``, ``throughput`` and ``end_to_end_graph`` into the backend's facts.

    ``inputs``: those of one sample; ``profile``: as :meth:`Backend.build` takes it. Each is a median and
    quantiles in milliseconds a run (:func:`sum_up`); ``throughput`` has also its ``batch``. Why one is
    missing is in ``not_timed``. Nothing is raised. A product without a GPU has none of them.

    If the GPU's context then reports an error, or a capture failed, the cell is what it was before, but its
    process serves no other: the worker sees that the backend's ``trouble`` was replaced.
    """
    if not backend.has_streams or backend.trouble():
        return
    not_timed: Dict[str, str] = {}
    started = time.perf_counter()
    steps: Dict[str, Tuple[str, Callable[[], Dict[str, Any]]]] = {
        "end_to_end": ("not timed end to end", lambda: time_end_to_end(engine, inputs)),
        "throughput": ("no throughput", lambda: time_throughput(engine, inputs, profile)),
        "end_to_end_graph": ("no CUDA graph", lambda: time_with_graph(engine, inputs)),
    }  # the last may spoil what comes after it
    for name, (what, measure) in steps.items():
        try:
            backend.facts[name] = measure()
        except Exception as error:
            not_timed[name] = "%s: %s" % (what, str(error)[:300] or type(error).__name__)
            is_spoilt = name == "end_to_end_graph" and not isinstance(error, NotTimedError)
            if is_spoilt or backend.trouble():
                backend.trouble = str  # which returns nothing
                not_timed.update((each, not_timed[name]) for each in steps if each not in backend.facts)
                break
    if not_timed:
        backend.facts["not_timed"] = not_timed
    backend.facts["timing_seconds"] = time.perf_counter() - started


def time_end_to_end(engine: Any, inputs: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    """Return what single runs take from host to host, each put on a stream anew."""
    path = EndToEnd(engine, inputs)
    return path.time(path.put_on_stream, WARM_SECONDS)


def time_with_graph(engine: Any, inputs: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    """Return what single runs take from host to host, captured into a CUDA graph once and launched.

    A capture that fails leaves the stream behind; the engine then runs once more without a graph, which also
    takes the error away that the product's copy of the CUDA runtime may still have for its next caller.
    """
    path = EndToEnd(engine, inputs)
    if path.on_host:
        raise NotTimedError("the host reads or writes %s in each run" % ", ".join(path.on_host))
    path.run(path.put_on_stream)  # what an engine does only for new shapes is not captured
    try:
        graph = Graph(path.cuda, path.stream, path.put_on_stream)
    except Exception:
        with contextlib.suppress(Exception):
            path = EndToEnd(engine, inputs)
            path.run(path.put_on_stream)
        raise
    return path.time(lambda: graph.launch(path.stream), 0.0)  # throughput has just kept the GPU busy


class EndToEnd:
    """An engine with its inputs bound, and pinned host memory for each tensor that is on the GPU."""

    def __init__(self, engine: Any, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind and copy the inputs in; ``NotTimedError`` where an output's shape depends on the data."""
        self.engine, self.cuda = engine, engine.backend.cuda
        self.memory: Dict[str, Memory] = engine.bind(inputs)
        unknown = [name for name in engine.outputs if -1 in engine.shape(name)]
        if unknown:
            raise NotTimedError("the shape of %s depends on the data" % ", ".join(unknown))
        names = [*engine.inputs, *engine.outputs]
        self.on_host = [name for name in names if name not in self.memory]
        self.stream: Stream = self.cuda.stream()
        self.pinned = {name: Pinned(self.cuda, block.size) for name, block in self.memory.items()}
        copies = {name: (self.pinned[name], block) for name, block in self.memory.items()}
        ins, outs = ([copies[n] for n in part if n in copies] for part in (engine.inputs, engine.outputs))
        self.copies_in = [host.copy_to(block, self.stream) for host, block in ins]
        self.copies_out = [host.copy_from(block, self.stream) for host, block in outs]
        self.cuda.synchronize()
        for host, block in ins:
            host.copy_from(block, self.stream)()
        self.stream.synchronize()

    def put_on_stream(self) -> None:
        """Put the copies in, the run and the copies out on the stream; returns at once."""
        for copy in self.copies_in:
            copy()
        self.engine.enqueue(self.stream)
        for copy in self.copies_out:
            copy()

    def run(self, start: Callable[[], None]) -> float:
        """Return how long it takes from ``start`` until everything is on the host, in milliseconds."""
        started = time.perf_counter()
        start()
        self.stream.synchronize()
        return 1e3 * (time.perf_counter() - started)

    def time(self, start: Callable[[], None], warm_seconds: float) -> Dict[str, Any]:
        """Return the median and quantiles of runs, after one and whatever more so many seconds allow."""
        started = time.perf_counter()
        self.run(start)
        while time.perf_counter() - started < warm_seconds:
            self.run(start)
        return sum_up(time_runs(lambda: self.run(start), RUNS, SECONDS))


def time_throughput(
    engine: Any, inputs: Mapping[str, np.ndarray], profile: Mapping[str, Range]
) -> Dict[str, Any]:
    """Return milliseconds a run where runs follow each other without the host waiting, at the largest shapes.

    ``batch``: the largest leading dimension of the inputs on the GPU, 1 where none has one. Without copies.
    """
    given = make_largest(engine, inputs, profile)
    memory, cuda = engine.bind(given), engine.backend.cuda
    stream = cuda.stream()
    cuda.synchronize()
    seconds = 0.0
    for _ in range(2):  # the first run also loads kernels
        started = time.perf_counter()
        engine.enqueue(stream)
        stream.synchronize()
        seconds = max(time.perf_counter() - started, 1e-6)
    windows = max(1 if seconds > SLOW_SECONDS else LEAST, min(WINDOWS, int(SECONDS / seconds)))
    runs = max(1, round(SECONDS / windows / seconds))
    marks = [stream.record()]
    for _ in range(windows):
        for _ in range(runs):
            engine.enqueue(stream)
        marks.append(stream.record())
    times = [later.milliseconds_since(mark) / runs for mark, later in zip(marks, marks[1:])]  # noqa: RUF007 - from 3.10
    sizes = [given[name].shape[0] for name in engine.inputs if name in memory and given[name].ndim]
    return {**sum_up(times), "runs": runs * windows, "batch": max([1, *sizes])}


def make_largest(
    engine: Any, inputs: Mapping[str, np.ndarray], profile: Mapping[str, Range]
) -> Dict[str, np.ndarray]:
    """Return a sample's inputs in the largest shapes of the profile: cropped, or repeated along each axis.

    An input whose values the profile bounds has the largest of them. ``NotTimedError``: it is too much.
    """
    made = {name: np.asarray(array) for name, array in inputs.items()}
    host = engine.backend.trt.TensorLocation.HOST  # it is values that decide shapes
    values = {n for n in profile if n in made and engine.engine.get_tensor_location(n) == host}
    shapes = {name: tuple(most[-1]) for name, most in profile.items() if name in made and name not in values}
    size = sum(int(np.prod(shape, dtype=np.float64)) * made[name].itemsize for name, shape in shapes.items())
    if size > MOST_BYTES:
        raise NotTimedError("inputs of the profile's largest shapes are %.1f GiB" % (size / (1 << 30)))
    for name in values:
        made[name] = np.array(profile[name][-1], made[name].dtype).reshape(made[name].shape)
    for name, shape in shapes.items():
        for axis, wanted in enumerate(shape):
            made[name] = _fit_axis(made[name], axis, int(wanted))
    return made


def _fit_axis(array: np.ndarray, axis: int, wanted: int) -> np.ndarray:
    size = array.shape[axis]
    if not size and wanted:
        return np.zeros((*array.shape[:axis], wanted, *array.shape[axis + 1 :]), array.dtype)
    fitted: np.ndarray = np.take(array, np.arange(wanted) % max(1, size), axis)
    return fitted


THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do does not spoil a capture; trtexec's mode."""


class Pinned:
    """Page-locked host memory, freed with the object."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        self.cuda, self.size, self.address = cuda, ctypes.c_size_t(size), ctypes.c_void_p()
        cuda.call("cuMemHostAlloc", ctypes.byref(self.address), self.size, 0)

    def __del__(self) -> None:
        if self.address:
            self.cuda.lib.cuMemFreeHost(self.address)

    def copy_to(self, memory: Memory, stream: Stream) -> Callable[[], None]:
        """Return what puts a copy to device memory on a stream; its arguments are made ready."""
        target = ctypes.c_uint64(memory.pointer)
        return partial(self.cuda.call, "cuMemcpyHtoDAsync_v2", target, self.address, self.size, stream.handle)

    def copy_from(self, memory: Memory, stream: Stream) -> Callable[[], None]:
        """Return what puts a copy from device memory on a stream."""
        source = ctypes.c_uint64(memory.pointer)
        return partial(self.cuda.call, "cuMemcpyDtoHAsync_v2", self.address, source, self.size, stream.handle)


class Graph:
    """What was put on a stream, captured and instantiated; destroyed with the object."""

    def __init__(self, cuda: Cuda, stream: Stream, put_on_stream: Callable[[], None]) -> None:
        """Capture; the capture is ended also where that fails, which is raised.

        Nothing is collected meanwhile: memory of the GPU that is freed spoils a capture.
        """
        self.cuda, self.graph, self.executable = cuda, ctypes.c_void_p(), ctypes.c_void_p()
        collects = gc.isenabled()
        gc.disable()
        try:
            cuda.call("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
            try:
                put_on_stream()
            except Exception:
                cuda.lib.cuStreamEndCapture(stream.handle, ctypes.byref(self.graph))
                raise
            cuda.call("cuStreamEndCapture", stream.handle, ctypes.byref(self.graph))
        finally:
            if collects:
                gc.enable()
        executable = ctypes.byref(self.executable)
        cuda.call("cuGraphInstantiateWithFlags", executable, self.graph, ctypes.c_uint64(0))

    def __del__(self) -> None:
        if self.executable:
            self.cuda.lib.cuGraphExecDestroy(self.executable)
        if self.graph:
            self.cuda.lib.cuGraphDestroy(self.graph)

    def launch(self, stream: Stream) -> None:
        """Put the graph on a stream; returns at once."""
        self.cuda.call("cuGraphLaunch", self.executable, stream.handle)
