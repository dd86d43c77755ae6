"""The GPUs of this host through NVML, and the GPU names that a user may type."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import trtmatrix
from trtmatrix.common.errors import UsageError
from trtmatrix.launchers.job_gpus import JOB, job_gpus
from trtmatrix.suite.gpus import Gpu, plain_name, slug_of


@dataclass(frozen=True, kw_only=True)
class GpuScan:
    """The GPUs that were found, or why none was."""

    gpus: tuple[Gpu, ...]
    reason: str = ""


NVML = "libnvidia-ml.so.1"
"""The driver's library, as its bindings look for it."""


def find_gpus() -> GpuScan:
    """Ask NVML for every GPU of this host, or of this Slurm job. No driver is no error: the scan says so."""
    try:
        ctypes.CDLL(NVML)  # the bindings are slow to import: not where they could only say the same
    except OSError:
        return GpuScan(gpus=(), reason="NVML: NVML Shared Library Not Found")
    try:
        import pynvml
    except ImportError as error:
        return GpuScan(gpus=(), reason=f"NVML's bindings are missing: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuScan(gpus=(), reason=f"NVML: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        gpus = tuple(_describe(pynvml, index) for index in range(count))
    except pynvml.NVMLError as error:
        return GpuScan(gpus=(), reason=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()
    if gpus and os.environ.get(JOB):
        gpus, reason = job_gpus(gpus, os.environ, os.environ.get("SLURMD_NODENAME") or socket.gethostname())
        return GpuScan(gpus=gpus, reason=reason)
    return GpuScan(gpus=gpus, reason="" if gpus else "NVML finds no GPU")


def _describe(nvml: Any, index: int) -> Gpu:  # noqa: ANN401 - the pynvml module
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    gigabytes = round(nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30)
    variant = f"{gigabytes} GiB" + (", MIG on" if _mig(nvml, handle) else "")
    known = known_gpu(name)
    return Gpu(
        slug=slug_of(name), name=name, compute=f"{major}.{minor}", variant=variant,
        datacenter=bool(known and known.datacenter), driver=nvml.nvmlSystemGetDriverVersion(),
        uuid=uuid, uuid_hash=sha256(uuid.encode()).hexdigest(), index=index,
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
    )  # fmt: skip


def _mig(nvml: Any, handle: Any) -> bool:  # noqa: ANN401 - the pynvml module
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def clocks(gpu: Gpu) -> dict[str, Any]:
    """Return SM and memory clock in MHz, and power limit in W, of a GPU at this moment."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        return {
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
        }
    except pynvml.NVMLError as error:
        return {"unknown": str(error)}


def named_gpus(names: Sequence[str], here: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs that the user named, each once: those of this host, else from the table.

    :class:`UsageError` where a name is neither, with the nearest ones.
    """
    chosen: list[Gpu] = []
    for name in names:
        wanted = plain_name(name)
        present = [gpu for gpu in here if plain_name(gpu.name) == wanted or gpu.slug == name]
        known = known_gpu(name)
        if present:
            chosen += present[:1]
        elif known is not None:
            chosen.append(known)
        else:
            raise UsageError(f"--gpu {name}: not known; {_suggest(name, here)}")
    return tuple({gpu.slug: gpu for gpu in chosen}.values())


def _suggest(name: str, here: Sequence[Gpu]) -> str:
    """Return the names nearest to one that is not known, or how names look."""
    import difflib

    names = {plain_name(known): known for known in [gpu["name"] for gpu in _table()]}
    names |= {plain_name(gpu.name): gpu.name for gpu in here}
    near = difflib.get_close_matches(plain_name(name), list(names), n=3, cutoff=0.4)
    if near:
        return f"perhaps you meant {', '.join(names[plain] for plain in near)}"
    return "write it as nvidia-smi does, such as L4, H100 or 'RTX 6000 Ada'"


@cache
def _table() -> list[dict[str, Any]]:
    import yaml

    text = Path(trtmatrix.__file__).with_name("gpus.yaml").read_text(encoding="utf-8")
    gpus: list[dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["gpus"]  # noqa: S506 - safe ones
    return gpus


def known_gpu(name: str) -> Gpu | None:
    """Return what the table says of a name as a user or as NVML writes it, None where it has none.

    NVML adds maker, memory and form factor: ``NVIDIA H100 80GB HBM3``, ``Tesla T4``.
    """
    wanted = plain_name(name)
    found = next((gpu for gpu in _table() if plain_name(gpu["name"]) == wanted), None)
    if found is None:
        return None
    return Gpu(
        slug=slug_of(found["name"]), name=f"NVIDIA {found['name']}", compute=found["compute"],
        datacenter=found["datacenter"],
    )  # fmt: skip
