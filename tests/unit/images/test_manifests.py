"""What registries hold is read: platforms, layers, and what an image says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.images.manifests import (
    ATTESTATION,
    CONFIGS,
    INDEXES,
    MANIFESTS,
    ManifestError,
    digest_of,
    locked_platform,
    media_type,
    parse_body,
    parse_index,
    parse_manifest,
)
from trtmatrix.launchers.lock import NamedVersions, named_versions, telling_facts

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def entry(digest: str = A, system: str = "linux", machine: str = "amd64", **more: object) -> dict[str, Any]:
    variant = {"variant": more.pop("variant")} if "variant" in more else {}
    platform = {"os": system, "architecture": machine, **variant}
    return {"mediaType": MANIFESTS[0], "digest": digest, "size": 7, "platform": platform, **more}


def test_the_images_of_an_index_stand_in_the_order_of_their_platforms() -> None:
    entries = [
        entry(B, machine="arm64", variant="v8"), entry(A), entry(C, machine="arm", variant="v7"),
        entry(C), entry(C, "unknown", "unknown"), entry(C, "windows", annotations={ATTESTATION: "x"}),
        entry(C, "plan9", mediaType="application/vnd.other"), {"digest": C, "size": 1},
    ]  # fmt: skip
    found = parse_index({"manifests": entries})
    assert [(each.platform, each.digest) for each in found] == [
        ("linux/amd64", A), ("linux/arm/v7", C), ("linux/arm64", B),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "entries",
    [[], [1], None, [entry("sha256:12")], [entry(size=-1)], [entry(size=True)], [entry(platform=[])],
     [entry(annotations=[1])], [entry(C, "unknown")], [entry(5)]],  # type: ignore[arg-type] # as it may come
)  # fmt: skip
def test_a_damaged_index_is_refused(entries: object) -> None:
    with pytest.raises(ManifestError):
        parse_index({"manifests": entries})


def manifest(**more: object) -> dict[str, Any]:
    config = {"mediaType": CONFIGS[0], "digest": A, "size": 1}
    return {"config": config, "layers": [{"digest": B, "size": 2}, {"digest": C, "size": 3}], **more}


def test_a_manifest_and_its_configuration_make_what_is_locked() -> None:
    found = locked_platform(
        B, *parse_manifest(manifest()),
        {"os": "linux", "architecture": "amd64", "config": {"Env": ["A=1", "CUDA_VERSION=12.6"],
        "Labels": None}},
    )  # fmt: skip
    assert (found.platform, found.manifest, found.image_id, found.size) == ("linux/amd64", B, A, 5)
    assert [layer.digest for layer in found.layers] == [B, C]
    assert (found.environment, found.labels) == ({"CUDA_VERSION": "12.6"}, {})


def test_the_index_says_which_platform_it_is_where_both_do() -> None:
    config = {"os": "linux", "architecture": "amd64"}
    assert locked_platform(B, *parse_manifest(manifest()), config, "linux/arm64").platform == "linux/arm64"
    with pytest.raises(ManifestError, match="names no platform"):
        locked_platform(B, *parse_manifest(manifest()), {})


@pytest.mark.parametrize(
    "body",
    [{}, manifest(layers=None), manifest(layers=[{"digest": A, "size": "1"}]), manifest(config=None),
     manifest(config={"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": A, "size": 1})],
)  # fmt: skip
def test_what_is_no_image_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(body)


@pytest.mark.parametrize("inner", [{"Env": 1}, {"Labels": []}, []])
def test_a_damaged_configuration_is_refused_or_empty(inner: object) -> None:
    config = {"os": "linux", "architecture": "amd64", "config": inner}
    try:
        found = locked_platform(B, *parse_manifest(manifest()), config)
    except ManifestError:
        return
    assert not found.labels


@pytest.mark.parametrize(
    ("body", "header", "expected"),
    [
        ({"mediaType": MANIFESTS[1]}, "text/html", MANIFESTS[1]),
        ({}, f"{INDEXES[0]}; charset=utf-8", INDEXES[0]),
        ({"schemaVersion": 2, "manifests": []}, "text/plain", INDEXES[0]),
        ({"schemaVersion": 2, "layers": []}, "", MANIFESTS[0]),
        ({"schemaVersion": 1, "fsLayers": []}, "application/json", "application/json"),
    ],
)  # fmt: skip
def test_what_a_body_is_is_told_by_itself_then_its_header_then_its_keys(
    body: dict[str, Any], header: str, expected: str
) -> None:
    assert media_type(body, header) == expected


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["manifests", "layers", "config", "digest", "size",
                                                       "platform", "os", "annotations"]), inner,
                                                       max_size=4)))  # fmt: skip
def test_any_json_is_read_or_refused(body: Any) -> None:
    if not isinstance(body, dict):
        return
    for parse in (parse_index, parse_manifest):
        try:
            parse(body)
        except ManifestError:
            continue


def test_a_digest_is_made_of_the_kind_that_is_asked_for() -> None:
    assert digest_of(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_of(b"", like="sha512:x").startswith("sha512:cf83e1357eefb8bd")
    assert parse_body(b'{"a": 1}') == {"a": 1}


def test_what_names_tensorrt_cuda_torch_or_the_driver_is_kept() -> None:
    kept = {
        "TRT_VERSION": "10.7.0.23+cuda12.6", "TENSORRT_VERSION": "", "CUDA_VERSION": "12.6.3.004",
        "CUDA_DRIVER_VERSION": "560.35.05", "NVIDIA_REQUIRE_CUDA": "cuda>=9.0 driver>=470",
        "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat", "PYTORCH_VERSION": "2.6.0a0+df5bbc09d1",
        "CUDNN_VERSION": "9.6.0.74", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
        "NV_CUDA_LIB_VERSION": "12.6.3-1",
    }  # fmt: skip
    left_out = {"PATH": "/bin", "STRUCT": "x", "NVIDIA_API_KEY": "secret", "LD_LIBRARY_PATH": "/usr/lib"}
    assert telling_facts({**left_out, **kept}) == kept
    assert list(telling_facts({"TRT_B": "1", "TRT_A": "2"})) == ["TRT_A", "TRT_B"]


def test_labels_that_name_them_and_the_images_own_version_are_kept() -> None:
    kept = {
        "com.nvidia.build.ref": "x",
        "com.nvidia.cudnn.version": "9",
        "org.opencontainers.image.version": "1",
    }
    left_out = {"maintainer": "a", "org.opencontainers.image.authors": "b", "com.nvidia.token": "c"}
    assert telling_facts({**left_out, **kept}) == kept


def test_the_versions_that_an_image_names_are_read() -> None:
    ngc = {"TRT_VERSION": "10.7.0.23+cuda12.6", "CUDA_VERSION": "12.6.3.004",
    "CUDA_DRIVER_VERSION": "560.35.05",
           "NVIDIA_TENSORRT_VERSION": "24.12", "PYTORCH_VERSION": "2.6.0a0",
           "PYTORCH_BUILD_VERSION": "2.6.0a0+df5"}  # fmt: skip
    assert named_versions(ngc) == NamedVersions(
        tensorrt="10.7.0.23", cuda="12.6.3.004", driver="560.35.05", torch="2.6.0a0+df5"
    )
    assert named_versions({"TENSORRT_VERSION": "8.6.1"}) == NamedVersions(tensorrt="8.6.1")
    assert named_versions({}) == NamedVersions()
