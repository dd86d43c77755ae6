"""matrix.lock: what is written reads back the same, and every mistake is told with line and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from locks import digest_of, lock_of, make_build, make_image, make_platform

from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import Project
from trtmatrix.images.lock import format_matrix_lock
from trtmatrix.images.pins import read_builds
from trtmatrix.plan.context import read_matrix
from trtmatrix.plan.lockfile import (
    parse_matrix_lock,
)

ROOT = Path(__file__).resolve().parents[3]
LOCK = lock_of(make_image(), v10_0_0=make_build())
TEXT = format_matrix_lock(LOCK)

texts = st.text(st.characters(exclude_categories=["Cs"]))
named = st.dictionaries(texts, texts, max_size=3)


@settings(max_examples=40)
@given(named, named, texts.filter(bool))
def test_whatever_an_image_says_reads_back_the_same(
    labels: dict[str, str], environment: dict[str, str], wheel: str
) -> None:
    platforms = {
        name: make_platform(labels=labels, environment=environment) for name in ("linux/amd64", "a/b/c")
    }
    lock = lock_of(make_image(platforms=platforms), v10_0_0=make_build(wheels={wheel: "b" * 64}))
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
