"""What a container is given and what not, as plain data that can be printed without Docker."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.launchers.job_gpus import CLUSTER, JOB
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.matrix import Version
from trtmatrix.suite.plan import Engine, GpuAccess, is_driver_enough

ROOT = "/opt/trtmatrix"
"""Where our folders are mounted inside."""

SCRATCH = "/tmp"  # noqa: S108 - inside the container, a file system of its own
COMPAT = "/usr/local/cuda/compat/lib.real:/usr/local/cuda/compat"
"""Where NVIDIA's images keep a driver library of their own, for hosts whose driver is older."""

LOG_DRIVERS = {"docker": "json-file", "podman": "k8s-file"}
PROJECT_LABEL = "io.trtmatrix"
OWNER_LABEL = "io.trtmatrix.owner"
JOB_LABEL, CLUSTER_LABEL = "io.trtmatrix.slurm", "io.trtmatrix.cluster"
"""The Slurm job that started a container, and its cluster: ``docker/slurm/epilog`` removes by them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a container, in bytes but for ``processes``. ``log`` keeps the log's last part."""

    memory: int = 32 << 30
    scratch: int = 8 << 30
    output: int = 2 << 30
    file: int = 8 << 30
    log: int = 1 << 20
    processes: int = 1024


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Host folders: four are mounted read-only, ``out`` is the one that can be written."""

    probe: str
    repros: str
    cases: str
    job: str
    out: str


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Everything that is asked of the engine for one container."""

    image: str
    name: str
    command: tuple[str, ...]
    user: str
    environment: Mapping[str, str]
    read_only_mounts: Mapping[str, str]
    out: tuple[str, str]
    labels: Mapping[str, str]
    limits: Limits
    engine: str = "docker"
    ulimits: Mapping[str, int] = field(default_factory=dict)
    gpu_device_ids: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    devices: tuple[str, ...] = field(default=())


NO_LABELS: Mapping[str, str] = {}


def job_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which a node's epilog finds what a Slurm job started; none outside of a job."""
    if not environment.get(JOB):
        return {}
    cluster = environment.get(CLUSTER)
    return {JOB_LABEL: environment[JOB], **({CLUSTER_LABEL: cluster} if cluster else {})}


