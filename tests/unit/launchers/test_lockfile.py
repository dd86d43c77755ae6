"""matrix.lock: what is written reads back the same, and every mistake is told with line and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locks import digest_of, lock_of, make_build, make_image

from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import Project
from trtmatrix.images.lock import format_matrix_lock
from trtmatrix.images.pins import read_builds
from trtmatrix.plan.context import read_matrix
from trtmatrix.plan.lockfile import (
    Lock,
    LockedBuild,
    LockedImage,
    LockedLayer,
    LockedPlatform,
    parse_matrix_lock,
)

ROOT = Path(__file__).resolve().parents[3]
LOCK = lock_of(make_image(), v10_0_0=make_build())
TEXT = format_matrix_lock(LOCK)

texts = st.text(st.characters(exclude_categories=["Cs"]))
digests = st.sampled_from("0123456789abcdef").map(lambda letter: letter * 64)
named = st.dictionaries(texts, texts, max_size=3)
layers = st.builds(LockedLayer, digest=digests.map("sha256:{}".format), size=st.integers(0, 1 << 50))
paths = st.from_regex(r"[a-zA-Z]{1,9}(/[a-z ü]{1,9}){0,2}", fullmatch=True)
names = st.from_regex(r"[a-z0-9]{1,5}([.-][a-z0-9]{1,3}){0,3}", fullmatch=True)
images = st.from_regex(r"[a-z0-9]{1,9}(/[a-z]{1,9})?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,40}", fullmatch=True)


platforms = st.builds(
    LockedPlatform, manifest=digests.map("sha256:{}".format), image_id=digests.map("sha256:{}".format),
    layers=st.lists(layers, max_size=3).map(tuple), labels=named, environment=named,
)  # fmt: skip
locked_images = st.builds(
    LockedImage, digest=digests.map("sha256:{}".format), registry=texts.filter(bool),
    resolved=st.just("2026-11-22T03:36:28Z"),
    platforms=st.dictionaries(st.sampled_from(["linux/amd64", "linux/arm/v7"]), platforms, min_size=1),
)  # fmt: skip
builds = st.builds(
    LockedBuild, image=images, base=images, wheels=st.dictionaries(texts.filter(bool), digests, max_size=3),
    files=st.dictionaries(paths, digests, max_size=3),
)  # fmt: skip
locks = st.builds(
    Lock, schema=st.just(1), images=st.dictionaries(images, locked_images, max_size=3),
    builds=st.dictionaries(names, builds, max_size=3),
)  # fmt: skip


@settings(max_examples=40)
@given(locks)
def test_what_is_written_reads_back_the_same(lock: Lock) -> None:
    text = format_matrix_lock(lock)
    text.encode()
    assert parse_matrix_lock(text) == lock
    assert format_matrix_lock(parse_matrix_lock(text)) == text


MISTAKES = {
    "unknown key in a platform": ("image_id:", "imgae_id:", "linux/amd64.imgae_id", "'image_id'"),
    "no digest": (f"manifest: {digest_of('b')}", "manifest: sha256:b", "manifest", "[0-9a-f]{64}"),
    "a path that leaves": ("docker/wheels/Dockerfile", "../Dockerfile", "files.../Dockerfile", "below"),
    "a later schema": ("schema: 1", "schema: 2", "schema", "reads schema: 1"),
    "a merge that git gave up": ("schema: 1", "<<<<<<< HEAD\nschema: 1", "not valid YAML", ""),
    "a key twice": ("builds:", "images: {}\nbuilds:", "images", "stands twice"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_line_and_remedy(name: str) -> None:
    old, new, where, words = MISTAKES[name]
    assert TEXT.count(old) == 1, old
    with pytest.raises(ConfigError) as caught:
        parse_matrix_lock(TEXT.replace(old, new), "m.lock")
    told = [line for line in caught.value.problems if where in line and words in line]
    assert told, caught.value.problems
    assert told[0].startswith("m.lock:")
    assert told[0].split(":")[1].isdecimal()
    assert "nox -s lock -- --update" in caught.value.problems[-1]


def test_the_project_s_own_lock_has_what_its_images_are_made_of() -> None:
    project = Project(matrix=ROOT / "matrix.yaml", repros=ROOT, results=ROOT, cache=ROOT)
    made = read_builds(read_matrix(project.matrix).versions, project)
    lock = parse_matrix_lock(project.lock.read_text(encoding="utf-8"))
    assert made
    assert {name: parts.build for name, parts in made.items()} == lock.builds, "nox -s lock -- --update"
