"""What the script of an archive is given here: a GPU in the engine's way, nothing, or a fresh environment."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest
from builders import H200, make_cell, make_record

from trtmatrix import bundle_settings
from trtmatrix.bundle_settings import find_settings
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.plan import Engine, GpuAccess
from trtmatrix.core.record import Record
from trtmatrix.effects import engine, gpu, wheels
from trtmatrix.effects.gpu import GpuScan

CONTAINER = {"runtime": "container", "image": "sha256:abc"}


def on_gpu(driver: str = "580.159") -> Record:
    """A record of a container on an H200."""
    return make_record(make_cell(), digests=CONTAINER, gpu={"name": "NVIDIA H200", "driver": driver})


def host(monkeypatch: pytest.MonkeyPatch, access: GpuAccess | None, *, gpus: bool = True) -> None:
    """Stand in for what cannot be had here: a GPU, and an engine that reaches it."""
    scan = GpuScan(gpus=(H200,) if gpus else (), reason="" if gpus else "NVML finds no GPU")
    found = Engine(available=True, gpu_access=access, driver_folder="/usr/local/nvidia")
    monkeypatch.setattr(gpu, "find_gpus", lambda: scan)
    monkeypatch.setattr(engine, "find_engine", lambda **_: found)


@pytest.mark.parametrize(
    ("access", "options"),
    [
        (GpuAccess.TOOLKIT, "--gpus=device=0"),
        (GpuAccess.CDI, "--device=nvidia.com/gpu=0"),
        (
            GpuAccess.NODES,
            "--device=/dev/nvidia0 --device=/dev/nvidiactl --device=/dev/nvidia-uvm "
            "--volume=/usr/local/nvidia:/usr/local/nvidia:ro",
        ),
    ],
)
def test_a_container_gets_its_gpu_in_the_engines_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, access: GpuAccess, options: str
) -> None:
    host(monkeypatch, access)
    assert find_settings(on_gpu(), tmp_path, print) == ({"GPU_OPTIONS": options}, [])


def test_another_driver_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, GpuAccess.TOOLKIT)
    _, notes = find_settings(on_gpu("570.1"), tmp_path, print)
    assert notes == ["driver here: 580.159; recorded: 570.1"]


@pytest.mark.parametrize(
    ("gpus", "said"), [(False, "no GPU is here"), (True, "cannot reach the NVIDIA H200")]
)
def test_a_failure_of_a_gpu_cannot_be_looked_for_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: bool, said: str
) -> None:
    host(monkeypatch, None, gpus=gpus)
    with pytest.raises(MachineryError, match=said):
        find_settings(on_gpu(), tmp_path, print)


@pytest.mark.parametrize(
    ("found", "more"),
    [
        (Engine(available=True), {}),
        (Engine(available=True, rootless=True), {"RUN_AS": "0:0"}),
        (Engine(available=True, name="Podman"), {"DOCKER": "podman", "CONTAINER_HOST": "unix:///here"}),
    ],
)
def test_a_container_of_the_cpu_gets_no_gpu_and_is_started_in_the_engines_way(
    found: Engine, more: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "find_engine", lambda **_: found)
    monkeypatch.setenv("DOCKER_HOST", "unix:///here")
    record = make_record(make_cell(version="onnxruntime-1.31.1"), digests=CONTAINER)
    assert find_settings(record, tmp_path, print) == ({"GPU_OPTIONS": "", **more}, [])


def test_without_a_container_a_fresh_environment_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed: list[tuple[Path, tuple[str, ...]]] = []
    made: list[Path] = []
    monkeypatch.setattr(venv, "create", lambda folder, **_: made.append(folder))
    monkeypatch.setattr(wheels, "install_wheels", lambda python, names, _: installed.append((python, names)))
    cell = make_cell(version="onnxruntime-1.31.1")
    record = make_record(cell, digests={"runtime": "wheels"}, observed={"library": "1.31.1"})
    settings, notes = find_settings(record, tmp_path, print)
    python = tmp_path / "env" / "bin" / "python"
    assert settings == {"PYTHON": str(python)}
    assert made == [tmp_path / "env"]
    assert installed == [(python, ("onnxruntime==1.31.1", "numpy"))]
    assert "not in a container" in notes[0]


def test_an_interpreter_of_the_host_cannot_be_made_anew(tmp_path: Path) -> None:
    with pytest.raises(MachineryError, match="PYTHON"):
        find_settings(make_record(make_cell(), digests={"runtime": "host"}), tmp_path, print)


def test_every_product_but_tensorrt_has_its_wheels() -> None:
    assert {product.value for product in bundle_settings.WHEELS} == {"onnxruntime", "tensorrt-rtx"}
