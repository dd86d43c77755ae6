"""Small images at a real registry, and what makes a real engine pull them: without Python inside."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import docker.errors
from bench.registry import Serving

from tests.containers.engines import COMMAND
from tests.registry.registries import Image, Pushed, push_image
from trtmatrix.images.registry import Registry
from trtmatrix.launchers.containers import Images
from trtmatrix.launchers.docker_engine import open_client
from trtmatrix.plan.context import own_platform
from trtmatrix.plan.lockfile import Lock, pin_of
from trtmatrix.suite.matrix import Fact, ImageOrigin, Version
from trtmatrix.suite.model import CPU, Known
from trtmatrix.suite.plan import Engine, Keep, Launch

LIBRARY = Fact(value="1.0", known=Known.MEASURED, source="here")


@dataclass(kw_only=True)
class Bench:
    """A registry at ``host``, the engine, and what was told; images that came go with it."""

    serving: Serving
    client: docker.DockerClient
    cache: Path
    told: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def push(self, tag: str, *sizes: int, repository: str = "small/image") -> tuple[str, Pushed]:
        """Push an image with layers of so many random bytes; returns its name and what was pushed."""
        layers = tuple({f"layer{n}": os.urandom(size)} for n, size in enumerate(sizes or (4096,)))
        other = Image(platform="linux/s390x", layers=({"a": os.urandom(64)},))
        pushed = push_image(
            self.serving.host, repository, tag, Image(platform=own_platform(), layers=layers), other
        )
        return self.name(tag, repository), pushed

    def push_under(self, *tags: str) -> list[str]:
        image = Image(platform=own_platform(), layers=({"layer": os.urandom(4096)},))
        for tag in tags:
            push_image(self.serving.host, "small/image", tag, image)
        return [self.name(tag) for tag in tags]

    def name(self, tag: str, repository: str = "small/image", host: str = "") -> str:
        return f"{host or self.serving.host}/{repository}:{tag}"

    def images(self, keep: Keep = Keep.ALL) -> Images:
        progress: Any = SimpleNamespace(pull=lambda *_: None, note=self.told.append)
        engine = Engine(available=True, platform=own_platform(), name=COMMAND)
        return Images(engine, progress, keep=keep, waits=(0.1, 0.2))

    def have(self, images: Images, launch: Launch) -> str:
        """Have an image, which goes again with this bench."""
        origin = launch.version.origin
        assert isinstance(origin, ImageOrigin)
        self.names += [origin.reference, origin.image]
        return images.make_ready(launch, self.client)

    def is_here(self, name: str) -> bool:
        with contextlib.suppress(docker.errors.NotFound):
            return bool(self.client.images.get(name))
        return False


def want(name: str, *, locked: bool = False) -> Launch:
    """Return the launch of a version in an image, as it is locked by its registry now where that is asked."""
    lock = Lock(images={name: Registry().resolve(name)} if locked else {})
    origin = ImageOrigin(image=name, pin=pin_of(lock, name, own_platform()))
    return Launch(
        version=Version(version="1.0", origin=origin, library=LIBRARY), gpu=CPU, cells=(), pull=True
    )


@contextlib.contextmanager
def open_bench(serving: Serving) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as cache:
        bench = Bench(serving=serving, client=open_client(60), cache=Path(cache))
        try:
            yield bench
        finally:
            for name in bench.names:
                with contextlib.suppress(docker.errors.APIError):
                    bench.client.images.remove(name, force=True)
