"""What moved since a lock was written, by every kind of finding; what an image says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from locks import IMAGE, SAID, digest_of, lock_of, make_build, make_image, make_platform

from trtmatrix.images.lock_report import Answer, Change, Drift, Wanted, find_changes, lock_json, lock_text
from trtmatrix.images.manifests import telling_facts
from trtmatrix.images.pins import BuildParts
from trtmatrix.launchers.references import RegistryError, Trouble, named_versions
from trtmatrix.plan.lockfile import Lock, LockedImage, LockedLayer

AMD, ARM = make_platform(), make_platform(manifest=digest_of("1"), image_id=digest_of("2"))
BOTH = {"linux/amd64": AMD, "linux/arm64": ARM}
OLD = make_image(AMD)
GONE = RegistryError(f"nvcr.io has no {IMAGE}\n  check the tag", trouble=Trouble.MISSING, host="nvcr.io")
SILENT = RegistryError("nvcr.io cannot be reached\n  wait", trouble=Trouble.UNREACHABLE, host="nvcr.io")
OTHER = replace(
    AMD, manifest=digest_of("e"), image_id=digest_of("f"),
    environment={**SAID, "TRT_VERSION": "10.8.0.40+cuda12.8", "NEW": "1"}, labels={},
    layers=(*AMD.layers, LockedLayer(digest=digest_of("9"), size=8_900_000_000)),
)  # fmt: skip
NEW_TAG = {"digest": digest_of("7")}

PARTS = BuildParts(build=make_build())
TAG, BUILT = {IMAGE: ("10.7.0",)}, "10.0.0"


def of_image(old: LockedImage | None, answer: Answer) -> list[Change]:
    return list(find_changes(lock_of(old) if old else Lock(), Wanted(images=TAG, builds={}), {IMAGE: answer}))


def of_build(old: Lock, parts: BuildParts = PARTS) -> list[Change]:
    return list(find_changes(old, Wanted(images={}, builds={BUILT: parts}), {}))


MIRRORED = replace(OLD, resolved="2027", registry="m")
ANEW = make_image(replace(AMD, manifest=digest_of("e")), **NEW_TAG)
FINDINGS: dict[str, tuple[list[Change], list[Drift], str]] = {
    "as locked, by a mirror": (of_image(OLD, MIRRORED), [Drift.LOCKED], OLD.digest),
    "new": (of_image(None, OLD), [Drift.NEW], "linux/amd64: 0.1 MB in 1 layers; says TensorRT 10.7.0.23"),
    "moved": (of_image(OLD, make_image(OTHER, **NEW_TAG)), [Drift.MOVED], "TensorRT 10.7.0.23 → 10.8.0.40"),
    "packed anew": (of_image(OLD, ANEW), [Drift.RETAGGED], "→"),
    "a platform less": (of_image(make_image(platforms=BOTH), OLD), [Drift.MOVED], "linux/arm64 is gone"),
    "gone": (of_image(OLD, GONE), [Drift.MISSING], "nvcr.io has no"),
    "not asked": (of_image(OLD, SILENT), [Drift.UNKNOWN], "cannot be reached"),
    "parts as locked": (of_build(lock_of(v10_0_0=make_build())), [Drift.LOCKED], ""),
    "another base": (
        of_build(lock_of(v10_0_0=make_build(base="a/b:1"))), [Drift.CHANGED],
        f"base a/b:1 is gone\nbase {IMAGE} is new",
    ),
    "another wheel": (
        of_build(lock_of(v10_0_0=make_build(wheels={"b==1": "0" * 64}))), [Drift.CHANGED],
        "wheel b==1 is gone\nwheel a==1.0 is new",
    ),
    "no hash": (of_build(Lock(), replace(PARTS, unhashed=("z==1",))), [Drift.NEW, Drift.UNHASHED], "z==1"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_says_what_changed(name: str) -> None:
    found, kinds, words = FINDINGS[name]
    assert [finding.kind for finding in found] == kinds
    assert words in "\n".join(fact for finding in found for fact in finding.facts)
    if found[0].subject == IMAGE:
        assert found[0].versions == TAG[IMAGE]


def test_the_text_and_the_json_say_what_each_kind_means_and_how_to_go_on() -> None:
    findings = [finding for found, _, _ in FINDINGS.values() for finding in found]
    text = lock_text(findings, "matrix.lock", None)
    assert [f.kind for f in findings if f.kind is not Drift.LOCKED and f.kind.value not in text] == []
    assert "2 changed, 1 unhashed" in text
    assert "nothing was changed; to take over what was found: nox -s lock -- --update" in text
    data = lock_json(findings, "matrix.lock", None)
    kinds = {finding["kind"]: finding["decide"] for finding in data["findings"]}
    assert not any(kinds[name] for name in ("locked", "unknown", "missing"))
    assert all(kinds[name] for name in ("new", "moved", "retagged", "changed", "unhashed"))


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
