"""Containers that are children of this process: Apptainer and pyxis with enroot, with images as files.

Each image is pulled once into the cache, also by several hosts that share it. Not run by us. Apptainer (or
SingularityCE, whose options are the same): https://apptainer.org/docs/user/main/cli/apptainer_exec.html and
its appendix; pyxis, NVIDIA's plugin of srun: https://github.com/NVIDIA/pyxis/wiki/Usage (0.20); names of
images in enroot: https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.archive import digest_of
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import hold, scratch_folder, whole_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.container import SCRATCH, Containers, ContainerSpec, Limits, image_origin
from trtmatrix.launchers.gpu import SLURM_JOB
from trtmatrix.launchers.launcher import Ended, Poll, Ready, gpu_variables, run_session
from trtmatrix.suite.matrix import ImageOrigin, repository_of
from trtmatrix.suite.model import NO_GPU, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Launch

ALONE = ("--containall", "--cleanenv", "--no-home", "--no-privs", f"--pwd={SCRATCH}")
NO_NETWORK = ("--net", "--network=none")
SET_FOR_OTHERS = r"(APPTAINER|SINGULARITY)(?!\w*_(CACHEDIR|TMPDIR|CONFIGDIR|UNSQUASH|USERNS)$)\w*"
"""Options may be variables too, and APPTAINERENV_… is set inside in spite of ``--cleanenv``: what was set for
other containers is nothing for ours. What says how and where an image is opened stays."""


class Apptainer:
    """What Apptainer is told."""

    name, suffix = "Apptainer", ".sif"

    def __init__(self) -> None:
        self.program = shutil.which("apptainer") or shutil.which("singularity") or "apptainer"

    def find_trouble(self) -> tuple[str, str]:
        """Return why it cannot be used here, and what mends that; nothing where it can."""
        if shutil.which(self.program):
            return "", ""
        remedy = "module load apptainer, or install it: https://apptainer.org/docs/admin/main/"
        return "neither apptainer nor singularity is in PATH", remedy

    @property
    def version(self) -> str:
        """As it says itself."""
        return (self._ask("--version")[1].split() or ["?"])[-1]

    @cached_property
    def alone(self) -> tuple[str, ...]:
        """What keeps a container from the host; of the site's own binds, /etc/hosts is the least."""
        knows = "bind-paths" in self._ask("exec", "--help")[1]
        return (*ALONE, "--no-mount=bind-paths") if knows else ALONE

    def try_options(self, image: str, limits: Limits) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the options that this host grants its users, each tried, and a line for what it does not.

        In a Slurm job no limit is asked for: it would take the container out of the job's own cgroup.
        """
        wanted = {"the network cannot be taken away": NO_NETWORK}
        if not os.environ.get(SLURM_JOB):
            both = (f"--memory={limits.memory}", f"--pids-limit={limits.processes}")
            wanted["memory and processes cannot be limited"] = both
        granted, lacking = list[str](), list[str]()
        for lack, options in wanted.items():
            code, said = self._ask("exec", *self.alone, *granted, *options, image, "true")
            if code:
                lacking.append(f"{lack} here: {said.strip()[-200:]}")
            else:
                granted += options
        return tuple(granted), tuple(lacking)

    def command(
        self, image: str, gpu: Gpu, mounts: Sequence[str], inside: Sequence[str],
        granted: Sequence[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """Return the command line that starts a container; the image's files are read-only by default.

        ``--nv`` gives it all GPUs that the caller sees.
        """
        options = [*self.alone, *(NO_NETWORK if granted is None else granted)]
        options += ["--nv"] if gpu.index is not None else []
        return [self.program, "exec", *options, *(f"--bind={mount}" for mount in mounts), image, *inside]

    def environment(self, gpu: Gpu) -> dict[str, str]:
        """Return the caller's environment without what was set for other containers."""
        del gpu
        return {name: text for name, text in os.environ.items() if not re.fullmatch(SET_FOR_OTHERS, name)}

    def pull_commands(self, reference: str, target: str) -> Sequence[Sequence[str]]:
        """Return the command line of a pull: a digest takes the tag's place, both together are refused."""
        digest = reference.partition("@")[2]
        uri = f"{repository_of(reference)}@{digest}" if digest else reference
        return [(self.program, "pull", target, f"docker://{uri}")]

    def pull_folders(self, work: Path) -> dict[str, str]:
        """Return where layers go, unless somebody said: https://apptainer.org/docs/user/main/build_env.html."""
        makers = ("APPTAINER", "SINGULARITY")
        free = [n for n in ("CACHEDIR", "TMPDIR") if not any(os.environ.get(f"{m}_{n}") for m in makers)]
        return {f"{maker}_{name}": str(work / name) for name in free for maker in makers}

    def _ask(self, *words: str) -> tuple[int, str]:
        return run_to_end([self.program, *words], self.environment(NO_GPU), seconds=300)


