"""Images that are not here: had once, by a pull or a build; what a build says is told where it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import docker
import docker.errors
import pytest
from builders import make_cell, make_version

from trtmatrix.common.errors import MachineryError
from trtmatrix.launchers.images import Images, builder_command
from trtmatrix.launchers.pulls import Puller
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CPU
from trtmatrix.suite.plan import Keep, Launch

VERSION = make_version("10.7.0")
IMAGE = "example.org/tensorrt:10.7.0"


class StandInEngine:
    """An engine with images in memory; a pull takes a moment."""

    def __init__(self, *images: str) -> None:
        self.here, self.pulls = set(images), 0
        self.images, self.api = self, self

    def __call__(self, **_: object) -> list[dict[str, str]]:
        return []

    def remove(self, image: str) -> None:
        self.here.discard(image)

    def get(self, image: str) -> Any:
        if image not in self.here:
            raise docker.errors.ImageNotFound(image)
        return type("Image", (), {"id": f"sha256:{image}"})()

    def pull(
        self, image: str, *, stream: bool, decode: bool, platform: str | None
    ) -> Iterator[dict[str, Any]]:
        assert stream
        assert decode
        assert platform is None
        self.pulls += 1
        yield {"id": "a1", "status": "Downloading", "progressDetail": {"current": 1, "total": 2}}
        time.sleep(0.1)
        self.here.add(image)


def as_client(engine: StandInEngine) -> docker.DockerClient:
    return cast("docker.DockerClient", engine)


def launch(*, pull: bool = False, build: bool = False) -> Launch:
    return Launch(version=VERSION, gpu=CPU, cells=(), pull=pull, build=build)


def make_images(told: list[str], builder: Path | None = None) -> Images:
    puller = Puller(pull_note=lambda *what: told.append(str(what)), note=told.append)
    return Images(puller=puller, builder=builder_command(builder, Path("m.yaml")))


def test_launches_that_want_one_image_share_one_pull() -> None:
    engine, told = StandInEngine(), list[str]()
    images, ids = make_images(told), list[str]()
    threads = [
        threading.Thread(target=lambda: ids.append(images.make_ready(launch(pull=True), as_client(engine))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == [f"sha256:{IMAGE}"] * 3
    assert engine.pulls == 1
    assert told == [str((IMAGE, "a1 Downloading", 1, 2))]


def test_an_image_of_ours_is_never_pulled() -> None:
    engine, told = StandInEngine(), list[str]()
    ours = replace(VERSION, origin=ImageOrigin(image="trtmatrix/test:latest"))
    with pytest.raises(MachineryError, match=r"(?s)no registry has it.*docker/README\.md"):
        make_images(told).make_ready(replace(launch(pull=True), version=ours), as_client(engine))
    assert (engine.pulls, told) == (0, [])


def test_images_that_go_are_two_at_a_time_and_each_goes_after_its_last_cell() -> None:
    engine, told = StandInEngine("here:1"), list[str]()
    first, second, third, old = (
        replace(
            launch(pull=True), version=replace(VERSION, origin=ImageOrigin(image=name)), cells=(make_cell(),)
        )
        for name in ("a:1", "b:1", "c:1", "here:1")
    )
    images = Images(puller=Puller(pull_note=lambda *_: None, note=told.append), keep=Keep.NONE)
    images.expect([first, second, third, old, first])
    for each in (first, second, old):
        images.make_ready(each, as_client(engine))
    waiting = threading.Thread(target=images.make_ready, args=(third, as_client(engine)))
    waiting.start()
    images.ended(first)
    images.ended(old)
    waiting.join(0.3)
    assert (waiting.is_alive(), engine.here) == (True, {"a:1", "b:1", "here:1"})
    images.ended(first)
    waiting.join(30)
    assert engine.here == {"b:1", "c:1", "here:1"}
    assert told == ["removed a:1: its last cell has run"]
