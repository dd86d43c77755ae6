"""One interface for a repro over TensorRT, TensorRT-RTX and ONNX Runtime."""

from __future__ import annotations

from trtprobe.backends.base import Backend


def open_backend(product: str) -> Backend:
    """Import the product and return its backend; ``ComponentMissing`` where it is not there."""
    if product == "onnxruntime":
        from trtprobe.backends.onnxruntime_cpu import OnnxRuntimeBackend

        return OnnxRuntimeBackend()
    from trtprobe.backends.tensorrt_gpu import RtxBackend, TensorRtBackend

    return RtxBackend() if product == "tensorrt-rtx" else TensorRtBackend()
