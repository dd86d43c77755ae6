"""A registry on loopback with images to pull: Debian's docker-registry, and the test image with ballast.

Pushing the test image takes longer than all that is measured, so its layers are kept in the cache, by its ID;
what is pushed on top of them goes when the registry ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import yaml

from trtmatrix.common.paths import default_cache
from trtmatrix.launchers.docker_engine import open_client

TEST_IMAGE = "trtmatrix/test:latest"
REPOSITORY = "trtmatrix/pulled"
START_SECONDS = 20.0


class RegistryError(RuntimeError):
    """The registry cannot be used; the message says what to do."""


class Registry:
    """A registry that serves a folder on ``port`` of loopback, which engines take without TLS."""

    def __init__(self, client: docker.DockerClient, port: int) -> None:
        """Keep the connection to the engine that pushes and pulls."""
        self.client, self.port = client, port

    def name(self, tag: str, port: int | None = None) -> str:
        """Return an image's reference at the registry, or at a proxy in front of it."""
        return f"127.0.0.1:{port or self.port}/{REPOSITORY}:{tag}"

    def push_test_image(self) -> None:
        """Push the test image."""
        image = self.client.images.get(TEST_IMAGE)
        self._push("base", lambda name: image.tag(*name.rsplit(":", 1)))

    def push_with_ballast(self, tag: str, count: int) -> None:
        """Push the test image with so many random bytes on top: a layer of its own that no gzip shrinks."""

        def build(name: str) -> None:
            self.client.images.build(fileobj=_context(count), custom_context=True, rm=True, tag=name)

        self._push(tag, build)

    def _push(self, tag: str, make: Callable[[str], object]) -> None:
        """Make an image of that name, push it, and remove it here."""
        name = self.name(tag)
        make(name)
        try:
            for event in self.client.api.push(name, stream=True, decode=True):
                if "error" in event:
                    raise RegistryError(f"{name} cannot be pushed: {event['error']}")
        finally:
            forget(self.client, name)


@contextlib.contextmanager
def open_registry() -> Iterator[Registry]:
    """Serve a registry that has the layers of the test image; it ends with the context.

    :class:`RegistryError` where there is no docker-registry, no engine or no test image.
    """
    find_program()
    client = open_client(120)
    try:
        image = str(client.images.get(TEST_IMAGE).id)
    except docker.errors.ImageNotFound as error:
        raise RegistryError(f"{TEST_IMAGE} is not here: docker/test/build makes it") from error
    root = default_cache() / "test-registry"
    root.mkdir(parents=True, exist_ok=True)
    kept = root / image.removeprefix("sha256:")[:16]
    with tempfile.TemporaryDirectory(prefix=".own-", dir=root) as folder:
        storage = Path(folder) / "storage"
        if kept.is_dir():
            shutil.copytree(kept, storage, copy_function=os.link)
        with serve(Path(folder), storage) as serving:
            registry = Registry(client, serving.port)
            if not kept.is_dir():
                registry.push_test_image()
                _keep(storage, kept)
            yield registry


def _keep(storage: Path, kept: Path) -> None:
    """Keep the layers for the next time, in the place of those of older test images."""
    for old in kept.parent.iterdir():
        if not old.name.startswith("."):
            shutil.rmtree(old, ignore_errors=True)
    partial = storage.with_name("kept")
    shutil.copytree(storage, partial, copy_function=os.link)
    with contextlib.suppress(OSError):  # another was faster
        partial.rename(kept)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A registry that runs: where it listens, and the folder that holds what it has."""

    host: str
    port: int
    storage: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it, as a registry that goes away does."""
        self.process.terminate()
        self.process.wait()


def find_program() -> str:
    """Return Debian's docker-registry. :class:`RegistryError` where it is not here."""
    program = shutil.which("docker-registry")
    if program is None:
        raise RegistryError("there is no docker-registry here: apt-get install docker-registry")
    return program


@contextlib.contextmanager
def serve(
    folder: Path,
    storage: Path,
    *,
    port: int = 0,
    http: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Serving]:
    """Run a registry over a folder; it answers once this yields, and ends with the context.

    ``folder``: for its configuration and log; ``http`` (``tls``) and ``settings`` (``auth``): more of
    docker-registry's own, see https://distribution.github.io/distribution/about/configuration/.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or _free_port()
    config = {
        "version": "0.1", "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": os.urandom(8).hex(), **(http or {})},
        **(settings or {}),
    }  # fmt: skip
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [find_program(), "serve", str(folder / "config.yml")], stdout=log, stderr=log
        )
    serving = Serving(host=f"127.0.0.1:{port}", port=port, storage=storage, process=process)
    try:
        _wait(serving, folder / "log")
        yield serving
    finally:
        serving.stop()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _wait(serving: Serving, log: Path) -> None:
    """Wait until the registry takes connections."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", serving.port), timeout=5).close()
        except OSError:
            if serving.process.poll() is not None or time.monotonic() > deadline:
                raise RegistryError(f"docker-registry does not answer: {log.read_text()[-500:]}") from None
            time.sleep(0.05)
        else:
            return


def _context(count: int) -> io.BytesIO:
    """Return a build's context: the test image with a file of random bytes."""
    context = io.BytesIO()
    files = {
        "Dockerfile": f"FROM {TEST_IMAGE}\nCOPY ballast /ballast\n".encode(),
        "ballast": os.urandom(count),
    }
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    context.seek(0)
    return context


def forget(client: docker.DockerClient, *names: str) -> None:
    """Remove images, so that they must be pulled again; what is not here is no trouble."""
    for name in names:
        with contextlib.suppress(docker.errors.NotFound):  # Podman does not say of what
            client.images.remove(name, force=True)
