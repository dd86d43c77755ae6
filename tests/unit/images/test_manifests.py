"""What registries hold is read or refused, and what an image says of itself is kept."""

from __future__ import annotations

from trtmatrix.images.manifests import (
    telling_facts,
)
from trtmatrix.launchers.references import named_versions


def test_what_an_image_says_of_tensorrt_cuda_torch_the_driver_and_itself_is_kept() -> None:
    kept = {
        "CUDA_DRIVER_VERSION": "560.35.05", "CUDA_VERSION": "12.6.3.004", "PYTORCH_VERSION": "2.6.0a0",
        "TRT_VERSION": "10.7.0.23+cuda12.6", "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat",
        "com.nvidia.build.ref": "x", "org.opencontainers.image.version": "1",
    }  # fmt: skip
    left_out = {"PATH": "/bin", "STRUCT": "x", "NVIDIA_API_KEY": "secret", "com.nvidia.token": "c"}
    assert list(telling_facts({**left_out, **kept}).items()) == list(kept.items())
    ngc = {**kept, "NVIDIA_TENSORRT_VERSION": "24.12", "PYTORCH_BUILD_VERSION": "2.6.0a0+df5"}
    assert named_versions(ngc) == {
        "TensorRT": "10.7.0.23", "CUDA": "12.6.3.004", "driver": "560.35.05", "torch": "2.6.0a0+df5",
    }  # fmt: skip
    assert named_versions({"TENSORRT_VERSION": "8.6.1"}) == {"TensorRT": "8.6.1"}