STEP = ("--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--input=none")
"""A step beside others of the job: this process may be in one itself, which would keep the GPU from it."""
READ_ONLY = (
    "--container-readonly", "--no-container-mount-home", "--no-container-remap-root",
    "--no-container-entrypoint", f"--container-workdir={SCRATCH}",
)  # fmt: skip
GIVEN = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
NAMES = ("HOME", "USER", "LOGNAME", "PATH", "LANG")
"""All that srun exports is set inside: no more than what srun and enroot themselves need."""


class Pyxis:
    """What srun is told. The container is a step of our own job."""

    name, suffix, version = "pyxis", ".sqsh", "of this srun"

    def __init__(self) -> None:
        self.srun, self.enroot = shutil.which("srun") or "srun", shutil.which("enroot") or "enroot"

    @cached_property
    def help(self) -> str:
        """What ``srun --help`` says: by it newer options are known."""
        return run_to_end([self.srun, "--help"], os.environ, seconds=60)[1]

    def find_trouble(self) -> tuple[str, str]:
        """Return why it cannot be used here, and what mends that; nothing where it can."""
        if not shutil.which(self.srun):
            return "srun is not in PATH: pyxis is a plugin of Slurm's", "run on a cluster that has pyxis"
        if "--container-image" not in self.help:
            remedy = "ask the site for pyxis (https://github.com/NVIDIA/pyxis), or try --engine apptainer"
            return "srun has no --container-image: pyxis is not in its plugstack.conf", remedy
        if not shutil.which(self.enroot):
            return "enroot is not in PATH", "run where enroot is: https://github.com/NVIDIA/enroot"
        if not os.environ.get(SLURM_JOB):
            reason = "this is no Slurm job (SLURM_JOB_ID is not set), and pyxis starts containers in one"
            return reason, "srun --gres=gpu:1 --pty bash, then the same command"
        return "", ""

    def try_options(self, image: str, limits: Limits) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Take the network away where srun knows how; nothing is started to see whether that works."""
        del image, limits
        if "container-unshare" in self.help:
            return ("--container-unshare=net",), ()
        return (), ("containers of this pyxis have the network of the node",)

    def command(
        self, image: str, gpu: Gpu, mounts: Sequence[str], inside: Sequence[str],
        granted: Sequence[str] | None = None,
    ) -> list[str]:  # fmt: skip
        """Return the command line that starts a container in a step on this very node.

        Since 22.05 srun does not take ``--cpus-per-task`` from the job: https://slurm.schedmd.com/srun.html.
        """
        del gpu
        here = os.environ
        names = [*NAMES, *(["ENROOT_CONFIG_PATH"] if here.get("ENROOT_CONFIG_PATH") else []), *GIVEN]
        cpus = here.get("SLURM_CPUS_PER_TASK") or here.get("SLURM_CPUS_ON_NODE") or "1"
        node = [f"--nodelist={here['SLURMD_NODENAME']}"] if here.get("SLURMD_NODENAME") else []
        return [
            self.srun, *STEP, *node, f"--cpus-per-task={cpus}", f"--export={','.join(names)}", *READ_ONLY,
            *(granted or ()), f"--container-env={','.join(GIVEN)}", f"--container-image={image}",
            f"--container-mounts={','.join(mounts)}", *inside,
        ]  # fmt: skip

    def environment(self, gpu: Gpu) -> dict[str, str]:
        """Return srun's environment: enroot gives the GPU that it names. Options as variables are others'."""
        which = "void" if gpu.index is None else gpu.uuid or str(gpu.index)
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYXIS_")}
        return {**inherited, GIVEN[0]: which, GIVEN[1]: "compute,utility"}

    def pull_commands(self, reference: str, target: str) -> Sequence[Sequence[str]]:
        """Return a command line for each form of an image's name that releases of enroot know.

        A digest alone counts where there is one: enroot 4 writes it after ``@``, 3.4 and 3.5 as a tag.
        """
        name, _, digest = reference.partition("@")
        first, slash, rest = name.partition("/")
        has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
        registry, path = (f"{first}#", rest) if has_registry else ("", name)
        plain = path.partition(":")[0] if digest else path
        uris = [f"docker://{registry}{plain}{sign}{digest}" for sign in (("@", ":") if digest else ("",))]
        return [(self.enroot, "import", "--output", target, uri) for uri in uris]

    def pull_folders(self, work: Path) -> dict[str, str]:
        """Return where layers go, unless somebody said.

        Source: https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md.
        """
        names = {f"ENROOT_{kind}_PATH": str(work / kind) for kind in ("CACHE", "TEMP", "DATA", "RUNTIME")}
        return {name: place for name, place in names.items() if not os.environ.get(name)}


Runtime = Apptainer | Pyxis


def find_runtime(name: str) -> Runtime:
    """Return the runtime of a name in :data:`trtmatrix.suite.plan.CHILDREN`, be it here or not."""
    return Apptainer() if name == "apptainer" else Pyxis()


# --- The launcher

BEGAN = "began"
"""What the first shell inside leaves: it tells a probe that failed from a container that never started."""

FIRST_SHELL = """\
echo began >"$0"
for name in $(env | while IFS="=" read -r name rest; do
    case $name in
        *[!A-Za-z0-9_]*) ;;
        SLURM* | SRUN_* | SBATCH_* | PMI* | OMPI_* | PRTE_* | PYXIS_*) echo "$name" ;;
        APPTAINER* | SINGULARITY*) echo "$name" ;;
    esac
