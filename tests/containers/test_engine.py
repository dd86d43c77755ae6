"""What the socket says is what Docker's SDK says, on the engine that is here."""

from __future__ import annotations

import pytest

from tests.containers.engines import LASTING
from trtmatrix.launchers.docker_engine import (
    ask_by_sdk,
    ask_socket,
    find_address,
    find_engine,
    image_references,
)


def test_the_socket_says_what_the_sdk_says() -> None:
    address = find_address()
    if not address.startswith("unix:///"):
        pytest.skip("the engine is not on a socket of this host: the SDK is used anyway")
    info, images = ask_socket(address)
    same_info, same_images = ask_by_sdk()
    for key in LASTING:
        assert info.get(key) == same_info.get(key)
    ours, theirs = image_references(images), image_references(same_images)
    assert {name: ours[name] for name in ours.keys() & theirs.keys()} == {
        name: theirs[name] for name in ours.keys() & theirs.keys()
    }, "others may make images meanwhile"
    assert "trtmatrix/test:latest" in ours.keys() & theirs.keys()
    assert find_engine(gpu_here=True).version == same_info["ServerVersion"]
