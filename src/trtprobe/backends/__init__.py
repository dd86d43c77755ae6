"""One interface for a repro over TensorRT, TensorRT-RTX and ONNX Runtime."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from trtprobe.backends.base import Backend, Engine

STEADY = {"trt", "ort", "logger", "messages", "major"}
"""What a backend never binds anew."""


def open_backend(product: str) -> Backend:
    """Import the product and return its backend; ``ComponentMissing`` where it is not there."""
    if product == "onnxruntime":
        from trtprobe.backends.onnxruntime_cpu import OnnxRuntimeBackend

        return OnnxRuntimeBackend()
    from trtprobe.backends.tensorrt_gpu import RtxBackend, TensorRtBackend

    return RtxBackend() if product == "tensorrt-rtx" else TensorRtBackend()


class Opened:
    """A product that is opened on first use and stays open in this process."""

    def __init__(self, product: str, on_open: Callable[[], object] = lambda: None) -> None:
        """Name the product; ``on_open`` is called once it is open."""
        self.product, self.on_open = product, on_open
        self._backend: Optional[Backend] = None
        self._steady: Dict[str, Any] = {}

    def backend(self) -> Backend:
        """Return the one backend; ``ComponentMissing`` where the product is not there."""
        if self._backend is None:
            self._backend = open_backend(self.product)
            self._steady = {name: value for name, value in vars(self._backend).items() if name in STEADY}
            self.on_open()
        return self._backend

    @property
    def builder_seconds(self) -> Optional[float]:
        """The cost of this process's first Builder, None where it has made none."""
        return None if self._backend is None else self._backend.builder_seconds

    def rebound(self) -> List[str]:
        """Return what of the backend is no longer what it was when it was opened, by name."""
        now = {} if self._backend is None else vars(self._backend)
        changed = [name for name, value in self._steady.items() if now.get(name) is not value]
        return changed + [name for name in now if hasattr(type(self._backend), name)]

    def trouble(self) -> str:
        """Return the error that the GPU's context reports from now on; nothing where it reports none."""
        return "" if self._backend is None else self._backend.trouble()


__all__ = ["Backend", "Engine", "Opened", "open_backend"]
