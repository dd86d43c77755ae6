"""What an image says of itself: the labels and variables that name TensorRT, CUDA and the driver. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_WORDS = frozenset(
    {
        "trt",
        "tensorrt",
        "trtoss",
        "nvinfer",
        "cuda",
        "cudnn",
        "cublas",
        "torch",
        "pytorch",
        "nvidia",
        "driver",
    }
)
_SECRETS = frozenset({"key", "token", "secret", "password", "passwd", "credential", "credentials"})
_OWN_LABELS = frozenset(
    f"org.opencontainers.image.{name}"
    for name in ("base.digest", "base.name", "created", "ref.name", "revision", "source", "title", "version")
)
_PARTS = re.compile(r"[^a-z0-9]+")
_BUILD_OF_CUDA = re.compile(r"\+cuda.*")


def telling_variables(environment: Iterable[str]) -> dict[str, str]:
    """Return of an image's environment (``NAME=value``) what names TensorRT, CUDA, torch or the driver.

    NGC's images have TRT_VERSION, CUDA_VERSION, CUDA_DRIVER_VERSION, NVIDIA_REQUIRE_CUDA and the like; what
    looks like a secret is left out.
    """
    pairs = (entry.partition("=") for entry in environment)
    return {name: value for name, _, value in sorted(pairs) if name and _is_telling(name)}


def telling_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return of an image's labels those that name TensorRT, CUDA, the driver, or the image's own version.

    Source: https://github.com/opencontainers/image-spec/blob/main/annotations.md.
    """
    return {name: labels[name] for name in sorted(labels) if name in _OWN_LABELS or _is_telling(name)}


def _is_telling(name: str) -> bool:
    parts = set(_PARTS.split(name.lower()))
    return bool(parts & _WORDS) and not parts & _SECRETS


@dataclass(frozen=True, kw_only=True)
class ImageSays:
    """The versions that an image names, as it writes them; empty where it names none."""

    tensorrt: str = ""
    cuda: str = ""
    driver: str = ""
    torch: str = ""


def image_says(environment: Mapping[str, str]) -> ImageSays:
    """Return what an image's variables say of its versions.

    ``TRT_VERSION`` may have CUDA's behind a plus sign (``10.7.0.23+cuda12.6``), which is left out;
    ``NVIDIA_TENSORRT_VERSION`` is the container's release, not TensorRT's, and not read.
    """
    tensorrt = environment.get("TRT_VERSION") or environment.get("TENSORRT_VERSION") or ""
    return ImageSays(
        tensorrt=_BUILD_OF_CUDA.sub("", tensorrt),
        cuda=environment.get("CUDA_VERSION", ""),
        driver=environment.get("CUDA_DRIVER_VERSION", ""),
        torch=environment.get("PYTORCH_BUILD_VERSION") or environment.get("PYTORCH_VERSION") or "",
    )
