"""GPU names as users and NVML write them, and which GPUs a Slurm job has."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from trtmatrix.common.errors import UsageError
from trtmatrix.launchers.child_containers import count_oom_kills
from trtmatrix.launchers.gpu import job_gpus, named_gpus, visible_gpus
from trtmatrix.suite.model import PART, Gpu

HERE = (
    Gpu(slug="tesla-t4", name="Tesla T4", compute="7.5", datacenter=True, driver="535.1", index=0),
    Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9", driver="535.1", index=1),
    Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9", driver="535.1", index=2),
)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Tesla T4", ("NVIDIA T4", "7.5", True)), ("NVIDIA H100 80GB HBM3", ("NVIDIA H100", "9.0", True)),
        ("NVIDIA RTX 6000 Ada Generation", ("NVIDIA RTX 6000 Ada", "8.9", False)),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", ("NVIDIA A100", "8.0", True)),
        ("RTX 4070 Ti SUPER", ("NVIDIA GeForce RTX 4070 Ti SUPER", "8.9", False)),
    ],
)  # fmt: skip
def test_a_name_is_known_as_nvml_and_as_users_write_it(name: str, known: tuple[str, str, bool]) -> None:
    (gpu,) = named_gpus([name], [])
    assert (gpu.name, gpu.compute, gpu.datacenter, gpu.present, gpu.driver) == (*known, False, None)
    assert PART.fullmatch(gpu.slug)


@pytest.mark.parametrize(
    ("chosen", "indices"),
    [("2", [2]), ("2,0", [0, 2]), ("GPU-b", [1]), ("1,7,2", [1]), ("", []), ("GPU-", []), ("-1,0", [])],
)
def test_cuda_visible_devices_leaves_the_gpus_that_it_names(chosen: str, indices: list[int]) -> None:
    boards = [replace(gpu, uuid=f"GPU-{letter}0") for gpu, letter in zip(HERE, "abc", strict=True)]
    assert [gpu.index for gpu in visible_gpus(boards, chosen)] == indices


def test_a_gpu_of_this_host_comes_before_the_table_and_of_several_alike_the_first() -> None:
    for name in ("T4", "Tesla T4", "tesla-t4", "NVIDIA T4", "t4"):
        assert named_gpus([name], HERE) == (HERE[0],)
    assert named_gpus(["L4", "NVIDIA L4", "nvidia-l4", "T4"], HERE) == (HERE[1], HERE[0])
    assert len(named_gpus(["H100", "NVIDIA H100 80GB HBM3"], HERE)) == 1
    assert named_gpus([], HERE) == ()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("NVIDIA GeForce RTX 3090 Laptop GPU", "GeForce RTX 3090"), ("?!", "write it as nvidia-smi does")],
)
def test_a_name_that_is_not_known_gets_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_gpus([name], [])
    assert suggestion in str(caught.value).partition("not known; ")[2]


NODE = tuple(Gpu(slug="nvidia-l4", name="NVIDIA L4", index=n, uuid=f"GPU-{n}") for n in range(4))


@pytest.mark.parametrize(
    ("shown", "environment", "chosen", "reason"),
    [
        (1, {}, [0], ""),
        (1, {"SLURM_JOB_GPUS": "3"}, [0], ""),  # confined to its own device, which NVML numbers from 0
        (4, {"SLURM_JOB_GPUS": "2"}, [2], ""),
        (4, {"SLURM_STEP_GPUS": "1"}, [1], ""),
        (4, {"SLURM_JOB_GPUS": "0,2-3"}, [0, 2, 3], ""),
        (2, {"SLURM_JOB_GPUS": "6,7"}, [0, 1], ""),
        (4, {}, [], "does not say which of them"),
        (4, {"SLURM_JOB_GPUS": "5"}, [], "GPUs 0, 1, 2, 3 and SLURM_JOB_GPUS ('5') does not say"),
        (4, {"SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "MIG-5"}, [], "a part of a GPU"),
    ],
)
def test_a_job_has_its_own_gpus_or_none_where_they_are_not_known(
    shown: int, environment: dict[str, str], chosen: list[int], reason: str
) -> None:
    gpus, told = job_gpus(NODE[:shown], environment, "node1")
    assert ([gpu.index for gpu in gpus], bool(told)) == (chosen, bool(reason))
    assert reason in told
    assert {gpu.host for gpu in gpus} <= {sha256(b"node1").hexdigest()[:16]}


def test_kills_for_memory_are_counted_in_the_cgroup_of_the_job_alone(tmp_path: Path) -> None:
    job, session = "system.slice/slurmstepd.scope/job_7", "user.slice/session-1.scope"
    for place, own, kills in ((job, f"{job}/step_batch/user/task_0", 2), (session, session, 0)):
        (tmp_path / "own").write_text(f"0::/{own}")
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "memory.events").write_text("oom 3\noom_kill 2\n")
        assert count_oom_kills(tmp_path / "own", tmp_path) == kills
