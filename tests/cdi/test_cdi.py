"""A device by CDI, through a real engine that has it (Docker 25 or later); the device is a stand-in.

TRTMATRIX_TEST_CDI_ENGINE is the engine's address, TRTMATRIX_TEST_CDI_SPECS the folder of its CDI
specifications (.ci/run starts such an engine). The stand-in GPU is /dev/zero under another name.
"""

import dataclasses
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from trtmatrix.launchers.container import Containers, ContainerSpec, GpuOptions, Limits
from trtmatrix.launchers.containers import create_container
from trtmatrix.launchers.docker_engine import find_engine, open_client
from trtmatrix.suite.matrix import Fact, ImageOrigin, Version
from trtmatrix.suite.model import Gpu, Known
from trtmatrix.suite.plan import Engine, GpuAccess, Launch

IMAGE = "trtmatrix/test:latest"
GPU = Gpu(slug="stand-in", name="Stand-in GPU", index=0)
ZERO = Path("/dev/zero").stat().st_rdev
SPEC = {
    "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero"}], "env": ["STANDIN_GPU=0"],
    }}],
}  # fmt: skip
VERSION = Version(
    version="10.7.0", origin=ImageOrigin(image=IMAGE),
    library=Fact(value="10.7.0", known=Known.READ, source="notes"),
)  # fmt: skip
LOOK = """
import os
print(os.environ.get("STANDIN_GPU"), os.stat("/dev/nvidia0").st_rdev, os.getuid(), os.access("/", os.W_OK))
"""
SHARE = """
import os, socket
socket.socket(socket.AF_UNIX).connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
print(os.readlink("/proc/self/ns/ipc"))
"""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine, which finds a GPU's specification in its folder."""
    monkeypatch.setenv("DOCKER_HOST", os.environ["TRTMATRIX_TEST_CDI_ENGINE"])
    file = Path(os.environ["TRTMATRIX_TEST_CDI_SPECS"]) / "nvidia.json"
    file.write_text(json.dumps(SPEC))
    time.sleep(1)  # the engine watches the folder
    yield find_engine(gpu_here=True)
    file.unlink()


def described(engine: Engine, folder: Path, script: str = LOOK) -> ContainerSpec:
    for name in ("repros", "cases", "job", "out"):
        (folder / name).mkdir()
        (folder / name).chmod(0o777)
    limits, launch = Limits(memory=1 << 30), Launch(version=VERSION, gpu=GPU, cells=())
    made = Containers(engine=engine, cache=folder, repros=folder / "repros", limits=limits, workers=2)
    spec = made.spec(launch, IMAGE, folder)
    spec = dataclasses.replace(spec, name=f"trtmatrix-cdi-{os.getpid()}", user="12345:12345")
    return dataclasses.replace(spec, command=("python3", "-c", script))


def said(spec: ContainerSpec) -> list[str]:
    container = create_container(open_client(120), spec)
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 0, container.logs()
        return container.logs().decode().split()
    finally:
        container.remove(force=True)


def test_a_container_gets_the_device_that_its_cell_names(engine: Engine, tmp_path: Path) -> None:
    assert engine.gpu_access is GpuAccess.CDI
    spec = described(engine, tmp_path)
    assert spec.gpu.cdi == ("nvidia.com/gpu=0",)
    assert said(spec) == ["0", str(ZERO), "12345", "False"]


def test_a_container_reaches_the_host_s_mps(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipes))
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(pipes / "control"))
        daemon.listen()
        for folder in (tmp_path.parent, tmp_path, pipes, pipes / "control"):
            folder.chmod(0o777)
        assert said(described(engine, tmp_path, SHARE)) == [str(Path("/proc/self/ns/ipc").readlink())]


def test_a_device_that_is_not_there_is_refused(engine: Engine, tmp_path: Path) -> None:
    spec = dataclasses.replace(described(engine, tmp_path), gpu=GpuOptions(cdi=("nvidia.com/gpu=7",)))
    container = create_container(open_client(120), spec)
    try:
        with pytest.raises(docker.errors.APIError, match="gpu=7"):
            container.start()
    finally:
        container.remove(force=True)
