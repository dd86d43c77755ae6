"""Apptainer, or SingularityCE, whose options are the same: its command lines and its environment.

Not run by us. Options: https://apptainer.org/docs/user/main/cli/apptainer_exec.html; variables:
https://apptainer.org/docs/user/main/appendix.html.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from trtmatrix.common.commands import run_to_end
from trtmatrix.launchers.container import SCRATCH, Limits
from trtmatrix.launchers.gpu import SLURM_JOB
from trtmatrix.suite.gpus import Gpu

ALONE = ("--containall", "--cleanenv", "--no-home", "--no-privs", f"--pwd={SCRATCH}")
NO_NETWORK = ("--net", "--network=none")
ASK_SECONDS = 300
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
        remedy = "module load apptainer, or install it: https://apptainer.org/docs/admin/main/"
        lacking = ("neither apptainer nor singularity is in PATH", remedy)
        return ("", "") if shutil.which(self.program) else lacking

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
        granted, lacking = (), ()  # type: tuple[str, ...], tuple[str, ...]
        for lack, options in wanted.items():
            code, said = self._ask("exec", *self.alone, *granted, *options, image, "true")
            if code == 0:
                granted += options
            else:
                lacking += (f"{lack} here: {said.strip()[-200:]}",)
        return granted, lacking

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
        name, at, digest = reference.partition("@")
        head, slash, last = name.rpartition("/")
        uri = f"{head}{slash}{last.partition(':')[0]}@{digest}" if at else reference
        return [(self.program, "pull", target, f"docker://{uri}")]

    def pull_folders(self, environment: Mapping[str, str], work: Path) -> dict[str, str]:
        """Return where layers go, unless somebody said: https://apptainer.org/docs/user/main/build_env.html."""
        makers = ("APPTAINER", "SINGULARITY")
        free = [n for n in ("CACHEDIR", "TMPDIR") if not any(environment.get(f"{m}_{n}") for m in makers)]
        return {f"{maker}_{name}": str(work / name) for name in free for maker in makers}

    def _ask(self, *words: str) -> tuple[int, str]:
        return run_to_end([self.program, *words], self.environment(Gpu(slug="", name="")), ASK_SECONDS)
