"""Surfaces: kept whole in the package, found by version."""

import pytest
from bench.surfaces import format_store

from trtmatrix.api.section import STORE, find_surface, parse_store, read_store
from trtmatrix.api.types import Surface

SURFACES = read_store()


def get(version: str) -> Surface:
    found = find_surface(version)
    assert found is not None, version
    return found


def test_a_store_gives_back_what_was_put_in() -> None:
    """As the package has it, whatever the order."""
    text, surfaces = STORE.read_text(encoding="utf-8"), [*SURFACES.values()]
    assert format_store(reversed(surfaces)) == text
    assert list(parse_store(text).values()) == surfaces


def test_the_package_has_every_release_that_was_named_and_says_whence() -> None:
    wanted = ("8.5.3.1", "8.6.0", "8.6.1", "10.0.1", "10.7.0", "10.8.0", "10.16.1", "11.0.0", "11.4.0.106")
    assert all(find_surface(version) for version in wanted)
    assert len(SURFACES) >= 28
    for surface in map(get, SURFACES):
        origin, names = surface.origin, {*surface.classes, *surface.names}
        found = (origin.wheel[-4:], len(origin.sha256), origin.python, len(origin.extracted))
        assert found == (".whl", 64, "3.10", 10)
        assert not [name for name in names if name.startswith("_")]
        assert not {"attr", "value", "common_enter", "ctypes", "os"} & names, "of the package's own start"
    text = STORE.read_text(encoding="utf-8")
    assert not [word for word in ("0x", "tensorrt_bindings.tensorrt") if word in text]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("10.0.1.6", "10.0.1"), ("10.8.0", "10.8.0.43"), ("8.6.1", "8.6.1"), ("8.6.1.6", "8.6.1"),
        ("10.7.0.23", "10.7.0"), ("10.14.1", "10.14.1.48.post1"), ("10.13.3", "10.13.3.9"),
        ("10.0", None), ("11", None), ("9.3.0", None), ("10.8.0.40", None), ("tensorrt-rtx-1.4", None),
    ],
)  # fmt: skip
def test_a_column_finds_its_surface(asked: str, found: str | None) -> None:
    surface = find_surface(asked)
    assert (surface.version if surface else None) == found
