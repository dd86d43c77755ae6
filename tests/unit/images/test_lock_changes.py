"""What moved since a lock was written: every kind of finding, what it says, and what an update takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_version, read_version
from locks import IMAGE, SAID, digest_of, lock_of, make_build, make_image, make_platform

from trtmatrix.images.lock_report import (
    Answer,
    Change,
    Drift,
    Wanted,
    find_changes,
    find_contradictions,
    lock_json,
    lock_text,
    updated,
)
from trtmatrix.images.pins import BuildParts
from trtmatrix.launchers.references import RegistryError, Trouble
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


def wanted(**fields: object) -> Wanted:
    return replace(Wanted(images={}, builds={}), **fields)  # type: ignore[arg-type] # the test's own


def image_findings(old: LockedImage | None, answer: Answer) -> list[Change]:
    lock = lock_of(old) if old else Lock()
    return list(find_changes(lock, wanted(images={IMAGE: ("10.7.0",)}), {IMAGE: answer}))


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_s_finding_says_what_changed(name: str) -> None:
    old, answer, kind, words = IMAGES[name]
    (found,) = image_findings(old, answer)
    assert (found.kind, found.subject, found.versions) == (kind, IMAGE, ("10.7.0",))
    assert words in "\n".join(found.facts)


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_s_finding_says_what_changed(name: str) -> None:
    old, parts, kinds, words = BUILDS[name]
    found = list(find_changes(old, wanted(builds={"10.0.0": parts}), {}))
    assert [finding.kind for finding in found] == kinds
    assert words in "\n".join(fact for finding in found for fact in finding.facts)


SECOND = "nvcr.io/nvidia/pytorch:25.01-py3"


def test_an_update_takes_over_what_was_resolved_and_leaves_the_rest() -> None:
    old = Lock(images={IMAGE: OLD, SECOND: OLD}, builds={"9.2.0": make_build()})
    moved = make_image(OTHER, **NEW_TAG)
    asked = wanted(images={IMAGE: ("a",), SECOND: ("b",)}, builds={"10.0.0": PARTS})
    found = updated(old, asked, {IMAGE: moved, SECOND: SILENT})
    builds = {"9.2.0": make_build(), "10.0.0": PARTS.build}
    assert found == Lock(images={IMAGE: moved, SECOND: OLD}, builds=builds)
    assert updated(old, asked, {}, wanted(images={IMAGE: ("a",)})) == Lock(images={IMAGE: OLD})
    later = replace(OLD, resolved="2027-01-01T00:00:00Z", registry="my.mirror")
    assert updated(old, asked, {SECOND: later}).images[SECOND] == OLD


@pytest.mark.parametrize(
    ("library", "contradicted"), [("10.7.0.23", False), ("10.7.0", False), ("10.8.0.40", True)]
)
def test_an_image_that_has_another_tensorrt_is_told(library: str, contradicted: bool) -> None:
    version = read_version({
        "version": "10.7.0", "origin": {"image": IMAGE},
        "library": {"value": library, "known": "read", "source": "x"},
    })  # fmt: skip
    found = list(find_contradictions([version], lock_of(OLD), "linux/amd64"))
    assert [finding.kind for finding in found] == [Drift.CONTRADICTED] * contradicted
    assert any(finding.decide for finding in found) is contradicted
    assert list(find_contradictions([version], lock_of(OLD), "linux/arm64")) == []
    assert list(find_contradictions([make_version("onnxruntime-1.31.1")], lock_of(OLD), "linux/amd64")) == []


def test_the_text_and_the_json_say_what_each_kind_means_and_how_to_go_on() -> None:
    findings = [each for old, answer, _, _ in IMAGES.values() for each in image_findings(old, answer)]
    for old, parts, _, _ in BUILDS.values():
        findings += find_changes(old, wanted(builds={"10.0.0": parts}), {})
    text = lock_text(findings, "matrix.lock", None)
    assert [f.kind for f in findings if f.kind is not Drift.LOCKED and f.kind.value not in text] == []
    assert "2 changed, 1 unhashed" in text
    assert "nothing was changed; to take over what was found: nox -s lock -- --update" in text
    assert "review it by git diff" in lock_text(findings, "matrix.lock", written=True)
    assert "none of these versions comes from an image" in lock_text([], "matrix.lock", None)
    data = lock_json(findings, "matrix.lock", None)
    kinds = {finding["kind"]: finding["decide"] for finding in data["findings"]}
    assert not any(kinds[name] for name in ("locked", "unknown", "missing"))
    assert all(kinds[name] for name in ("new", "moved", "retagged", "changed", "unhashed"))
