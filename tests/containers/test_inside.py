"""What a container gives to a cell, and what it withholds; for the caller and for a user without a name."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from tests.containers.conftest import GOOD, MEMORY, STRANGER, Project, become_stranger

pytestmark = pytest.mark.engines

READ_ONLY = ("root", "etc", "usr", "above", "cases", "case", "repros", "job", "probe", "model")


@pytest.fixture(scope="module", params=["caller", "stranger"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the cell; returns its record, with the user and group that the run had."""
    project = Project(tmp_path_factory.mktemp(request.param))
    prefix: list[str] = []
    user, group = os.getuid(), os.getgid()
    if request.param == "stranger" and user == 0:
        prefix = become_stranger(project.folder)
        user, group = STRANGER, project.folder.stat().st_gid
    done = project.run("--trt", GOOD, "--repro", "inside", prefix=prefix)
    assert done.code == 0, done.told
    assert done.cell("view")["verdict"] == "PASS"
    record = project.record(done.cell("view"))
    return {**record, **record["measurements"]["scalars"], "user": user, "group": group}


EXPECTED = {
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0),
    "NoNewPrivs": 1, "Seccomp": 2, "init": 1,
    "interfaces": 0, "unreachable": 1,  # no network
    "memory": MEMORY, "pids": 1024,
    **dict.fromkeys((f"write_{place}" for place in READ_ONLY), errno.EROFS),
    "write_out": 0, "write_scratch": 0,
    "home_runs": 1, "home_in_memory": 1, "user_named": 1,
    "sockets": 0, "devices": 0,  # neither the engine's socket nor disks
    "tf32_overrides": 0, "unset": {"NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
    "environment": {"ORT_DISABLE_TELEMETRY": "1"},
}  # fmt: skip


def test_a_cell_has_what_it_needs_and_nothing_else(seen: dict[str, Any]) -> None:
    assert {name: seen.get(name) for name in EXPECTED} == EXPECTED
    assert (seen["uid"], seen["euid"], seen["gid"]) == (seen["user"], seen["user"], seen["group"])
    assert seen["groups"] <= 1
    assert seen.get("swap", 0) == 0
    assert seen["digests"]["image"].startswith("sha256:")
    assert seen["observed"]["numpy"] == "1.24.2"
