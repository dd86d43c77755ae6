"""What a container is given and what not, as plain data that can be printed without Docker."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import own_identity, probe_folder
from trtmatrix.launchers.gpu import SLURM_CLUSTER, SLURM_JOB
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Launch, is_driver_enough
from trtprobe.operators.mps import PIPES
from trtprobe.plans import ALL as ALL_PLANS

ROOT = "/opt/trtmatrix"  # where our folders are mounted inside
SCRATCH = "/tmp"  # noqa: S108 - inside the container, a file system of its own
HOME = f"{SCRATCH}/home"
COMPAT = "/usr/local/cuda/compat/lib.real:/usr/local/cuda/compat"
"""Where NVIDIA's images keep a driver library of their own, for hosts whose driver is older."""
LOG_DRIVERS = {"docker": "json-file", "podman": "k8s-file"}
"""Podman keeps logs in a form of its own: https://docs.podman.io/en/latest/markdown/podman-run.1.html."""
JOB = Path("JOB")  # what stands for a job's own folder where nothing is started
PROJECT_LABEL = "io.trtmatrix"
OWNER_LABEL = "io.trtmatrix.owner"
JOB_LABELS = {SLURM_JOB: "io.trtmatrix.slurm", SLURM_CLUSTER: "io.trtmatrix.cluster"}
"""The Slurm job that started a container, and its cluster: ``docker/slurm/epilog`` removes by them."""

