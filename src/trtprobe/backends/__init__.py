"""One interface for a repro over TensorRT, TensorRT-RTX and ONNX Runtime."""

from __future__ import annotations

from typing import Optional

from trtprobe.backends.base import Backend, Engine


def open_backend(product: str) -> Backend:
    """Import the product and return its backend; ``ComponentMissing`` where it is not there."""
    if product == "onnxruntime":
        from trtprobe.backends.onnxruntime_cpu import OnnxRuntimeBackend

        return OnnxRuntimeBackend()
    if product == "tensorrt-rtx":
        from trtprobe.backends.tensorrt_gpu import RtxBackend

        return RtxBackend()
    from trtprobe.backends.tensorrt_gpu import TensorRtBackend

    return TensorRtBackend()


class Opened:
    """A product that is opened on first use and stays open in this process."""

    def __init__(self, product: str) -> None:
        """Name the product."""
        self.product = product
        self._backend: Optional[Backend] = None

    def backend(self) -> Backend:
        """Return the one backend; ``ComponentMissing`` where the product is not there."""
        if self._backend is None:
            self._backend = open_backend(self.product)
        return self._backend

    @property
    def builder_seconds(self) -> Optional[float]:
        """The cost of this process's first Builder, None where it has made none."""
        return None if self._backend is None else self._backend.builder_seconds

    def trouble(self) -> str:
        """Return the error that the GPU's context reports from now on; nothing where it reports none."""
        return "" if self._backend is None else self._backend.trouble()


__all__ = ["Backend", "Engine", "Opened", "open_backend"]
