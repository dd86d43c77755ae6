"""The CUDA driver through ctypes: memory, streams, events in the primary context; clocks through NVML.

Source of names and signatures: https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Optional

import numpy as np

from trtprobe import ends

OUT_OF_MEMORY = 2
COMPUTE_MAJOR, COMPUTE_MINOR = 75, 76
CLOCKS = {"sm_mhz": 1, "memory_mhz": 2}
"""NVML_CLOCK_SM, NVML_CLOCK_MEM (https://docs.nvidia.com/deploy/nvml-api/)."""


class Cuda:
    """The first visible device's primary context, current in this thread."""

    def __init__(self) -> None:
        """Load libcuda; ``ComponentMissing`` where there is no driver or no device."""
        try:
            self.lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise ends.ComponentMissing("no CUDA driver library: %s" % error) from error
        try:
            self.call("cuInit", 0)
        except RuntimeError as error:
            raise ends.ComponentMissing("the CUDA driver finds no device: %s" % error) from error
        self.device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:
        """Call a driver function; ``OutOfGpuMemory`` or ``RuntimeError`` where it fails."""
        code = getattr(self.lib, name)(*args)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self.lib.cuGetErrorString(code, ctypes.byref(text))
        message = "%s: CUDA error %d (%s)" % (name, code, (text.value or b"?").decode())
        raise ends.OutOfGpuMemory(message) if code == OUT_OF_MEMORY else RuntimeError(message)

    def facts(self) -> Dict[str, Any]:
        """Return the device's name, compute capability, and the driver's CUDA version."""
        name, version, value = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetName", name, 256, self.device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        compute = []
        for attribute in (COMPUTE_MAJOR, COMPUTE_MINOR):
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.device)
            compute.append(str(value.value))
        cuda = "%d.%d" % (version.value // 1000, version.value % 1000 // 10)
        return {"gpu": name.value.decode(), "compute": ".".join(compute), "driver_cuda": cuda}

    def clocks(self) -> Dict[str, Any]:
        """Return ``sm_mhz``, ``memory_mhz`` and ``celsius`` at this moment; empty where there is no NVML."""
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return {}
        bus, device, value = ctypes.create_string_buffer(32), ctypes.c_void_p(), ctypes.c_uint()
        self.call("cuDeviceGetPCIBusId", bus, 32, self.device)
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.value, ctypes.byref(device)):
            return {}
        clocks: Dict[str, Any] = {}
        for name, kind in CLOCKS.items():
            if nvml.nvmlDeviceGetClockInfo(device, kind, ctypes.byref(value)) == 0:
                clocks[name] = value.value
        if nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(value)) == 0:  # NVML_TEMPERATURE_GPU
            clocks["celsius"] = value.value
        return clocks

    def alloc(self, size: int) -> Memory:
        """Allocate ``size`` bytes of device memory (at least one)."""
        return Memory(self, max(1, size))

    def stream(self) -> Stream:
        """Create a stream that does not wait for the default stream."""
        return Stream(self)

    def synchronize(self) -> None:
        """Wait for everything on the device."""
        self.call("cuCtxSynchronize")


class Memory:
    """Device memory, freed with the object."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        self.cuda, self.size, self.pointer = cuda, size, 0
        pointer = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.pointer = pointer.value

    def __del__(self) -> None:
        if self.pointer:
            self.cuda.lib.cuMemFree_v2(ctypes.c_uint64(self.pointer))
            self.pointer = 0

    def put(self, array: np.ndarray) -> None:
        """Copy a C-contiguous host array in, and wait."""
        source, size = self._host(array)
        self.cuda.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.pointer), source, size)

    def get(self, array: np.ndarray) -> np.ndarray:
        """Copy into a C-contiguous host array, wait, and return it."""
        target, size = self._host(array)
        self.cuda.call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(self.pointer), size)
        return array

    def _host(self, array: np.ndarray) -> Any:
        """Return an array's address and size."""
        if not array.flags.c_contiguous or array.nbytes > self.size:
            raise ValueError("%d bytes of device memory, array of %d" % (self.size, array.nbytes))
        return array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)

    def copy_from(self, other: Memory, size: int, stream: Stream) -> None:
        """Copy ``size`` bytes from other device memory, in order on a stream."""
        source, target = ctypes.c_uint64(other.pointer), ctypes.c_uint64(self.pointer)
        self.cuda.call("cuMemcpyDtoDAsync_v2", target, source, ctypes.c_size_t(size), stream.handle)

    def fill(self, byte: int, stream: Optional[Stream] = None) -> None:
        """Set every byte, in order on a stream, or at once where none is given."""
        what = ctypes.c_uint64(self.pointer), ctypes.c_ubyte(byte), ctypes.c_size_t(self.size)
        if stream is None:
            self.cuda.call("cuMemsetD8_v2", *what)
            self.cuda.synchronize()
        else:
            self.cuda.call("cuMemsetD8Async", *what, stream.handle)


class Stream:
    """A non-blocking stream."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.handle = cuda, ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(self.handle), 1)

    def synchronize(self) -> None:
        """Wait on the host for what was put on the stream."""
        self.cuda.call("cuStreamSynchronize", self.handle)

    def record(self) -> Event:
        """Record an event after what was put on the stream so far."""
        event = Event(self.cuda)
        self.cuda.call("cuEventRecord", event.handle, self.handle)
        return event

    def wait(self, event: Event) -> None:
        """Make what follows on this stream wait for an event."""
        self.cuda.call("cuStreamWaitEvent", self.handle, event.handle, 0)


class Event:
    """A point in a stream, with its time."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.handle = cuda, ctypes.c_void_p()
        cuda.call("cuEventCreate", ctypes.byref(self.handle), 0)

    def milliseconds_since(self, earlier: Event) -> float:
        """Return the time between two recorded events, after both are reached, in milliseconds."""
        self.cuda.call("cuEventSynchronize", self.handle)
        elapsed = ctypes.c_float()
        self.cuda.call("cuEventElapsedTime", ctypes.byref(elapsed), earlier.handle, self.handle)
        return elapsed.value
