"""Builds small, valid locks for tests: name what matters, the rest has a default."""

from typing import Any

from trtmatrix.plan.lockfile import Lock, LockedImage, LockedLayer, LockedPlatform

IMAGE = "nvcr.io/nvidia/pytorch:24.12-py3"
SAID = {"TensorRT": "10.7.0.23", "CUDA": "12.6.3.004"}


def digest_of(letter: str) -> str:
    """A digest that is easily told apart."""
    return f"sha256:{letter * 64}"


def make_platform(**fields: Any) -> LockedPlatform:
    """An image for a platform, of one layer."""
    defaults: dict[str, Any] = {
        "manifest": digest_of("b"), "image_id": digest_of("c"), "says": SAID,
        "layers": (LockedLayer(digest=digest_of("d"), size=3),),
    }  # fmt: skip
    return LockedPlatform(**{**defaults, **fields})


def make_image(*here: LockedPlatform, **fields: Any) -> LockedImage:
    """A locked image, for linux/amd64; ``platforms``: others."""
    defaults: dict[str, Any] = {
        "digest": digest_of("a"), "registry": "nvcr.io", "resolved": "2026-11-22T03:36:28Z",
        "platforms": {"linux/amd64": here[0] if here else make_platform()},
    }  # fmt: skip
    return LockedImage(**{**defaults, **fields})


def lock_of(*images: LockedImage) -> Lock:
    """A lock with this image, if any."""
    return Lock(images=dict.fromkeys([IMAGE], *images) if images else {})
