"""Sites, tasks and imports that scripts for nodes are made of in tests."""

from __future__ import annotations

from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm.scripts import ImportScript, TaskScript
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu

DIGEST = "sha256:" + "ab" * 32


def site_of(runtime: NodeRuntime, access: GpuAccess = GpuAccess.TOOLKIT, shared: str = "/shared/lab") -> Site:
    setup = () if runtime is NodeRuntime.DOCKER else (f"module load {runtime.value}",)
    return Site(
        shared=shared, runtime=runtime, gpus=(), access=access, setup=setup, driver_folder="/usr/nvidia"
    )


def task_of(site: Site) -> TaskScript:
    return TaskScript(
        site=site, gpu=SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"), slug="nvidia-h200", key="5f1c2a",
        version="10.7.0", image="9d0e", suite="77aa", minutes=40, driver_least="550.54.14",
    )  # fmt: skip


def import_of(site: Site) -> ImportScript:
    reference = f"nvcr.io/nvidia/tensorrt:24.12-py3@{DIGEST}"
    return ImportScript(site=site, key="9d0e", reference=reference, ids=(DIGEST,), config=DIGEST)
