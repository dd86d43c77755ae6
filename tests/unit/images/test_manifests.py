"""What an image says of itself, and doctor's words for one that is not here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_version

from trtmatrix.images.doctor import image_finding
from trtmatrix.images.manifests import telling_facts
from trtmatrix.launchers.references import named_versions
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Engine


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


HINT = "name the version with --trt (a run pulls or builds it)"
PULLED = ImageOrigin(image="a/tensorrt:9.2.0")
MADE = ImageOrigin(image="a/tensorrt:9.2.0", build=Build(base="a/base:1", wheels=("tensorrt-libs==9.2.0",)))


@pytest.mark.parametrize(
    ("origin", "here", "found", "remedy"),
    [
        (MADE, (), "image not built", HINT),
        (MADE, (MADE.image,), "sha256:000000000000", ""),
        (PULLED, (), "image not pulled (not locked)", HINT),
    ],
)
def test_an_image_that_is_not_here_comes_with_the_command_that_gets_it(
    origin: ImageOrigin, here: tuple[str, ...], found: str, remedy: str
) -> None:
    engine = Engine(available=True, images=dict.fromkeys(here, f"sha256:{'0' * 64}"))
    finding = image_finding(replace(make_version("9.2.0"), origin=origin), origin, engine)
    assert finding.found == f"{origin.image}: {found}"
    assert finding.remedy.startswith(remedy)
    assert bool(finding.remedy) is bool(remedy)
