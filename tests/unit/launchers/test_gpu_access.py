"""How containers get a GPU, from what engines of several releases say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trtmatrix.launchers import docker_engine
from trtmatrix.suite.plan import GpuAccess

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
