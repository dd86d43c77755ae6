"""What is found out about a container engine over its socket, Docker or Podman, and its way to the GPU."""

import os
import shlex
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from engines import ANSWERS, serving
from launchers.test_container import spec_of

from trtmatrix.launchers import docker_engine
from trtmatrix.launchers.container import docker_command
from trtmatrix.launchers.docker_engine import find_address, find_engine
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import GpuAccess

# As Podman 4.3.1 of Debian 12 says of itself.
PODMAN = {
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
PODMANS = {"/info": PODMAN, "/images/json": IMAGES}


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Where Docker's, the user's Podman's and root's Podman's sockets are looked for; none is there."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "podman").mkdir()
    names = {"docker": "d.sock", "own": "podman/podman.sock", "root": "r.sock"}
    paths = {owner: tmp_path / name for owner, name in names.items()}
    monkeypatch.setattr(docker_engine, "DOCKER_SOCKET", str(paths["docker"]))
    monkeypatch.setattr(docker_engine, "PODMAN_SOCKET", str(paths["root"]))
    monkeypatch.setattr(docker_engine, "CDI_FOLDERS", (str(tmp_path / "specs"),))
    monkeypatch.setattr(docker_engine, "DRIVER_FOLDER", str(tmp_path / "nowhere"))
    return paths


def test_podman_is_known_and_its_images_by_those_names_that_docker_has(sockets: dict[str, Path]) -> None:
    with serving(sockets["root"], PODMANS):
        podman = find_engine(gpu_here=True)
    assert (podman.name, podman.command, podman.version) == ("Podman", "podman", "4.3.1")
    assert (podman.rootless, podman.unlimited, podman.root) == (False, (), "/var/lib/containers/storage")
    names = {"a/b:1": 1, "a/b@sha256:0": 1, "debian:12": 2, "nvcr.io/nvidia/pytorch:25.01-py3": 3}
    assert {name: podman.held(ImageOrigin(image=name)) for name in names} == {
        name: f"sha256:{image}" for name, image in names.items()
    }
    for facts, user, limits in (  # where the engine is the caller's own, root inside is the caller
        ({"name": podman.name, "ulimits": podman.ulimits}, f"{os.getuid()}:{os.getgid()}", 3),
        ({"rootless": True}, "0:0", 1),
    ):
        spec = spec_of(None, **facts)
        words = shlex.split(docker_command(spec))
        assert (spec.user, words[1], words[0] == "podman") == (user, "run", "--log-driver=k8s-file" in words)
        told = [word.split("=")[1] for word in words if word.startswith("--ulimit=")]
        assert told == ["nofile", "nproc", "fsize"][-limits:]


@pytest.mark.parametrize(
    ("there", "named", "found"),
    [
        (("docker", "own", "root"), None, "docker"), (("own", "root"), None, "own"),
        (("root",), None, "root"), (("docker", "root"), "tcp://10.0.0.1:2376", "tcp://10.0.0.1:2376"),
    ],
)  # fmt: skip
def test_the_address_is_the_named_one_or_that_of_the_first_socket_that_is_there(
    there: tuple[str, ...], named: str | None, found: str, sockets: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if named is not None:
        monkeypatch.setenv("DOCKER_HOST", named)
    with ExitStack() as left:
        for name in there:
            left.enter_context(socket.socket(socket.AF_UNIX)).bind(str(sockets[name]))
        assert find_address() == (f"unix://{sockets[found]}" if found in sockets else found)


@pytest.mark.parametrize(("wanted", "answers"), [("docker", False), ("podman", True), ("auto", True)])
def test_where_one_engine_is_meant_the_other_s_socket_is_not_asked(
    wanted: str, answers: bool, sockets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTMATRIX_ENGINE", wanted)
    with serving(sockets["own"], PODMANS):
        assert find_engine(gpu_here=False).available == answers


@pytest.mark.parametrize(
    ("access", "given"), [("cdi", GpuAccess.CDI), ("nodes", GpuAccess.NODES), ("", GpuAccess.TOOLKIT)]
)
def test_a_setting_stands_before_what_is_found(
    access: str, given: GpuAccess, sockets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTMATRIX_GPU_ACCESS", access)
    monkeypatch.setenv("TRTMATRIX_DRIVER_FOLDER", str(tmp_path))
    with serving(sockets["docker"]):
        found = find_engine(gpu_here=True)
    assert (found.gpu_access, found.driver_folder) == (given, str(tmp_path))


REFUSED: list[tuple[dict[str, str], dict[str, Any], str, str]] = [
    ({"TRTMATRIX_GPU_ACCESS": "runtime"}, dict(ANSWERS), "'runtime' of toolkit, cdi, nodes", "correct it"),
    ({"TRTMATRIX_DRIVER_FOLDER": "/no/where"}, dict(ANSWERS), "'/no/where' is no folder", "correct it"),
    ({"TRTMATRIX_ENGINE": "podman", "DOCKER_HOST": "own"}, dict(ANSWERS),
     "podman was asked for, and what answers at unix:", ""),
    ({}, {}, "no container engine answers at ", ""),
    ({}, {**ANSWERS, "/info": b"<html>"}, "Expecting value", ""),
    ({"DOCKER_HOST": "unix:///no/such.sock"}, {}, "no socket of an engine at unix:///no/such.sock",
     "correct DOCKER_HOST"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "answers", "reason", "remedy"), REFUSED)
def test_why_there_is_no_engine_is_told_with_what_mends_it(
    settings: dict[str, str], answers: dict[str, Any], reason: str, remedy: str,
    sockets: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, f"unix://{sockets['docker']}" if value == "own" else value)
    with serving(sockets["docker"], answers):
        found = find_engine(gpu_here=True)
    assert not found.available
    assert reason in found.reason
    assert remedy in found.remedy


def test_an_engine_that_is_not_here_or_of_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_engine(gpu_here=False)
    assert "no socket of an engine at" in found.reason
    assert "install and start Docker" in found.remedy

    def refuse(*_: object) -> None:
        raise docker.errors.DockerException("Connection aborted: PermissionError(13, 'Permission denied')")

    monkeypatch.setattr(docker_engine, "open_client", refuse)
    assert find_engine(gpu_here=False).reason.startswith("the Docker socket may not be used by this user")


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ({"Rootless": True}, (True, ())), ({"SecurityOptions": ["name=rootless"]}, (True, ())),
        ({"MemoryLimit": False, "PidsLimit": False}, (False, ("memory", "processes"))),
    ],
)  # fmt: skip
def test_an_engine_without_root_is_told_and_so_is_what_it_cannot_limit(
    said: dict[str, Any], facts: tuple[bool, tuple[str, ...]], sockets: dict[str, Path]
) -> None:
    with serving(sockets["docker"], {"/info": {**PODMAN, **said}, "/images/json": IMAGES}):
        found = find_engine(gpu_here=False)
    assert (found.rootless, found.unlimited) == facts


GPUS = '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}'
YAML = {"nvidia.yaml": "kind: nvidia.com/gpu\n"}
NEW_PODMAN = {**PODMAN, "ServerVersion": "5.4.0"}
WAYS: dict[str, tuple[dict[str, Any], dict[str, str], GpuAccess | None]] = {
    "the toolkit": ({"Runtimes": {"nvidia": {}, "runc": {}}}, {}, GpuAccess.TOOLKIT),
    "the toolkit's hook": ({}, {"../nvidia-container-runtime-hook": ""}, GpuAccess.TOOLKIT),
    "CDI of Docker 28.3": ({"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, {}, GpuAccess.CDI),
    "CDI of Docker 26": ({"CDISpecDirs": ["none", "specs"]}, YAML, GpuAccess.CDI),
    "CDI in JSON": ({"CDISpecDirs": ["specs"]}, {"nvidia.json": GPUS}, GpuAccess.CDI),
    "CDI's file of others": ({"CDISpecDirs": ["specs"]}, {"v.json": "{}"}, None),
    "CDI's device of others": ({"DiscoveredDevices": [{"ID": "vendor.com/net=0"}]}, {}, None),
    "an engine that says nothing": ({}, {}, None),
    "Podman that takes CDI over its socket": (NEW_PODMAN, YAML, GpuAccess.CDI),
    "Podman that does not yet": ({**PODMAN, "ServerVersion": "5.3.2"}, YAML, None),
    "Podman of no known release": ({**PODMAN, "ServerVersion": ""}, YAML, None),
    "Podman without a GPU's file": (NEW_PODMAN, {}, None),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_way_to_the_gpu_is_read_off_the_engine(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, files, expected = WAYS[way]
    (tmp_path / "specs").mkdir()
    for name, text in files.items():
        (tmp_path / "specs" / name).write_text(text)
        (tmp_path / "specs" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if "CDISpecDirs" in info:
        info = {**info, "CDISpecDirs": [str(tmp_path / name) for name in info["CDISpecDirs"]]}
    assert docker_engine.find_gpu_access(info) is expected


class Racing(dict[str, object]):
    """Answers as Podman does where an image goes while it lists them: once with an error."""

    def get(self, key: str, default: object = None) -> object:
        gone = ValueError("locating image with ID 1: image not known")
        return (super().pop(f"once {key}", None) and gone) or super().get(key, default)


def test_a_list_that_fails_as_an_image_goes_is_asked_for_again(sockets: dict[str, Path]) -> None:
    with serving(sockets["docker"], Racing({**ANSWERS, "once /images/json": True})):
        assert find_engine(gpu_here=False).available
