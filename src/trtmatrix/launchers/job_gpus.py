"""Which of a node's GPUs a Slurm job has, and what stands for the node in records. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from trtmatrix.suite.gpus import Gpu

JOB, CLUSTER = "SLURM_JOB_ID", "SLURM_CLUSTER_NAME"


def host_hash(node: str) -> str:
    """Return what stands for a node in records: the first 16 hexadecimal digits of its name's SHA-256.

    Records are published, and a site's names are its own. It tells nodes apart; a name that can be guessed
    can be recognised by it: ``printf %s NODE | sha256sum | cut -c1-16``.
    """
    return sha256(node.encode()).hexdigest()[:16]


def job_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str], node: str) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that the job of ``environment`` has, with their node's hash, or none and why.

    ``gpus``: all that NVML shows, in its order. Where the site confines jobs to their devices
    (ConstrainDevices in cgroup.conf) NVML shows the job's alone, and numbers them from 0. Elsewhere
    SLURM_JOB_GPUS has the places of the job's GPUs among the node's. gres.conf must list them in the order
    of the bus, which is NVML's (seen with Slurm 22.05.8: src/plugins/gres/common/gres_common.c).
    """
    if (part := environment.get("CUDA_VISIBLE_DEVICES", "")).startswith("MIG-"):
        return (), f"Slurm gave this job a part of a GPU ({part}), and only whole GPUs are used"
    numbers = _numbers(environment.get("SLURM_JOB_GPUS") or environment.get("SLURM_STEP_GPUS") or "")
    shown = {gpu.index: gpu for gpu in gpus}
    if len(gpus) == 1 or len(gpus) == len(numbers):
        chosen = list(gpus)
    elif not numbers:
        return (), (
            f"this node has {len(gpus)} GPUs and SLURM_JOB_GPUS does not say which of them the job has: "
            "does the job ask for one (--gres=gpu:1)?"
        )
    elif absent := [number for number in numbers if number not in shown]:
        known = ", ".join(str(index) for index in shown)
        return (), f"SLURM_JOB_GPUS names GPU {absent[0]}, and NVML here knows {known}"
    else:
        chosen = [shown[number] for number in numbers]
    return tuple(replace(gpu, host=host_hash(node)) for gpu in chosen), ""


def _numbers(text: str) -> list[int]:
    """Read ``0,2-3`` as Slurm writes lists; what is no list of numbers gives none."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found
