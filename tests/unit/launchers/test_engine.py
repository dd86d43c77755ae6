"""What is found out about a container engine over its socket, and its way to the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docker.errors
import pytest
from engines import ANSWERS, INFO, serving

from trtmatrix.launchers import docker_engine
from trtmatrix.launchers.docker_engine import find_engine
from trtmatrix.suite.plan import GpuAccess


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's socket is looked for."""
    path = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


def test_an_engine_is_asked_for_itself_and_its_images_alone(address: Path) -> None:
    with serving(address) as asked:
        found = find_engine(gpu_here=False)
    assert (found.available, found.version, found.root) == (True, "28.1.0", "/var/lib/docker")
    assert found.images == {"a/b:1": "sha256:1", "a/b:latest": "sha256:1", "a/b@sha256:0": "sha256:1"}
    assert found.gpu_access is None
    assert asked == ["/version", "/info", "/images/json"]


@pytest.mark.parametrize(
    ("access", "given"), [("cdi", GpuAccess.CDI), ("nodes", GpuAccess.NODES), ("", GpuAccess.TOOLKIT)]
)
def test_a_setting_stands_before_what_is_found(
    access: str, given: GpuAccess, address: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTMATRIX_GPU_ACCESS", access)
    monkeypatch.setenv("TRTMATRIX_DRIVER_FOLDER", str(tmp_path))
    with serving(address):
        found = find_engine(gpu_here=True)
    assert (found.gpu_access, found.driver_folder) == (given, str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TRTMATRIX_GPU_ACCESS", "runtime", "known are toolkit, cdi, nodes"),
        ("TRTMATRIX_DRIVER_FOLDER", "/no/where", "no folder by an absolute path"),
        ("TRTMATRIX_ENGINE", "podman", "podman was asked for, and what answers at unix:"),
    ],
)
def test_a_setting_that_cannot_be_obeyed_is_told(
    name: str, value: str, reason: str, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with serving(address):
        found = find_engine(gpu_here=True)
    assert not found.available
    assert reason in found.reason


@pytest.mark.parametrize(("wanted", "answers"), [("docker", False), ("podman", True), ("auto", True)])
def test_where_one_engine_is_meant_the_other_s_socket_is_not_asked(
    wanted: str, answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(docker_engine, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setenv("TRTMATRIX_ENGINE", wanted)
    (tmp_path / "podman").mkdir()
    podman = {**ANSWERS, "/info": {**INFO, "BuildahVersion": "1.28"}}
    with serving(tmp_path / "podman" / "podman.sock", podman):
        assert find_engine(gpu_here=False).available == answers


@pytest.mark.usefixtures("address")
def test_a_socket_of_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise docker.errors.DockerException("Connection aborted: PermissionError(13, 'Permission denied')")

    monkeypatch.setattr(docker_engine, "open_client", refuse)
    assert find_engine(gpu_here=False).reason.startswith("the Docker socket may not be used by this user")


@pytest.mark.parametrize(
    ("answers", "words"),
    [({}, "Internal Server Error"), ({**ANSWERS, "/info": b"<html>"}, "Expecting value")],
)
def test_an_engine_that_answers_with_trouble_is_none(
    answers: dict[str, object], words: str, address: Path
) -> None:
    with serving(address, answers):
        found = find_engine(gpu_here=False)
    assert not found.available
    assert found.reason.startswith("Docker does not answer: ")
    assert words in found.reason


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        (
            "unix:///no/such.sock",
            "no socket of an engine at unix:///no/such.sock",
            "name another address, or unset it",
        ),
        (None, "no socket of an engine at", "install and start Docker"),
    ],
)
def test_the_remedy_fits_the_reason(
    name: str | None, reason: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "find_address", lambda: name or f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("DOCKER_HOST", name) if name else monkeypatch.delenv("DOCKER_HOST", raising=False)
    found = find_engine(gpu_here=False)
    assert not found.available
    assert reason in found.reason
    assert remedy in found.remedy


GPUS = '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}'
ROWS: dict[str, tuple[dict[str, Any], dict[str, str], GpuAccess | None]] = {
    "the toolkit": ({"Runtimes": {"nvidia": {}, "runc": {}}}, {}, GpuAccess.TOOLKIT),
    "CDI of Docker 28.3": (
        {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, {}, GpuAccess.CDI,
    ),
    "CDI of Docker 26": (
        {"CDISpecDirs": ["none", "cdi"]}, {"nvidia.yaml": "kind: nvidia.com/gpu\n"}, GpuAccess.CDI,
    ),
    "CDI in JSON": ({"CDISpecDirs": ["cdi"]}, {"nvidia.json": GPUS}, GpuAccess.CDI),
    "CDI of others": (
        {"CDISpecDirs": ["cdi"], "DiscoveredDevices": [{"ID": "vendor.com/net=0"}]}, {"v.json": "{}"}, None,
    ),
    "an engine that says nothing": ({}, {}, None),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_way_to_the_gpu_is_read_off_the_engine(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, files, expected = ROWS[row]
    folder = tmp_path / "cdi"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(docker_engine, "DRIVER_FOLDER", str(tmp_path / "nowhere"))
    dirs = [str(tmp_path / name) for name in info.get("CDISpecDirs") or []]
    assert docker_engine.find_gpu_access({**info, "CDISpecDirs": dirs}) is expected


def test_the_toolkits_hook_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert docker_engine.find_gpu_access({}) is GpuAccess.TOOLKIT


def test_images_of_containerd_lie_in_its_own_folder(address: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = address.parent / "containerd"
    monkeypatch.setattr(docker_engine, "CONTAINERD", folder)
    snapshots = [["driver-type", "io.containerd.snapshotter.v1"]]
    info = {**INFO, "DockerRootDir": "/d", "DriverStatus": snapshots}
    with serving(address, {**ANSWERS, "/info": info}):
        assert find_engine(gpu_here=False).root == "", "where they lie is not known"
        folder.mkdir()
        assert find_engine(gpu_here=False).root == str(folder)


class Racing(dict[str, object]):
    """Answers as Podman does where an image goes while it lists them: once with an error."""

    def get(self, key: str, default: object = None) -> object:
        gone = ValueError("locating image with ID 1: image not known")
        return (super().pop(f"once {key}", None) and gone) or super().get(key, default)


def test_a_list_that_fails_as_an_image_goes_is_asked_for_again(address: Path) -> None:
    with serving(address, Racing({**ANSWERS, "once /images/json": True})):
        assert find_engine(gpu_here=False).available
