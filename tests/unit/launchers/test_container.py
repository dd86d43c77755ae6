"""What a container is given, and that it is given nothing else."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
from builders import make_case, make_cell, make_repro, make_version
from goldenfile import check_golden

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import own_identity, probe_folder
from trtmatrix.common.progress import Progress
from trtmatrix.launchers.container import Containers, ContainerSpec, Limits, docker_command
from trtmatrix.launchers.containers import ContainerLauncher, Images
from trtmatrix.launchers.launcher import Ready
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.model import CPU, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Launch

HERE = Path("/h")
UUID = "GPU-11111111-2222-3333-4444-555555555555"
BOARD = Gpu(slug="h200", name="NVIDIA H200", compute="9.0", uuid=UUID, index=2, minor=3)


def spec_of(
    access: GpuAccess | None = None, gpu: Gpu = BOARD, version: Version | None = None,
    repros: Path = HERE / "my repros", workers: int = 1, cells: tuple[Cell, ...] = (), **engine: Any,
) -> ContainerSpec:  # fmt: skip
    launch = Launch(version=version or make_version("10.7.0"), gpu=gpu, cells=cells)
    found = Engine(available=True, gpu_access=access, **engine)
    made = Containers(engine=found, cache=HERE, repros=repros, limits=Limits(), workers=workers)
    return made.spec(launch, "sha256:0", HERE / "x")


@pytest.mark.parametrize("access", [access for access in GpuAccess if access is not GpuAccess.RUNTIME])
def test_the_command_by_hand_is_the_accepted_one(access: GpuAccess) -> None:
    command = docker_command(spec_of(access, driver_folder="/usr/local/nvidia"))
    for here, accepted in (
        (own_identity(), "me"), (f"--user={os.getuid()}:{os.getgid()}", "--user=1:2"),
        (str(probe_folder()), "/h/probe"), ("/h/x/", "/h/"),
    ):  # fmt: skip
        command = command.replace(here, accepted)
    lines = command.replace(" --", " \\\n  --") + "\n"
    check_golden(f"docker-{access.name.lower()}.txt", lines)


@pytest.mark.parametrize("access", [*GpuAccess, None])
def test_a_cell_without_a_gpu_is_given_none(access: GpuAccess | None) -> None:
    spec = spec_of(access, CPU, driver_folder="/usr/local/nvidia")
    assert (spec.gpu.ids, spec.gpu.cdi, spec.gpu.nodes) == ((), (), ())
    assert "/usr/local/nvidia" not in spec.mounts
    assert spec.environment["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize(
    ("gpu", "name", "workers", "engine", "shares"),
    [
        (BOARD, "pipes", 4, "docker", True), (BOARD, "pipes", 1, "docker", False),
        (BOARD, "nowhere", 4, "docker", False), (BOARD, "a:b", 4, "docker", False),
        (CPU, "pipes", 4, "docker", False), (BOARD, "pipes", 4, "apptainer", False),
    ],
)  # fmt: skip
def test_containers_that_share_a_gpu_do_so_by_the_host_s_mps(
    gpu: Gpu, name: str, workers: int, engine: str, shares: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for folder in ("pipes", "a:b"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", pipes := str(tmp_path / name))
    spec = spec_of(GpuAccess.NODES, gpu, workers=workers, name=engine.title())
    given = "--ipc=host" in spec.gpu.command_line, "CUDA_MPS_PIPE_DIRECTORY" in spec.environment
    assert (*given, pipes in spec.mounts) == (shares,) * 3


@pytest.mark.parametrize(("cases", "shares"), [("a", False), ("ab", True)])
def test_what_has_a_gpu_to_itself_has_it_without_mps(
    cases: str, shares: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    repro = make_repro(*map(make_case, cases), exclusive=("a",))
    cells = tuple(make_cell(repro, case, gpu=BOARD) for case in repro.cases)
    assert spec_of(GpuAccess.NODES, workers=4, cells=cells).gpu.mps is shares


@pytest.mark.parametrize(("workers", "emptied"), [(1, ["/tmp", "/dev/shm"]), (4, ["/tmp"])])  # noqa: S108
def test_the_host_s_shared_memory_is_not_emptied(
    workers: int, emptied: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    launch = Launch(version=make_version("10.7.0"), gpu=BOARD, cells=())
    launcher = ContainerLauncher(
        engine=Engine(available=True, gpu_access=GpuAccess.NODES), cache=tmp_path, repros=tmp_path,
        limits=Limits(), workers=workers, images=Images(Engine(available=True), Progress(io.StringIO())),
    )  # fmt: skip
    (tmp_path / "job").mkdir()
    with pytest.raises(MachineryError):
        launcher.run(Ready(launch=launch, digests={}, handle="sha256:0"), tmp_path, lambda: None)
    assert (tmp_path / "job" / "scratch").read_text().split() == emptied


def test_the_image_s_own_driver_library_is_used_where_the_host_s_is_too_old() -> None:
    rule = {"least": "560", "datacenter": ["535.86"], "known": "read", "source": "notes"}
    found = {}
    for driver, index in (("535.183.01", 0), ("560.35.03", 0), ("580.1", 0), (None, 0), ("535.1", None)):
        gpu = Gpu(slug="h100", name="NVIDIA H100", datacenter=True, driver=driver, index=index)
        spec = spec_of(GpuAccess.TOOLKIT, gpu, make_version("10.7.0", driver=rule))
        found[driver] = spec.environment.get("TRTMATRIX_CUDA_COMPAT")
    assert found.pop("535.183.01") == "/usr/local/cuda/compat/lib.real:/usr/local/cuda/compat"
    assert not any(found.values())