done); do
    unset "$name"
done
exec "$@"
"""
"""It forgets what a scheduler or runtime says of this job: by it two runs of a cell differ."""

SLURM_OOM = re.compile(r"(?im)^(srun|slurmstepd)[^:]*: (error: )?.*(oom[_-]kill|out of memory|out-of-memory)")
"""Slurm's own words: the cgroup of a step is gone when the step is over."""
NOT_UNDERSTOOD = "Invalid image reference"
"""enroot's words for a form of a name that its release does not know."""


def find_child_engine(name: str, cache: Path, *, gpu_here: bool) -> Engine:
    """Return what is known of a runtime of this host; where it cannot be used it is said why."""
    runtime, folder = find_runtime(name), cache / "images"
    reason, remedy = runtime.find_trouble()
    images = [image.parent for image in folder.glob(f"[!.]*/image{runtime.suffix}")]
    return Engine(
        available=not reason, reason=reason, remedy=remedy, name=runtime.name,
        version="" if reason else runtime.version, images=dict(map(read_note, images)),
        gpu_access=GpuAccess.RUNTIME if gpu_here else None,
        root=str(next(each for each in (folder, *folder.parents) if each.is_dir())),
    )  # fmt: skip


def read_note(folder: Path) -> tuple[str, str]:
    """Return the reference and the digest of a pulled image."""
    reference, digest = (folder / "note").read_text(encoding="utf-8").split()
    return reference, digest


def child_command(
    runtime: Runtime, spec: ContainerSpec, gpu: Gpu, scratch: str = "JOB/scratch",
    granted: Sequence[str] | None = None,
) -> list[str]:  # fmt: skip
    """Return the command line that starts a container; CUDA is told which GPU is the cell's.

    ``env`` sets the variables inside: neither runtime takes HOME, and in pyxis the image's win over the
    caller's. ``granted``: of the runtime's ``try_options``.
    """
    folders = [*((*pair, ":ro") for pair in spec.mounts.items()), (*spec.out, ""), (scratch, SCRATCH, "")]
    if unclear := next((outside for outside, *_ in folders if re.search(r"[,:\"]", outside)), ""):
        raise MachineryError(f'{unclear} cannot be given to a container: no path may have one of , : "')
    mounts = [f"{outside}:{inside}{flag}" for outside, inside, flag in folders]
    own = {name: value for name, value in spec.environment.items() if name != "NVIDIA_VISIBLE_DEVICES"}
    settings = [f"{name}={value}" for name, value in {**own, **gpu_variables(gpu)}.items()]
    inside = ["sh", "-c", FIRST_SHELL, f"{spec.out[1]}/{BEGAN}", "env", *settings, *spec.command]
    return runtime.command(spec.image, gpu, mounts, inside, granted)


