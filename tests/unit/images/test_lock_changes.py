"""What moved since a lock was written: every kind of finding, what it says, and what an update takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_version, read_version
from hypothesis import given
from hypothesis import strategies as st
from locks import IMAGE, SAID, digest_of, lock_of, make_build, make_image, make_platform

from trtmatrix.images.lock_report import (
    QUIET,
    UNRESOLVED,
    Answer,
    Finding,
    Kind,
    Unresolved,
    Wanted,
    find_changes,
    find_contradictions,
    find_unused,
    lock_json,
    lock_text,
    needs_decision,
    updated,
)
from trtmatrix.images.pins import BuildParts
from trtmatrix.launchers.lock import Lock, LockedImage, LockedLayer
from trtmatrix.launchers.references import Trouble

AMD, ARM = make_platform(), make_platform("linux/arm64", manifest=digest_of("1"), image_id=digest_of("2"))
OLD = make_image(AMD)
GONE = Unresolved(trouble=Trouble.MISSING, message=f"nvcr.io has no {IMAGE}\n  check the tag")
SILENT = Unresolved(trouble=Trouble.UNREACHABLE, message=f"nvcr.io cannot be reached for {IMAGE}\n  wait")
OTHER = replace(
    AMD, manifest=digest_of("e"), image_id=digest_of("f"),
    environment={**SAID, "TRT_VERSION": "10.8.0.40+cuda12.8", "NEW": "1"}, labels={},
    layers=(*AMD.layers, LockedLayer(digest=digest_of("9"), size=8_900_000_000)),
)  # fmt: skip
NEW_TAG = {"digest": digest_of("7")}

IMAGES: dict[str, tuple[LockedImage | None, Answer, list[Kind], list[str]]] = {
    "as locked": (OLD, replace(OLD, resolved="2027"), [Kind.LOCKED], [OLD.digest]),
    "as locked, by a mirror": (
        OLD, make_image(AMD, registry="my.mirror"), [Kind.LOCKED],
        [OLD.digest],
    ),
    "a mirror that has another": (
        make_image(AMD, ARM), make_image(OTHER, registry="my.mirror", **NEW_TAG),
        [Kind.MOVED], [f"{digest_of('7')}, by my.mirror"],
    ),
    "a mirror that has none": (
        OLD, replace(OLD, registry="m", platforms=(), **NEW_TAG), [Kind.MOVED], [],
    ),
    "an edited lock, and another index": (
        OLD, make_image(replace(AMD, labels={}), **NEW_TAG), [Kind.RETAGGED],
        [f"of manifest {AMD.manifest}"],
    ),
    "new": (None, OLD, [Kind.NEW], [OLD.digest, "linux/amd64: 0.1 MB in 1 layers; says TensorRT 10.7.0.23"]),
    "moved": (
        OLD, make_image(OTHER, **NEW_TAG), [Kind.MOVED],
        [
            f"{OLD.digest} → {digest_of('7')}", "linux/amd64: TensorRT 10.7.0.23 → 10.8.0.40",
        ],
    ),
    "moved, and says nothing of it": (
        OLD, make_image(replace(OTHER, environment=SAID), **NEW_TAG), [Kind.MOVED],
        ["the versions that it names are the same: what else is in it changed"],
    ),
    "packed anew": (
        OLD, make_image(replace(AMD, manifest=digest_of("e")), **NEW_TAG), [Kind.RETAGGED],
        [f"the same image, of manifest {digest_of('e')}"],
    ),
    "another index": (OLD, make_image(AMD, **NEW_TAG), [Kind.RETAGGED], [digest_of("7")]),
    "a platform more": (OLD, make_image(AMD, ARM, **NEW_TAG), [Kind.RETAGGED], []),
    "a platform less": (make_image(AMD, ARM), make_image(AMD, **NEW_TAG), [Kind.MOVED], []),
    "one for another": (
        OLD, make_image(ARM, **NEW_TAG), [Kind.MOVED], [],
    ),
    "an edited lock": (
        OLD, make_image(replace(AMD, image_id=digest_of("e"))),
        [Kind.MOVED], ["the versions that it names are the same"],
    ),
    "an edited lock's platform": (
        OLD, make_image(ARM), [Kind.MOVED],
        ["linux/arm64 is added", "linux/amd64 is gone"],
    ),
    "gone": (OLD, GONE, [Kind.GONE], ["nvcr.io has no"]),
    "never there": (None, GONE, [Kind.ABSENT], ["nvcr.io has no"]),
    "not asked": (OLD, SILENT, [Kind.UNKNOWN], ["cannot be reached"]),
}  # fmt: skip

PARTS = BuildParts(build=make_build())
BUILDS: dict[str, tuple[Lock, BuildParts, list[Kind], list[str]]] = {
    "as locked": (lock_of(v10_0_0=make_build()), PARTS, [Kind.LOCKED], []),
    "new": (Lock(), PARTS, [Kind.BUILD_NEW], ["trtmatrix/tensorrt:10.0.0 on nvcr.io", "a==1.0"]),
    "another base": (
        lock_of(v10_0_0=make_build(base="a/b:1")), PARTS, [Kind.BUILD_CHANGED], [f"base a/b:1 → {IMAGE}"],
    ),
    "another name": (
        lock_of(v10_0_0=make_build(image="a/b:1")), PARTS, [Kind.BUILD_CHANGED], ["image a/b:1 → "],
    ),
    "another wheel": (
        lock_of(v10_0_0=make_build(wheels={"b==1": "0" * 64})), PARTS, [Kind.BUILD_CHANGED],
        ["wheel a==1.0 is new", "wheel b==1 is gone"],
    ),
    "another hash": (
        lock_of(v10_0_0=make_build(wheels={"a==1.0": "0" * 64})), PARTS, [Kind.BUILD_CHANGED],
        ["wheel a==1.0 has another content (000000000000 → bbbbbbbbbbbb)"],
    ),
    "another Dockerfile": (
        lock_of(v10_0_0=make_build(files={"docker/wheels/Dockerfile": "0" * 64})), PARTS,
        [Kind.BUILD_CHANGED], ["file docker/wheels/Dockerfile has another content"],
    ),
    "no hash": (
        lock_of(v10_0_0=make_build()), replace(PARTS, unhashed=("z==1",)), [Kind.UNHASHED],
        ["z==1", "--lock"],
    ),
    "no hash and new": (
        Lock(), replace(PARTS, unhashed=("z==1",)), [Kind.BUILD_NEW, Kind.UNHASHED], ["z==1"],
    ),
}  # fmt: skip


def wanted(**fields: object) -> Wanted:
    return replace(Wanted(images={}, builds={}, local={}), **fields)  # type: ignore[arg-type] # the test's own


def image_findings(old: LockedImage | None, answer: Answer) -> list[Finding]:
    lock = lock_of(old) if old else Lock()
    return list(find_changes(lock, wanted(images={IMAGE: ("10.7.0",)}), {IMAGE: answer}))


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_s_finding_says_what_changed(name: str) -> None:
    old, answer, kinds, words = IMAGES[name]
    found = image_findings(old, answer)
    assert [finding.kind for finding in found] == kinds
    assert all((f.subject, f.versions) == (IMAGE, ("10.7.0",)) for f in found)
    told = "\n".join(fact for finding in found for fact in finding.facts)
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_s_finding_says_what_changed(name: str) -> None:
    old, parts, kinds, words = BUILDS[name]
    found = list(find_changes(old, wanted(builds={"10.0.0": parts}), {}))
    assert [finding.kind for finding in found] == kinds
    told = "\n".join(fact for finding in found for fact in finding.facts)
    assert [word for word in words if word not in told] == []


def test_every_kind_has_its_words_and_is_found_by_the_tables() -> None:
    shown = {kind for _, _, kinds, _ in [*IMAGES.values(), *BUILDS.values()] for kind in kinds}
    assert shown == set(Kind) - {Kind.UNUSED, Kind.LOCAL, Kind.CONTRADICTED}


def test_what_nobody_needs_and_what_no_registry_has_needs_no_decision() -> None:
    old = lock_of(OLD, v10_0_0=make_build())
    unused = list(find_unused(old, wanted()))
    assert [finding.subject for finding in unused] == [IMAGE, "build 10.0.0"]
    local = list(find_changes(old, wanted(local={"trtmatrix/test:latest": ("a",)}), {}))
    assert {finding.kind for finding in (*unused, *local)} == {Kind.UNUSED, Kind.LOCAL} <= QUIET
    assert not needs_decision((*unused, *local))
    assert needs_decision(image_findings(OLD, GONE))
    assert not needs_decision(image_findings(OLD, SILENT))
    assert {image_findings(OLD, SILENT)[0].kind, image_findings(None, GONE)[0].kind} == UNRESOLVED


def test_an_update_takes_over_what_was_resolved_and_leaves_the_rest() -> None:
    second = make_image(image="nvcr.io/nvidia/pytorch:25.01-py3")
    old = lock_of(OLD, second, v9_2_0=make_build())
    moved = make_image(OTHER, **NEW_TAG)
    asked = wanted(images={IMAGE: ("a",), second.image: ("b",)}, builds={"10.0.0": PARTS})
    found = updated(old, asked, {IMAGE: moved, second.image: SILENT})
    assert found == lock_of(moved, second, v9_2_0=make_build(), v10_0_0=PARTS.build)
    later = replace(second, resolved="2027-01-01T00:00:00Z", registry="my.mirror")
    assert updated(old, asked, {second.image: later}).images[second.image] == second


def test_what_no_version_needs_goes_but_not_what_another_update_wrote_meanwhile() -> None:
    old, other = lock_of(OLD, v10_0_0=make_build()), make_image(image="nvcr.io/nvidia/pytorch:25.01-py3")
    unused = list(find_unused(old, wanted(images={IMAGE: ("a",)})))
    late = lock_of(OLD, other, v10_0_0=make_build(), v9_9_9=make_build())
    assert updated(late, wanted(), {}, unused) == lock_of(OLD, other, v9_9_9=make_build())


@given(st.sampled_from(sorted(IMAGES)))
def test_after_an_update_nothing_has_moved(name: str) -> None:
    old, answer, _, _ = IMAGES[name]
    lock = lock_of(old) if old else Lock()
    asked = wanted(images={IMAGE: ("a",)}, builds={"10.0.0": PARTS})
    after = updated(lock, asked, {IMAGE: answer})
    if isinstance(answer, Unresolved):
        assert after.images == lock.images
        return
    found = find_changes(after, asked, {IMAGE: answer})
    assert {finding.kind for finding in found} <= {Kind.LOCKED}


@pytest.mark.parametrize(
    ("library", "contradicted"),
    [("10.7.0.23", False), ("10.7.0", False), ("10.8.0.40", True), ("10.7.0.24", True)],
)
def test_an_image_that_has_another_tensorrt_is_told(library: str, contradicted: bool) -> None:
    version = read_version({
        "version": "10.7.0", "origin": {"image": IMAGE},
        "library": {"value": library, "known": "read", "source": "x"},
    })  # fmt: skip
    found = list(find_contradictions([version], lock_of(OLD), "linux/amd64"))
    assert [finding.kind for finding in found] == [Kind.CONTRADICTED] * contradicted
    assert needs_decision(found) is contradicted
    assert list(find_contradictions([version], lock_of(OLD), "linux/arm64")) == []
    assert list(find_contradictions([make_version("onnxruntime-1.31.1")], lock_of(OLD), "linux/amd64")) == []


def test_a_build_s_base_says_nothing_of_its_library() -> None:
    build = {"base": IMAGE, "wheels": ["tensorrt==10.0.0b6"]}
    version = read_version({
        "version": "10.0.0", "origin": {"image": "trtmatrix/tensorrt:10.0.0", "build": build},
        "library": {"value": "10.0.0.6", "known": "read", "source": "x"},
    })  # fmt: skip
    assert list(find_contradictions([version], lock_of(OLD), "linux/amd64")) == []


def all_findings() -> list[Finding]:
    found = [each for old, answer, _, _ in IMAGES.values() for each in image_findings(old, answer)]
    for old, parts, _, _ in BUILDS.values():
        found += find_changes(old, wanted(builds={"10.0.0": parts}), {})
    return [*found, *find_unused(lock_of(OLD), wanted())]


def test_the_text_says_what_each_kind_means_and_how_to_go_on() -> None:
    findings = all_findings()
    text = lock_text(findings, "matrix.lock", None)
    assert [f.kind for f in findings if f.kind is not Kind.LOCKED and f.kind.value not in text] == []
    assert "5 build changed, 2 unhashed, 1 unused" in text
    assert "nothing was changed; to take over what was found: nox -s lock -- --update" in text
    assert "review it by git diff" in lock_text(findings, "matrix.lock", written=True)
    assert "is as it was" in lock_text(findings, "matrix.lock", written=False)
    assert "none of these versions comes from an image" in lock_text([], "matrix.lock", None)


def test_the_json_has_every_finding_and_whether_it_is_to_be_decided() -> None:
    data = lock_json(all_findings(), "matrix.lock", None)
    kinds = {finding["kind"]: finding["decide"] for finding in data["findings"]}
    assert not any(kinds[name] for name in ("locked", "unused", "unknown"))
    assert all(kinds[name] for name in ("new", "moved", "gone", "retagged", "build-changed", "unhashed"))
