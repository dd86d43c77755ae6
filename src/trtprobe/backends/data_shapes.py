"""Outputs whose shape depends on the data: TensorRT asks for their memory while it runs."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from trtprobe import ends
from trtprobe.cuda import Cuda, Memory


class Growing:
    """The memory of one such output, and its shape after a run.

    Source: https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/python-api/infer/Core/OutputAllocator.html.
    """

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