def make_container_spec(
    *,
    version: Version,
    image: str,
    gpu: Gpu,
    engine: Engine,
    folders: Folders,
    limits: Limits,
    name: str,
    owner: str,
    user: str,
    labels: Mapping[str, str] = NO_LABELS,
) -> ContainerSpec:
    """Describe the container for one version on one GPU; the GPU is given in the engine's way.

    Where the engine is the caller's own, root inside is the caller on the host, and other users are nobody
    there: https://docs.docker.com/engine/security/rootless/. ``labels``: further ones.
    """
    mounts = {
        folders.probe: f"{ROOT}/trtprobe", folders.repros: f"{ROOT}/repros",
        folders.cases: f"{ROOT}/cases", folders.job: f"{ROOT}/job",
    }  # fmt: skip
    access = give_gpu(gpu, engine)
    mounts |= access.mounts
    labels = {PROJECT_LABEL: "1", OWNER_LABEL: owner, f"{PROJECT_LABEL}.version": version.name, **labels}
    return ContainerSpec(
        image=image, name=name, command=probe_command("python3", ROOT),
        user="0:0" if engine.rootless else user, engine=engine.command,
        ulimits={**engine.ulimits, "fsize": limits.file},
        environment={**container_environment(toolkit=bool(access.ids)), **_compat(version, gpu)},
        read_only_mounts=mounts,
        out=(folders.out, f"{ROOT}/out"), labels=labels, limits=limits,
        gpu_device_ids=access.ids, cdi_devices=access.cdi, devices=access.nodes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Access:
    """How one container gets its GPU: the toolkit's ids, CDI's names, or device nodes and what they need."""

    ids: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The options of ``docker run``, but for the mounts."""
        devices = [f"--device={device}" for device in (*self.cdi, *self.nodes)]
        return [*(f"--gpus=device={device}" for device in self.ids), *devices]


def give_gpu(gpu: Gpu, engine: Engine) -> Access:
    """Return how a container gets a GPU of this host in the engine's way; nothing where it is not here.

    On a site's node it is the job's script that gives it: only there is known which board the job has.
    """
    if gpu.index is None:
        return Access()
    match engine.gpu_access:
        case GpuAccess.TOOLKIT:
            return Access(ids=(gpu.uuid or str(gpu.index),))
        case GpuAccess.CDI:
            return Access(cdi=(f"nvidia.com/gpu={gpu.index}",))
        case GpuAccess.NODES:
            minor = gpu.index if gpu.minor is None else gpu.minor
            nodes = (f"/dev/nvidia{minor}", "/dev/nvidiactl", "/dev/nvidia-uvm")
            driver = engine.driver_folder
            return Access(nodes=nodes, mounts={} if driver is None else {driver: "/usr/local/nvidia"})
        case GpuAccess.RUNTIME | None:
            return Access()


def probe_command(python: str, root: str) -> tuple[str, ...]:
    """Return the probe's command line over folders below ``root``."""
    options = [f"--{name}={root}/{name}" for name in ("job", "cases", "repros", "out")]
    return (python, "-B", f"{root}/trtprobe", "supervise", *options)


def container_environment(*, toolkit: bool) -> dict[str, str]:
    """Return HOME, USER and caches in scratch; the probe unsets what changes numerics.

    NVIDIA's images ask for all GPUs by NVIDIA_VISIBLE_DEVICES, which an engine whose default runtime
    is NVIDIA's obeys: unless the toolkit itself is asked for a GPU it is told to give none.
    """
    home = f"{SCRATCH}/home"
    nothing = {} if toolkit else {"NVIDIA_VISIBLE_DEVICES": "void"}
    return {
        **nothing,
        "HOME": home, "USER": "trtmatrix", "LOGNAME": "trtmatrix", "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": f"{home}/.cache", "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "TRITON_CACHE_DIR": f"{home}/triton", "CUDA_CACHE_PATH": f"{home}/cuda",
        "ORT_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def _compat(version: Version, gpu: Gpu) -> dict[str, str]:
    """Have the probe put the image's driver library first where the host's alone is too old for the image.

    Whose driver a job meets on a site's nodes is known there alone: its script decides.
    """
    needed = (
        gpu.index is not None and version.driver is not None and not is_driver_enough(version.driver, gpu)
    )
    return {"TRTMATRIX_CUDA_COMPAT": COMPAT} if needed else {}


def docker_command(spec: ContainerSpec) -> str:
    """Return the ``docker run`` or ``podman run`` line that starts the same container by hand.

    Podman keeps logs in a form of its own: https://docs.podman.io/en/latest/markdown/podman-run.1.html.
    """
    words = [spec.engine, "run", *isolation_words(), f"--user={spec.user}", f"--name={spec.name}"]
    words += limit_words(spec.limits, spec.ulimits, LOG_DRIVERS[spec.engine])
    words += [f"--label={key}={value}" for key, value in spec.labels.items()]
    words += [f"--env={key}={value}" for key, value in spec.environment.items()]
    words += [f"--volume={host}:{inside}:ro" for host, inside in spec.read_only_mounts.items()]
    words += [f"--volume={spec.out[0]}:{spec.out[1]}"]
    words += Access(ids=spec.gpu_device_ids, cdi=spec.cdi_devices, nodes=spec.devices).words
    words += [f"--entrypoint={spec.command[0]}", spec.image, *spec.command[1:]]
    return shlex.join(words)


def isolation_words() -> list[str]:
    """Return the options that keep a container from the host and the network."""
    words = ["--init", "--network=none", "--read-only", "--cap-drop=ALL"]
    return [*words, "--security-opt=no-new-privileges"]


def limit_words(limits: Limits, ulimits: Mapping[str, int], log_driver: str) -> list[str]:
    """Return the options for a container's limits, its log and its scratch."""
    words = [f"--memory={limits.memory}", f"--memory-swap={limits.memory}"]
    words += [f"--pids-limit={limits.processes}"]
    words += [f"--ulimit={name}={most}" for name, most in ulimits.items()]
    words += [f"--log-driver={log_driver}", f"--log-opt=max-size={limits.log}"]
    return [*words, f"--workdir={SCRATCH}", f"--tmpfs={SCRATCH}:{tmpfs_options(limits)}"]


def tmpfs_options(limits: Limits) -> str:
    """Return the options of the scratch file system: executable, since some libraries compile."""
    return f"rw,exec,nosuid,nodev,size={limits.scratch},mode=1777"
