"""What the socket says is what Docker's SDK says, on the engine that is here."""

from __future__ import annotations

import os

import pytest

from trtmatrix.effects.engine import DOCKER_SOCKET, _ask, _ask_by_sdk, _references, find_engine


def test_the_socket_says_what_the_sdk_says() -> None:
    address = os.environ.get("DOCKER_HOST") or f"unix://{DOCKER_SOCKET}"
    if not address.startswith("unix:///"):
        pytest.skip("the engine is not on a socket of this host: the SDK is used anyway")
    info, images = _ask(address.removeprefix("unix://"))
    same_info, same_images = _ask_by_sdk()
    for key in ("ID", "ServerVersion", "DockerRootDir", "Runtimes", "DiscoveredDevices", "CDISpecDirs"):
        assert info.get(key) == same_info.get(key)
    ours, theirs = dict(_references(images)), dict(_references(same_images))
    assert {name: ours[name] for name in ours.keys() & theirs.keys()} == {
        name: theirs[name] for name in ours.keys() & theirs.keys()
    }, "others may make images meanwhile"
    assert "trtmatrix/test:latest" in ours.keys() & theirs.keys()
    assert find_engine(gpu_here=True).version == same_info["ServerVersion"]
