"""Images by the names that people give them."""

from __future__ import annotations

import pytest

from trtmatrix.suite.plan import find_image

IMAGES = {
    "nvcr.io/nvidia/tensorrt:24.01-py3": "sha256:" + "a" * 64, "python:latest": "sha256:" + "b" * 64,
    "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64: "sha256:" + "a" * 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("nvcr.io/nvidia/tensorrt:24.01-py3", "nvcr.io/nvidia/tensorrt:24.01-py3"),
        ("nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64, "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64),
        ("python", "python:latest"),
        ("docker.io/library/python", "python:latest"),
        ("sha256:" + "b" * 12, "python:latest"),
        ("python:3", None),
        ("bbbb", None),
    ],
)
def test_an_image_is_found_by_name_digest_and_id(wanted: str, name: str | None) -> None:
    found = find_image(IMAGES, wanted)
    assert (found.name if found else None) == name


def test_an_image_of_a_registry_is_known_by_its_digest() -> None:
    found = find_image(IMAGES, "nvcr.io/nvidia/tensorrt:24.01-py3")
    assert found is not None
    assert found.registry == "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64
