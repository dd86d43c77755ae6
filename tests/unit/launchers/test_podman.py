"""Podman behind Docker's API: found where no Docker is, and given what it needs otherwise than Docker."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from builders import make_version
from engines import serving

from trtmatrix.launchers import docker_engine
from trtmatrix.launchers.container import ContainerSpec, Limits, docker_command, make_container_spec
from trtmatrix.launchers.docker_engine import find_address, find_engine
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CPU
from trtmatrix.suite.plan import Engine, GpuAccess, Launch

# As Podman 4.3.1 of Debian 12 says of itself.
INFO = {
    "ServerVersion": "4.3.1", "DockerRootDir": "/var/lib/containers/storage", "BuildahVersion": "1.28.2",
    "Runtimes": {"crun": {}, "nvidia": {}}, "Rootless": False, "MemoryLimit": True, "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "RegistryConfig": {"InsecureRegistryCIDRs": [], "IndexConfigs": {}},
}  # fmt: skip
IMAGES = [
    {"Id": "sha256:1", "RepoTags": ["localhost/a/b:1"], "RepoDigests": ["localhost/a/b@sha256:0"]},
    {"Id": "sha256:2", "RepoTags": ["docker.io/library/debian:12"], "RepoDigests": None},
    {"Id": "sha256:3", "RepoTags": ["nvcr.io/nvidia/pytorch:25.01-py3"], "RepoDigests": []},
]


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Where Docker's, the user's Podman's and root's Podman's sockets are looked for; none is there."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    paths = {
        "docker": tmp_path / "d.sock",
        "own": tmp_path / "podman/podman.sock",
        "root": tmp_path / "r.sock",
    }
    monkeypatch.setattr(docker_engine, "DOCKER_SOCKET", str(paths["docker"]))
    monkeypatch.setattr(docker_engine, "PODMAN_SOCKET", str(paths["root"]))
    return paths


@pytest.mark.parametrize(
    ("there", "named", "found"),
    [
        (("docker", "own", "root"), None, "docker"),
        (("own", "root"), None, "own"),
        (("root",), None, "root"),
        (("docker", "root"), "tcp://10.0.0.1:2376", "tcp://10.0.0.1:2376"),
    ],
)
def test_the_address_is_the_named_one_or_that_of_the_first_socket_that_is_there(
    there: tuple[str, ...], named: str | None, found: str, sockets: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if named is not None:
        monkeypatch.setenv("DOCKER_HOST", named)
    with ExitStack() as left:
        for name in there:
            sockets[name].parent.mkdir(exist_ok=True)
            left.enter_context(socket.socket(socket.AF_UNIX)).bind(str(sockets[name]))
        assert find_address() == (f"unix://{sockets[found]}" if found in sockets else found)


@pytest.fixture
def podman(sockets: dict[str, Path]) -> Iterator[Engine]:
    """What is found where root's Podman alone answers."""
    with serving(sockets["root"], {"/info": INFO, "/images/json": IMAGES}):
        yield find_engine(gpu_here=True)


def test_podman_is_known_by_its_name_and_its_images_by_those_that_docker_has(podman: Engine) -> None:
    assert (podman.name, podman.command, podman.version) == ("Podman", "podman", "4.3.1")
    assert not podman.rootless
    assert podman.unlimited == ()
    for name, image in (("a/b:1", "1"), ("debian:12", "2"), ("nvcr.io/nvidia/pytorch:25.01-py3", "3")):
        assert podman.held(ImageOrigin(image=name)) == f"sha256:{image}"


@pytest.mark.parametrize(
    ("said", "rootless", "unlimited"),
    [
        ({"Rootless": True}, True, ()),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, True, ()),
        ({"MemoryLimit": False, "PidsLimit": False}, False, ("memory", "processes")),
    ],
)
def test_an_engine_without_root_is_told_and_so_is_what_it_cannot_limit(
    said: dict[str, Any], rootless: bool, unlimited: tuple[str, ...], sockets: dict[str, Path]
) -> None:
    with serving(sockets["docker"], {"/info": {**INFO, **said}, "/images/json": IMAGES}):
        found = find_engine(gpu_here=False)
    assert (found.rootless, found.unlimited) == (rootless, unlimited)


def spec_of(found: Engine) -> ContainerSpec:
    launch, here = Launch(version=make_version("10.7.0"), gpu=CPU, cells=()), Path("/nowhere")
    return make_container_spec(launch, "i", found, cache=here, repros=here, folder=here, limits=Limits())


def test_the_command_by_hand_is_podmans(podman: Engine) -> None:
    words = shlex.split(docker_command(spec_of(podman)))
    assert words[:2] == ["podman", "run"]
    assert "--log-driver=k8s-file" in words
    limits = [word.split("=")[1] for word in words if word.startswith("--ulimit=")]
    assert limits == ["nofile", "nproc", "fsize"]


def test_where_the_engine_is_the_callers_own_root_inside_is_the_caller() -> None:
    assert spec_of(Engine(available=True)).user == f"{os.getuid()}:{os.getgid()}"
    assert spec_of(Engine(available=True, rootless=True)).user == "0:0"


@pytest.mark.parametrize(
    ("version", "here", "expected"),
    [
        ("5.3.2", True, None), ("5.4.0", True, GpuAccess.CDI),
        ("5.4.0", False, None), ("", True, None),
    ],
)  # fmt: skip
def test_podman_gives_gpus_by_cdi_from_the_release_that_takes_them_over_its_socket(
    version: str, here: bool, expected: GpuAccess | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "CDI_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(docker_engine, "DRIVER_FOLDER", str(tmp_path / "nowhere"))
    if here:
        (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert docker_engine.find_gpu_access({**INFO, "ServerVersion": version}) is expected
