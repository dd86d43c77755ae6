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


def test_the_user_is_the_caller(seen: dict[str, Any]) -> None:
    assert (seen["uid"], seen["euid"], seen["gid"]) == (seen["user"], seen["user"], seen["group"])
    assert seen["groups"] <= 1


@pytest.mark.parametrize("kind", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_no_capability_is_left(seen: dict[str, Any], kind: str) -> None:
    assert seen[kind] == 0


def test_no_new_privileges_and_a_filter_of_system_calls(seen: dict[str, Any]) -> None:
    assert (seen["NoNewPrivs"], seen["Seccomp"]) == (1, 2)


def test_an_init_is_process_1(seen: dict[str, Any]) -> None:
    assert seen["init"] == 1


def test_there_is_no_network(seen: dict[str, Any]) -> None:
    assert seen["interfaces"] == 0
    assert seen["unreachable"] == 1


def test_memory_and_processes_are_limited(seen: dict[str, Any]) -> None:
    assert (seen["memory"], seen.get("swap", 0), seen["pids"]) == (MEMORY, 0, 1024)


@pytest.mark.parametrize("place", READ_ONLY)
def test_all_but_two_folders_are_read_only(seen: dict[str, Any], place: str) -> None:
    assert seen[f"write_{place}"] == errno.EROFS


@pytest.mark.parametrize("place", ["out", "scratch"])
def test_two_folders_can_be_written(seen: dict[str, Any], place: str) -> None:
    assert seen[f"write_{place}"] == 0


def test_programs_run_from_the_home_folder(seen: dict[str, Any]) -> None:
    assert (seen["home_runs"], seen["home_in_memory"]) == (1, 1)
    assert seen["user_named"] == 1


def test_neither_the_engine_s_socket_nor_disks_are_there(seen: dict[str, Any]) -> None:
    assert (seen["sockets"], seen["devices"]) == (0, 0)


def test_what_the_image_sets_to_change_numbers_is_unset_and_told(seen: dict[str, Any]) -> None:
    assert seen["tf32_overrides"] == 0
    assert seen["unset"] == {"NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    assert seen["environment"] == {"ORT_DISABLE_TELEMETRY": "1"}


def test_the_record_names_the_image_by_its_id(seen: dict[str, Any]) -> None:
    assert seen["digests"]["image"].startswith("sha256:")
    assert seen["observed"]["numpy"] == "1.24.2"
