"""Runs a container as a child process in a session of its own; a job that ends takes it along."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import scratch_folder
from trtmatrix.launchers.container import SCRATCH, Limits
from trtmatrix.launchers.images import ImageFiles, Runtime
from trtmatrix.launchers.interpreters import run_session, tail
from trtmatrix.launchers.launcher import Ended, Poll, Ready, launch_spec
from trtmatrix.launchers.words import BEGAN
from trtmatrix.suite.plan import Engine, Launch

OOM_WORDS = re.compile(r"(?im)^(srun|slurmstepd)[^:]*: (error: )?.*(oom[_-]kill|out of memory|out-of-memory)")
"""Slurm's own words: the cgroup of a step is gone when the step is over."""


class ChildLauncher:
    """One container, a child process, for the cells of one version on one GPU."""

    def __init__(
        self, *, runtime: Runtime, engine: Engine, cache: Path, repros: Path, limits: Limits,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Keep what every container needs; ``note`` is told of long work and of what is not isolated."""
        self.runtime, self.note, self.images = runtime, note, ImageFiles(cache, runtime, note)
        self.engine, self.cache, self.repros, self.limits = engine, cache, repros, limits

    def make_ready(self, launch: Launch) -> Ready:
        """Have the image, pulled now where the plan says so, and try what this host grants."""
        image, digest = self.images.have(launch)
        granted, lacking = self.runtime.try_options(str(image), self.limits)
        for line in lacking:
            self.note(f"{launch.version.name}: {line}")
        digests = {"image": digest, "runtime": "container"}
        return Ready(launch=launch, digests=digests, handle=(str(image), granted))

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the container to its end; nothing of it is left, however that comes."""
        (folder / "job" / "scratch").write_text(SCRATCH)  # /dev/shm may be everybody's
        (self.cache / "cases").mkdir(exist_ok=True)
        (image, granted), gpu, log = ready.handle, ready.launch.gpu, folder / "container.log"
        spec = launch_spec(
            ready.launch, image, self.engine, cache=self.cache, repros=self.repros, folder=folder,
            limits=self.limits,
        )  # fmt: skip
        killed = oom_kills()
        with scratch_folder() as scratch:
            command = self.runtime.words(spec, gpu, scratch, granted)
            environment = self.runtime.environment(gpu)
            code = run_session(command, environment, log, folder, poll, largest=self.limits.file)
        said = tail(log)
        if not (folder / "out" / BEGAN).exists():
            raise MachineryError(f"{self.runtime.name} cannot start the container of {image}: {said}")
        memory = oom_kills() > killed or OOM_WORDS.search(said) is not None
        return Ended(code=code if code >= 0 else 128 - code, out_of_memory=memory, log=said)


def oom_kills(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processes of this Slurm job the kernel has killed for memory; 0 outside of a job.

    A cgroup of version 2 counts those below it too, one of version 1 its own alone:
    https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
    """
    texts = []
    with contextlib.suppress(OSError):
        for controllers, job in re.findall(r"(?m)^\d+:([^:]*):/(.*?/job_[^/\n]*)", own.read_text()):
            if not controllers:
                texts.append((root / job / "memory.events").read_text())
            elif "memory" in controllers.split(","):
                texts += [file.read_text() for file in (root / "memory" / job).rglob("memory.oom_control")]
    return sum(int(count) for text in texts for count in re.findall(r"(?m)^oom_kill (\d+)$", text))
