"""The GPUs of this host or Slurm job through NVML, and the GPU names that a user may type."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import trtmatrix
from trtmatrix.common.errors import UsageError
from trtmatrix.suite.model import Gpu, plain_name, slug_of

NVML = "libnvidia-ml.so.1"  # the driver's library, as its bindings look for it
VISIBLE = "CUDA_VISIBLE_DEVICES"
SLURM_JOB, SLURM_CLUSTER = "SLURM_JOB_ID", "SLURM_CLUSTER_NAME"


@dataclass(frozen=True, kw_only=True)
class GpuScan:
    """The GPUs that were found, or why none was."""

    gpus: tuple[Gpu, ...]
    reason: str = ""


def find_gpus() -> GpuScan:
    """Ask NVML for every GPU of this host, or of this Slurm job. No driver is no error: the scan says so."""
    try:
        ctypes.CDLL(NVML)  # the bindings are slow to import: not where they could only say the same
    except OSError:
        return GpuScan(gpus=(), reason="NVML: NVML Shared Library Not Found")
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            gpus = tuple(_describe(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return GpuScan(gpus=(), reason=f"NVML: {error}")
    reason = "NVML finds no GPU"
    if gpus and os.environ.get(SLURM_JOB):
        gpus, reason = job_gpus(gpus, os.environ, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    elif gpus and (chosen := os.environ.get(VISIBLE)) is not None:
        gpus, reason = visible_gpus(gpus, chosen), f"{VISIBLE}={chosen} leaves no GPU of this host"
    return GpuScan(gpus=gpus, reason="" if gpus else reason)


def visible_gpus(gpus: Sequence[Gpu], chosen: str) -> tuple[Gpu, ...]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES names, in NVML's order.

    ``chosen``: numbers as nvidia-smi has them, or the beginnings of UUIDs. As in CUDA, what follows a name
    that no GPU has is ignored (CUDA C++ Programming Guide, "CUDA Environment Variables").
    """
    named = set[int | None]()
    for part in map(str.strip, chosen.split(",")):
        found = [gpu.index for gpu in gpus if part == str(gpu.index) or (gpu.uuid or "").startswith(part)]
        if not part or len(found) != 1:
            break
        named.update(found)
    return tuple(gpu for gpu in gpus if gpu.index in named)


def _describe(nvml: Any, index: int) -> Gpu:  # noqa: ANN401 - the pynvml module
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    variant = f"{round(nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)} GiB"
    with contextlib.suppress(nvml.NVMLError):  # of a GPU that cannot be divided
        variant += ", MIG on" if nvml.nvmlDeviceGetMigMode(handle)[0] else ""
    known = known_gpu(name)
    return Gpu(
        slug=slug_of(name), name=name, compute=f"{major}.{minor}", variant=variant,
        datacenter=bool(known and known.datacenter), driver=nvml.nvmlSystemGetDriverVersion(),
        uuid=uuid, uuid_hash=sha256(uuid.encode()).hexdigest(), index=index,
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
    )  # fmt: skip


def clocks(gpu: Gpu) -> dict[str, Any]:
    """Return SM and memory clock in MHz, and power limit in W, of a GPU at this moment."""
    import pynvml

    try:
        pynvml.nvmlInit()  # it stays open: to open it takes far longer than to ask
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        return {
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
        }
    except pynvml.NVMLError as error:
        return {"unknown": str(error)}


def job_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str], node: str) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that the job of ``environment`` has, with their node's hash, or none and why.

    ``gpus``: all that NVML shows, in its order. Where the site confines jobs to their devices
    (ConstrainDevices in cgroup.conf) NVML shows the job's alone, and numbers them from 0. Elsewhere
    SLURM_JOB_GPUS has the places of the job's GPUs among the node's. gres.conf must list them in the order
    of the bus, which is NVML's (seen with Slurm 22.05.8: src/plugins/gres/common/gres_common.c).

    Records are published, and a site's names are its own: the first 16 hexadecimal digits of the SHA-256 of
    the node's name stand for it. They tell nodes apart; who guesses a name can recognise it.
    """
    if (part := environment.get(VISIBLE, "")).startswith("MIG-"):
        return (), f"Slurm gave this job a part of a GPU ({part}), and only whole GPUs are used"
    listed = environment.get("SLURM_JOB_GPUS") or environment.get("SLURM_STEP_GPUS") or ""
    numbers = [
        number
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed)  # 0,2-3
        for number in range(int(first), int(last or first) + 1)
    ]
    chosen = [gpu for gpu in gpus if gpu.index in numbers]
    if len(gpus) in {1, len(numbers)}:
        chosen = list(gpus)
    elif not numbers or len(chosen) != len(numbers):
        known = ", ".join(str(gpu.index) for gpu in gpus)
        return (), (
            f"this node has GPUs {known} and SLURM_JOB_GPUS ({listed!r}) does not say which of them the job "
            "has: does the job ask for one (--gres=gpu:1)?"
        )
    host = sha256(node.encode()).hexdigest()[:16]
    return tuple(replace(gpu, host=host) for gpu in chosen), ""


def named_gpus(names: Sequence[str], here: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs that the user named, each once: those of this host, else from the table.

    :class:`UsageError` where a name is neither, with the nearest ones.
    """
    chosen: list[Gpu] = []
    for name in names:
        wanted = plain_name(name)
        present = next((gpu for gpu in here if plain_name(gpu.name) == wanted or gpu.slug == name), None)
        gpu = present or known_gpu(name)
        if gpu is None:
            import difflib

            known = {plain: gpu.name.removeprefix("NVIDIA ") for plain, gpu in _table().items()}
            known |= {plain_name(gpu.name): gpu.name for gpu in here}
            advice = "write it as nvidia-smi does, such as L4, H100 or 'RTX 6000 Ada'"
            if near := difflib.get_close_matches(wanted, known, n=3, cutoff=0.4):
                advice = f"perhaps you meant {', '.join(known[plain] for plain in near)}"
            raise UsageError(f"--gpu {name}: not known; {advice}")
        chosen.append(gpu)
    return tuple({gpu.slug: gpu for gpu in chosen}.values())


@cache
def _table() -> dict[str, Gpu]:
    import yaml

    text = Path(trtmatrix.__file__).with_name("gpus.yaml").read_text(encoding="utf-8")
    gpus = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["gpus"]  # noqa: S506 - safe ones
    return {
        plain_name(gpu["name"]): Gpu(**{**gpu, "slug": slug_of(gpu["name"]), "name": f"NVIDIA {gpu['name']}"})
        for gpu in gpus
    }


def known_gpu(name: str) -> Gpu | None:
    """Return what the table says of a name as a user or as NVML writes it, None where it has none.

    NVML adds maker, memory and form factor: ``NVIDIA H100 80GB HBM3``, ``Tesla T4``.
    """
    return _table().get(plain_name(name))
