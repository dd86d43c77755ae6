"""What timing needs of the CUDA driver beyond runs: pinned host memory, copies on a stream, CUDA graphs.

Source of names and signatures: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__GRAPH.html.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any, Callable

from trtprobe.cuda import Cuda, Memory, Stream

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

    def copy_to(self, memory: Memory, stream: Stream) -> Put:
        """Return what puts a copy to device memory on a stream."""
        target = ctypes.c_uint64(memory.pointer)
        return Put(self.cuda, "cuMemcpyHtoDAsync_v2", target, self.address, self.size, stream.handle)

    def copy_from(self, memory: Memory, stream: Stream) -> Put:
        """Return what puts a copy from device memory on a stream."""
        source = ctypes.c_uint64(memory.pointer)
        return Put(self.cuda, "cuMemcpyDtoHAsync_v2", self.address, source, self.size, stream.handle)


class Put:
    """A driver's function with its arguments, made ready: what Python does is timed too, and is little."""

    __slots__ = ("args", "cuda", "function", "name")

    def __init__(self, cuda: Cuda, name: str, *args: Any) -> None:
        self.cuda, self.name, self.args, self.function = cuda, name, args, getattr(cuda.lib, name)

    def __call__(self) -> None:
        """Call it; one that fails is called again, and raises as :meth:`Cuda.call` does."""
        if self.function(*self.args):
            self.cuda.call(self.name, *self.args)


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