ALONE = ("--init", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
"""Options of ``docker run`` that keep a container from the host and the network."""

ENVIRONMENT = {
    "HOME": HOME, "USER": "trtmatrix", "LOGNAME": "trtmatrix", "TMPDIR": SCRATCH,
    "XDG_CACHE_HOME": f"{HOME}/.cache", "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/inductor",
    "TRITON_CACHE_DIR": f"{HOME}/triton", "CUDA_CACHE_PATH": f"{HOME}/cuda",
    "ORT_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
"""Home and caches lie in scratch; the probe unsets what changes numerics."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a container, in bytes but for ``processes``. ``log`` keeps the log's last part."""

    memory: int = 32 << 30
    scratch: int = 8 << 30
    output: int = 2 << 30
    file: int = 8 << 30
    log: int = 1 << 20
    processes: int = 1024

    @property
    def tmpfs(self) -> str:
        """The options of the scratch file system: executable, since some libraries compile."""
        return f"rw,exec,nosuid,nodev,size={self.scratch},mode=1777"

    @property
    def work(self) -> str:
        """The options of the file system of cells' own folders, and of the plans that they share.

        No cell can fill more than its limit and what room the plans leave.
        """
        return f"rw,noexec,nosuid,nodev,size={self.output + ALL_PLANS + (1 << 20)},mode=1777"


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """How one container gets its GPU: the toolkit's ids, CDI's names, or device nodes and what they need."""

    ids: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    mps: bool = False
    """Whether processes of several containers share it by the host's MPS daemon, as they do on the host."""

    @property
    def command_line(self) -> list[str]:
        """The options of ``docker run``, but for the mounts."""
        gpus = [f"--gpus=device={device}" for device in self.ids]
        shared = ["--ipc=host"] if self.mps else []
        return [*gpus, *(f"--device={device}" for device in (*self.cdi, *self.nodes)), *shared]


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Everything that is asked of the engine for one container; ``mounts`` are read-only.

    ``out``: where cells have their folders. Inside it is a file system in memory, of limited size; for an
    engine that cannot make one, the folder of the host's that is named first.
    """

    image: str
    name: str
    command: tuple[str, ...]
    user: str
    environment: Mapping[str, str]
    mounts: Mapping[str, str]
    out: tuple[str, str]
    labels: Mapping[str, str]
    limits: Limits
    engine: str
    ulimits: Mapping[str, int]
    gpu: GpuOptions


def own_labels() -> dict[str, str]:
    """Return what every container of ours is known by: the project, this process, and its Slurm job."""
    in_job = os.environ.get(SLURM_JOB)
    job = {label: text for name, label in JOB_LABELS.items() if in_job and (text := os.environ.get(name))}
    return {PROJECT_LABEL: "1", OWNER_LABEL: own_identity(), **job}


def image_origin(launch: Launch) -> ImageOrigin:
    """Return the image that a launch runs in; :class:`MachineryError` where its version has none."""
    if launch.image is None:
        raise MachineryError(f"{launch.version.name} is no container's version")
    return launch.image


@dataclass(frozen=True, kw_only=True)
class Containers:
    """What all containers of a run are made with: the engine, what they are given, their limits.

    ``workers``: how many may share a GPU, which they then do by the host's MPS daemon where one runs. What
    has a GPU to itself does not: by MPS all processes share one pool of work queues, and a control that needs
    two streams which do not wait for each other came out right. Source: https://docs.nvidia.com/deploy/mps/
    """

    engine: Engine
    cache: Path
    repros: Path
    limits: Limits
    workers: int = 1

    def spec(self, launch: Launch, image: str, folder: Path = JOB) -> ContainerSpec:
        """Describe the container of a launch over a job's ``folder``.

        Where the engine is the caller's own, root inside is the caller on the host, and other users are
        nobody there: https://docs.docker.com/engine/security/rootless/.
        """
        version, gpu, engine = launch.version, launch.gpu, self.engine
        environment, options = dict(ENVIRONMENT), give_gpu(gpu, engine)
        alone = self.workers == 1 or (launch.cells and all(cell.is_exclusive for cell in launch.cells))
        pipes = os.environ.get(PIPES, "") if gpu.index is not None and not alone else ""
        if engine.is_daemon and re.fullmatch("/[^:]+", pipes) and Path(pipes).is_dir():
            options = replace(options, mps=True, mounts={**options.mounts, pipes: pipes})
            environment[PIPES] = pipes
        if not options.ids:
            # NVIDIA's images ask for all GPUs, which an engine whose default runtime is NVIDIA's obeys.
            environment = {"NVIDIA_VISIBLE_DEVICES": "void", **environment}
        if gpu.index is not None and version.driver is not None and not is_driver_enough(version.driver, gpu):
            environment["TRTMATRIX_CUDA_COMPAT"] = COMPAT  # the probe puts the image's driver library first
        labels = {**own_labels(), f"{PROJECT_LABEL}.version": version.name}
        if folder == JOB:
            labels[OWNER_LABEL] = "OWNER"
        inside = [f"--{name}={ROOT}/{name}" for name in ("job", "cases", "repros", "out")]
        return ContainerSpec(
            image=image, name=f"trtmatrix-{folder.name}", engine=engine.command,
            command=("python3", "-B", f"{ROOT}/trtprobe", "supervise", *inside),
            user="0:0" if engine.rootless else f"{os.getuid()}:{os.getgid()}",
            environment=environment, out=(str(folder / "work"), f"{ROOT}/out"),
            mounts={
                str(probe_folder()): f"{ROOT}/trtprobe", str(self.repros.resolve()): f"{ROOT}/repros",
                str((self.cache / "cases").resolve()): f"{ROOT}/cases", str(folder / "job"): f"{ROOT}/job",
                **options.mounts,
            },
            labels=labels, limits=self.limits, gpu=options,
            ulimits={**engine.ulimits, "fsize": self.limits.file},
        )  # fmt: skip


def give_gpu(gpu: Gpu, engine: Engine) -> GpuOptions:
    """Return how a container gets a GPU of this host in the engine's way; nothing where it is not here.

    On a site's node it is the job's script that gives it: only there is known which board the job has.
    """
    if gpu.index is None:
        return GpuOptions()
    match engine.gpu_access:
        case GpuAccess.TOOLKIT:
            return GpuOptions(ids=(gpu.uuid or str(gpu.index),))
        case GpuAccess.CDI:
            return GpuOptions(cdi=(f"nvidia.com/gpu={gpu.index}",))
        case GpuAccess.NODES:
            minor = gpu.index if gpu.minor is None else gpu.minor
            nodes = (f"/dev/nvidia{minor}", "/dev/nvidiactl", "/dev/nvidia-uvm")
            driver = engine.driver_folder
            return GpuOptions(nodes=nodes, mounts={} if driver is None else {driver: "/usr/local/nvidia"})
        case GpuAccess.RUNTIME | None:
            return GpuOptions()


def docker_command(spec: ContainerSpec) -> str:
    """Return the ``docker run`` or ``podman run`` line that starts the same container by hand."""
    limits = spec.limits
    words = [
        spec.engine, "run", *ALONE, f"--user={spec.user}", f"--name={spec.name}",
        f"--memory={limits.memory}", f"--memory-swap={limits.memory}", f"--pids-limit={limits.processes}",
        *(f"--ulimit={name}={most}" for name, most in spec.ulimits.items()),
        f"--log-driver={LOG_DRIVERS[spec.engine]}", f"--log-opt=max-size={limits.log}",
        f"--workdir={SCRATCH}", f"--tmpfs={SCRATCH}:{limits.tmpfs}",
        *(f"--label={key}={value}" for key, value in spec.labels.items()),
        *(f"--env={key}={value}" for key, value in spec.environment.items()),
        *(f"--volume={host}:{inside}:ro" for host, inside in spec.mounts.items()),
        f"--tmpfs={spec.out[1]}:{limits.work}",
        *spec.gpu.command_line, f"--entrypoint={spec.command[0]}", spec.image, *spec.command[1:],
    ]  # fmt: skip
    return shlex.join(words)
