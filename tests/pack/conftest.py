"""A host without a network: a second engine with storage of its own, in a network namespace without one."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import pytest
from projects import command

from tests.containers.conftest import BUILD
from tests.waiting import wait_until

REPROS = Path(__file__).resolve().parents[1] / "nox" / "repros"


@dataclass(frozen=True, kw_only=True)
class FarHost:
    """The other side: ``folder`` is its home, ``address`` its engine's, ``namespace`` its (empty) network."""

    folder: Path
    address: str
    namespace: str

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        words = ["nsenter", f"--net=/run/netns/{self.namespace}", *command]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "DOCKER_HOST": self.address}
        return subprocess.run(
            words, cwd=folder or self.folder, env=environment, capture_output=True, text=True, check=False
        )

    def images(self) -> dict[str, list[str]]:
        client = docker.DockerClient(base_url=self.address, timeout=60)
        return {str(image.id): list(image.tags) for image in client.images.list()}


@pytest.fixture(scope="session")
def far() -> Iterator[FarHost]:
    """Start the engine; it ends, and its storage goes, however the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="trtmatrix-far-"))
    namespace = f"trtmatrix-{os.getpid()}"
    subprocess.run([program("ip"), "netns", "add", namespace], check=True)
    command = [
        "nsenter", f"--net=/run/netns/{namespace}", "dockerd", "-H", f"unix://{folder}/docker.sock",
        f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
        "--bridge=none", "--iptables=false", "--ip6tables=false",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        host = FarHost(folder=folder / "home", address=f"unix://{folder}/docker.sock", namespace=namespace)
        host.folder.mkdir()
        wait_until(lambda: answers(host.address), 60, (folder / "log").read_text()[-500:])
        yield host
    finally:
        engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()
        subprocess.run([program("ip"), "netns", "del", namespace], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


def answers(address: str) -> bool:
    with contextlib.suppress(docker.errors.DockerException):
        return bool(docker.DockerClient(base_url=address, timeout=10).ping())
    time.sleep(0.2)
    return False


@pytest.fixture(scope="session", autouse=True)
def _image() -> None:
    subprocess.run([str(BUILD)], check=True)


@dataclass(frozen=True, kw_only=True)
class Untagged:
    """An image that has no name: ``name`` is what matrix.yaml calls it, and the lock knows its ID."""

    name: str
    id: str


@pytest.fixture(scope="session")
def untagged() -> Iterator[Untagged]:
    """Import a small image without a name: one that was pulled by digest has none either."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("a-file")
        entry.size = 16
        archive.addfile(entry, io.BytesIO(os.urandom(16)))
    done = subprocess.run(
        [program("docker"), "import", "-"], input=tar.getvalue(), capture_output=True, check=True
    )
    image = done.stdout.decode().strip()
    yield Untagged(name="127.0.0.1:1/trtmatrix/untagged:1", id=image)
    docker.from_env(timeout=60).images.remove(image)


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = command(words[0], folder, REPROS, *words[1:])
    return subprocess.run(line, capture_output=True, text=True, check=False)
