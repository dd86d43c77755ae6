"""Which GPUs a Slurm job has of those that NVML shows."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from trtmatrix.launchers.child_containers import count_oom_kills
from trtmatrix.launchers.gpu import job_gpus
from trtmatrix.suite.model import Gpu

NODE = tuple(Gpu(slug="nvidia-l4", name="NVIDIA L4", index=n, uuid=f"GPU-{n}") for n in range(4))


@pytest.mark.parametrize(
    ("shown", "environment", "chosen"),
    [
        (1, {}, [0]),
        (1, {"SLURM_JOB_GPUS": "3"}, [0]),  # confined to its own device, which NVML numbers from 0
        (4, {"SLURM_JOB_GPUS": "2"}, [2]),
        (4, {"SLURM_STEP_GPUS": "1"}, [1]),
        (4, {"SLURM_JOB_GPUS": "0,2-3"}, [0, 2, 3]),
        (2, {"SLURM_JOB_GPUS": "6,7"}, [0, 1]),
    ],
)
def test_a_job_has_its_own_gpus(shown: int, environment: dict[str, str], chosen: list[int]) -> None:
    gpus, reason = job_gpus(NODE[:shown], environment, "node1")
    assert ([gpu.index for gpu in gpus], reason) == (chosen, "")
    assert {gpu.host for gpu in gpus} == {sha256(b"node1").hexdigest()[:16]}


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "does not say which of them"),
        ({"SLURM_JOB_GPUS": "5"}, "GPUs 0, 1, 2, 3 and SLURM_JOB_GPUS ('5') does not say"),
        ({"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "MIG-5"}, "a part of a GPU"),
    ],
)
def test_where_that_is_not_known_it_has_none(environment: dict[str, str], reason: str) -> None:
    gpus, told = job_gpus(NODE, environment, "node1")
    assert gpus == ()
    assert reason in told


@pytest.mark.parametrize(
    ("own", "files", "kills"),
    [
        ("0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0", {
            "system.slice/slurmstepd.scope/job_7/memory.events": "oom 3\noom_kill 2\n",
        }, 2),
        ("0::/user.slice/session-1.scope", {"user.slice/session-1.scope/memory.events": "oom_kill 9\n"}, 0),
    ],
)  # fmt: skip
def test_kills_for_memory_are_counted_in_the_cgroup_of_the_job_alone(
    tmp_path: Path, own: str, files: dict[str, str], kills: int
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert count_oom_kills(tmp_path / "own", tmp_path) == kills