@dataclass(frozen=True, kw_only=True)
class ChildLauncher(Containers):
    """One container, a child process in a session of its own, for the cells of one version on one GPU."""

    runtime: Runtime
    note: Callable[[str], None]

    def make_ready(self, launch: Launch) -> Ready:
        """Have the image, pulled now where the plan says so, and try what this host grants."""
        origin = image_origin(launch)
        digest = origin.pin.ids[0] if origin.pin is not None else origin.reference  # the same everywhere
        image = Path(origin.image)
        if not origin.is_file:
            key = sha256(f"{self.runtime.name}\n{digest}".encode()).hexdigest()[:16]
            folder = self.cache / "images" / key
            image = folder / f"image{self.runtime.suffix}"
            with hold(folder.with_suffix(".lock")):
                if not folder.is_dir():
                    if not launch.pull:
                        raise MachineryError(f"{origin.reference} is not in {folder.parent}")
                    self._pull(origin, image)
            digest = read_note(folder)[1]
        granted, lacking = self.runtime.try_options(str(image), self.limits)
        for line in lacking:
            self.note(f"{launch.version.name}: {line}")
        digests = {"image": digest, "runtime": "container"}
        return Ready(launch=launch, digests=digests, handle=(str(image), granted))

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the container to its end; nothing of it is left, however that comes."""
        (folder / "job" / "scratch").write_text(SCRATCH)  # /dev/shm may be everybody's
        (self.cache / "cases").mkdir(exist_ok=True)
        (image, granted), gpu = ready.handle, ready.launch.gpu
        spec = self.spec(ready.launch, image, folder)
        killed = count_oom_kills()
        with scratch_folder() as scratch:
            command = child_command(self.runtime, spec, gpu, scratch, granted)
            environment = self.runtime.environment(gpu)
            ended = run_session(command, environment, folder, poll, self.limits.file)
        if not (folder / "work" / BEGAN).exists():
            raise MachineryError(f"{self.runtime.name} cannot start the container of {image}: {ended.log}")
        memory = count_oom_kills() > killed or SLURM_OOM.search(ended.log) is not None
        return replace(ended, code=ended.code if ended.code >= 0 else 128 - ended.code, out_of_memory=memory)

    def _pull(self, origin: ImageOrigin, image: Path) -> None:
        """Pull into another folder beside; the image's own appears whole. Nothing else stays."""
        reference = origin.reference
        need_network(reference)
        self.note(f"{self.runtime.name}: pulling {reference}")
        with whole_folder(image.parent, locked=True) as partial:
            # Layers, several times as large as the image, go beside it, to no home folder.
            made, folders = partial / image.name, self.runtime.pull_folders(partial)
            for each in folders.values():
                Path(each).mkdir(exist_ok=True)
            for words in self.runtime.pull_commands(reference, str(made)):
                code, said = run_to_end(words, {**os.environ, **folders})
                if code == 0 or NOT_UNDERSTOOD not in said:
                    break
            if code or not made.is_file():
                by_hand = " ".join(words).replace(str(made), made.name)
                raise MachineryError(
                    f"{reference} cannot be had: {said.strip()[-1000:]}\n  try it by hand: {by_hand}"
                )
            for each in folders.values():
                remove_tree(Path(each))
            digest = origin.pin.ids[0] if origin.pin is not None else f"sha256:{digest_of(made)}"
            (partial / "note").write_text(f"{reference} {digest}\n", encoding="utf-8")


def count_oom_kills(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processes of this Slurm job the kernel has killed for memory; 0 outside of a job.

    Of cgroups of version 2, which count those below them too.
    """
    try:
        job = re.search(r"(?m)^0::/(.*?/job_[^/\n]*)", own.read_text())
        text = (root / job[1] / "memory.events").read_text() if job else ""
    except OSError:
        return 0
    return sum(int(count) for count in re.findall(r"(?m)^oom_kill (\d+)$", text))
