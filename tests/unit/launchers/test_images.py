"""Images that are not here: had once, by a pull or a build; how often a pull that fails is tried."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import docker.errors
from builders import make_cell, make_version
from goldenfile import check_golden

from trtmatrix.launchers.containers import Images, explain_pull
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CPU
from trtmatrix.suite.plan import Engine, Keep, Launch

VERSION = make_version("10.7.0")
IMAGE = "example.org/tensorrt:10.7.0"
LAUNCH = Launch(version=VERSION, gpu=CPU, cells=(), pull=True)


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

    def pull(self, image: str, **how: object) -> Iterator[dict[str, Any]]:
        assert how == {"stream": True, "decode": True, "platform": "linux/amd64"}
        self.pulls += 1
        yield {"id": "a1", "status": "Downloading", "progressDetail": {"current": 1, "total": 2}}
        time.sleep(0.1)
        self.here.add(image)


def test_launches_that_want_one_image_share_one_pull() -> None:
    engine: Any = StandInEngine()
    told = list[str]()
    progress: Any = SimpleNamespace(pull=lambda *what: told.append(str(what)), note=told.append)
    images = Images(Engine(available=True), progress)
    with ThreadPoolExecutor(3) as threads:
        ids = list(threads.map(lambda _: images.make_ready(LAUNCH, engine), range(3)))
    assert (ids, engine.pulls) == ([f"sha256:{IMAGE}"] * 3, 1)
    assert told == [str((IMAGE, "a1 Downloading", 1, 2))]


def test_images_that_go_are_two_at_a_time_and_each_goes_after_its_last_cell() -> None:
    engine: Any = StandInEngine("here:1")
    told = list[str]()
    first, second, third, old = (
        replace(LAUNCH, version=replace(VERSION, origin=ImageOrigin(image=name)), cells=(make_cell(),))
        for name in ("a:1", "b:1", "c:1", "here:1")
    )
    progress: Any = SimpleNamespace(pull=lambda *_: None, note=told.append)
    images = Images(Engine(available=True), progress, keep=Keep.NONE)
    images.expect([first, second, third, old, first])
    for each in (first, second, old):
        images.make_ready(each, engine)
    waiting = threading.Thread(target=images.make_ready, args=(third, engine))
    waiting.start()
    images.ended(first)
    images.ended(old)
    waiting.join(0.3)
    assert (waiting.is_alive(), engine.here) == (True, {"a:1", "b:1", "here:1"})
    images.ended(first)
    waiting.join(30)
    assert engine.here == {"b:1", "c:1", "here:1"}
    assert told == ["removed a:1: its last cell has run"]


SAID = """\
write /var/lib/docker/tmp/GetImageBlob1: no space left on device
storing blob to file: flate: corrupt input before offset 44
no matching manifest for linux/arm64/v8 in the manifest list entries
http: server gave HTTP response to HTTPS client
incorrect username or password
received unexpected HTTP status: 503 Service Unavailable
Get "https://nvcr.io/v2/": dial tcp: lookup nvcr.io: no such host
dial tcp 127.0.0.1:1: connect: connection refused
read tcp 10.0.0.1:1->10.0.0.2:443: read: connection reset by peer
it has hiccups"""


def test_each_trouble_is_told_in_the_engines_words_with_a_remedy_and_whether_it_is_tried_again() -> None:
    told = [explain_pull("nvcr.io/nvidia/pytorch:24.12-py3", said) for said in SAID.splitlines()]
    lines = [f"{error}\n{'again' if worth_while else 'not again'}\n" for error, worth_while in told]
    check_golden("pulls.txt", "\n".join(lines))
