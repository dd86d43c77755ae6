"""What registries hold is read or refused, and what an image says of itself is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trtmatrix.images.manifests import (
    ATTESTATION,
    CONFIGS,
    MANIFESTS,
    Index,
    Manifest,
    ManifestError,
    locked_platform,
    parse_manifest,
    telling_facts,
)
from trtmatrix.launchers.references import named_versions

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def entry(digest: str = A, system: str = "linux", machine: str = "amd64", **more: object) -> dict[str, Any]:
    variant = {"variant": more.pop("variant")} if "variant" in more else {}
    platform = {"os": system, "architecture": machine, **variant}
    return {"mediaType": MANIFESTS[0], "digest": digest, "size": 7, "platform": platform, **more}


def index(entries: object) -> bytes:
    return json.dumps({"manifests": entries}).encode()


def test_an_index_has_images_by_platform() -> None:
    entries = [
        entry(B, machine="arm64", variant="v8"), entry(A), entry(C, machine="arm", variant="v7"),
        entry(C), entry(C, "unknown", "unknown"), entry(C, "windows", annotations={ATTESTATION: "x"}),
        entry(C, "plan9", mediaType="application/vnd.other"), {"digest": C, "size": 1},
    ]  # fmt: skip
    found = parse_manifest(index(entries))
    assert isinstance(found, Index)
    assert found.images == {"linux/amd64": A, "linux/arm/v7": C, "linux/arm64": B}


@pytest.mark.parametrize("entries", [[], [1], [entry("sha256:12")], [entry(size=-1)], [entry(size=True)]])
def test_a_damaged_index_is_refused(entries: object) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(index(entries))


def manifest(**more: object) -> bytes:
    config = {"mediaType": CONFIGS[0], "digest": A, "size": 1}
    layers = [{"digest": B, "size": 2}, {"digest": C, "size": 3}]
    return json.dumps({"config": config, "layers": layers, **more}).encode()


def test_a_manifest_and_its_configuration_make_what_is_locked() -> None:
    inner = {"Env": ["A=1", "CUDA_VERSION=12.6"], "Labels": None}
    config = json.dumps({"os": "linux", "architecture": "amd64", "config": inner}).encode()
    parsed = parse_manifest(manifest())
    assert isinstance(parsed, Manifest)
    platform, found = locked_platform(B, parsed, config)
    assert (platform, found.manifest, found.image_id, found.size) == ("linux/amd64", B, A, 5)
    assert [layer.digest for layer in found.layers] == [B, C]
    assert (found.environment, found.labels) == ({"CUDA_VERSION": "12.6"}, {})
    with pytest.raises(ManifestError):
        locked_platform(B, parsed, b'{"config": {"Env": 1}}')


def test_what_is_no_image_is_refused() -> None:
    chart = {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": A, "size": 1}
    for body, words in ((manifest(layers=None), "layers"), (manifest(config=chart), "no container image")):
        with pytest.raises(ManifestError, match=words):
            parse_manifest(body)


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
