"""Containers that are children of this process: Apptainer and pyxis, with images as files in the cache.

Each image is pulled once, also by several hosts that share the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.archive import digest_of
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.common.paths import hold, scratch_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.child_runtimes import Runtime, find_runtime
from trtmatrix.launchers.container import SCRATCH, ContainerSpec, Limits, image_origin, make_container_spec
from trtmatrix.launchers.launcher import Ended, Poll, Ready, gpu_variables, run_session, watch_disk
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Launch

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
    held = {}
    for note in sorted(folder.glob("*.json")):
        reference, digest = read_note(note)
        if digest and note.with_suffix(runtime.suffix).is_file():
            held[reference] = digest
    return Engine(
        available=not reason, reason=reason, remedy=remedy, name=runtime.name,
        version="" if reason else runtime.version, images=held,
        gpu_access=GpuAccess.RUNTIME if gpu_here else None,
        root=str(next(each for each in (folder, *folder.parents) if each.is_dir())),
    )  # fmt: skip


def read_note(note: Path) -> tuple[str, str]:
    """Return the reference and the digest of a pulled image; empty where its note is not there or damaged."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        data = json.loads(note.read_text(encoding="utf-8"))
        return str(data["reference"]), str(data["digest"])
    return "", ""


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


class ChildLauncher:
    """One container, a child process in a session of its own, for the cells of one version on one GPU."""

    def __init__(
        self, *, runtime: Runtime, engine: Engine, cache: Path, repros: Path, limits: Limits,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.runtime, self.engine, self.note = runtime, engine, note
        self.cache, self.repros, self.limits = cache, repros, limits

    def make_ready(self, launch: Launch) -> Ready:
        """Have the image, pulled now where the plan says so, and try what this host grants."""
        origin, folder = image_origin(launch), self.cache / "images"
        digest = origin.pin.ids[0] if origin.pin is not None else origin.reference  # the same everywhere
        image = Path(origin.image)
        if not origin.is_file:
            key = sha256(f"{self.runtime.name}\n{digest}".encode()).hexdigest()[:16]
            image, note = folder / f"{key}{self.runtime.suffix}", folder / f"{key}.json"
            with hold(folder / f"{key}.lock", self.note):
                if not (image.exists() and read_note(note)[1]):
                    if not launch.pull:
                        raise MachineryError(f"{origin.reference} is not in {folder}")
                    self._pull(origin, image, note)
                digest = read_note(note)[1]
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
        spec = make_container_spec(
            ready.launch, image, self.engine, cache=self.cache, repros=self.repros, folder=folder,
            limits=self.limits,
        )  # fmt: skip
        killed = count_oom_kills()
        with scratch_folder() as scratch:
            look_at_disk = watch_disk(Path(scratch), self.limits.scratch)

            def poll_and_look() -> None:
                poll()
                look_at_disk()

            command = child_command(self.runtime, spec, gpu, scratch, granted)
            environment = self.runtime.environment(gpu)
            ended = run_session(command, environment, folder, poll_and_look, self.limits.file)
        if not (folder / "work" / BEGAN).exists():
            raise MachineryError(f"{self.runtime.name} cannot start the container of {image}: {ended.log}")
        memory = count_oom_kills() > killed or SLURM_OOM.search(ended.log) is not None
        return replace(ended, code=ended.code if ended.code >= 0 else 128 - ended.code, out_of_memory=memory)

    def _pull(self, origin: ImageOrigin, image: Path, note: Path) -> None:
        """Pull under another name on the same disk; the image appears whole, and last. Nothing else stays."""
        reference = origin.reference
        need_network(reference)
        self.note(f"{self.runtime.name}: pulling {reference}")
        for old in image.parent.glob(f".{image.stem}.*"):  # of a pull that was killed: the lock is ours
            remove_tree(old)
        work = Path(tempfile.mkdtemp(prefix=f".{image.stem}.", dir=image.parent))
        try:
            # Layers, several times as large as the image, go beside it, to no home folder.
            made, folders = work / image.name, self.runtime.pull_folders(work)
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
            digest = origin.pin.ids[0] if origin.pin is not None else f"sha256:{digest_of(made)}"
            (work / "note").write_text(json.dumps({"reference": reference, "digest": digest}))
            (work / "note").replace(note)
            made.replace(image)
        finally:
            remove_tree(work)


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
