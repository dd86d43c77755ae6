"""What moved since a lock was written, by every kind of finding; what an image says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from locks import IMAGE, SAID, digest_of, lock_of, make_build, make_image, make_platform

from trtmatrix.images.lock_report import (
    Answer,
    Change,
    Drift,
    Wanted,
    find_changes,
    lock_json,
    lock_text,
)
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

IMAGES: dict[str, tuple[LockedImage | None, Answer, Drift, str]] = {
    "as locked, by a mirror": (OLD, replace(OLD, resolved="2027", registry="m"), Drift.LOCKED, OLD.digest),
    "new": (None, OLD, Drift.NEW, "linux/amd64: 0.1 MB in 1 layers; says TensorRT 10.7.0.23"),
    "moved": (OLD, make_image(OTHER, **NEW_TAG), Drift.MOVED, "TensorRT 10.7.0.23 → 10.8.0.40"),
    "packed anew": (
        OLD, make_image(replace(AMD, manifest=digest_of("e")), **NEW_TAG), Drift.RETAGGED,
        "→",
    ),
    "a platform less": (make_image(platforms=BOTH), OLD, Drift.MOVED, "linux/arm64 is gone"),
    "gone": (OLD, GONE, Drift.MISSING, "nvcr.io has no"),
    "not asked": (OLD, SILENT, Drift.UNKNOWN, "cannot be reached"),
}  # fmt: skip

PARTS = BuildParts(build=make_build())
UNHASHED = replace(PARTS, unhashed=("z==1",))
BUILDS: dict[str, tuple[Lock, BuildParts, list[Drift], str]] = {
    "as locked": (lock_of(v10_0_0=make_build()), PARTS, [Drift.LOCKED], ""),
    "another base": (
        lock_of(v10_0_0=make_build(base="a/b:1")), PARTS, [Drift.CHANGED],
        f"base a/b:1 is gone\nbase {IMAGE} is new",
    ),
    "another wheel": (
        lock_of(v10_0_0=make_build(wheels={"b==1": "0" * 64})), PARTS, [Drift.CHANGED],
        "wheel b==1 is gone\nwheel a==1.0 is new",
    ),
    "no hash and new": (Lock(), UNHASHED, [Drift.NEW, Drift.UNHASHED], "z==1"),
}  # fmt: skip


def image_findings(old: LockedImage | None, answer: Answer) -> list[Change]:
    asked = Wanted(images={IMAGE: ("10.7.0",)}, builds={})
    return list(find_changes(lock_of(old) if old else Lock(), asked, {IMAGE: answer}))


def build_findings(old: Lock, parts: BuildParts) -> list[Change]:
    return list(find_changes(old, Wanted(images={}, builds={"10.0.0": parts}), {}))


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_s_finding_says_what_changed(name: str) -> None:
    old, answer, kind, words = IMAGES[name]
    (found,) = image_findings(old, answer)
    assert (found.kind, found.subject, found.versions) == (kind, IMAGE, ("10.7.0",))
    assert words in "\n".join(found.facts)


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_s_finding_says_what_changed(name: str) -> None:
    old, parts, kinds, words = BUILDS[name]
    found = build_findings(old, parts)
    assert [finding.kind for finding in found] == kinds
    assert words in "\n".join(fact for finding in found for fact in finding.facts)


def test_the_text_and_the_json_say_what_each_kind_means_and_how_to_go_on() -> None:
    findings = [each for old, answer, _, _ in IMAGES.values() for each in image_findings(old, answer)]
    findings += [each for old, parts, _, _ in BUILDS.values() for each in build_findings(old, parts)]
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
