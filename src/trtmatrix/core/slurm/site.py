"""What a site says of itself (slurm.yaml), as types: where its GPUs are, what its nodes run, its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trtmatrix.core.plan import GpuAccess


class NodeRuntime(str, Enum):
    """What starts a container on a node."""

    PYXIS = "pyxis"
    APPTAINER = "apptainer"
    DOCKER = "docker"


@dataclass(frozen=True, kw_only=True)
class SiteGpu:
    """How one model of GPU is asked for: ``gres`` is ``gpu:TYPE:1`` in the site's own words.

    ``name``: as ``nvidia-smi -L`` writes it. ``options``: further words for sbatch.
    """

    name: str
    gres: str
    constraint: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SiteLimits:
    """Limits of the site's jobs.

    ``minutes``: the longest ``--time`` of one task; ``running``: tasks of one array at once (its ``%K``);
    ``tasks``: tasks of one array; ``cpus``: of one task; ``memory``: of one task, in bytes;
    ``import_minutes``: the ``--time`` of an import.
    """

    minutes: int = 60
    running: int = 8
    tasks: int = 64
    cpus: int = 4
    memory: int = 36 << 30
    import_minutes: int = 120


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster. ``shared``: a folder that every node and this host see under the same absolute path.

    ``access``, ``driver_folder``: how a container of Docker gets its GPU. ``setup``: shell lines at the start
    of each job (``module load apptainer``). ``scratch``: a folder of the node's own disk for a job's files,
    in which variables of the job may stand; empty: the job's TMPDIR. ``images``: for a version by name, the
    image that stands for matrix.yaml's: a reference, or a file (``.sqsh``, ``.sif``, ``.tar``) that every
    node sees. ``options``: further words for each sbatch; ``import_options``: for that of an import, which
    asks for no GPU.
    """

    shared: str
    runtime: NodeRuntime
    gpus: tuple[SiteGpu, ...]
    access: GpuAccess = GpuAccess.TOOLKIT
    driver_folder: str = ""
    limits: SiteLimits = field(default_factory=SiteLimits)
    setup: tuple[str, ...] = ()
    scratch: str = ""
    images: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    import_options: tuple[str, ...] = ()
    file: str = ""
