"""Apptainer (or SingularityCE, whose options are the same) and pyxis with enroot: what they are told.

Not run by us. Apptainer: https://apptainer.org/docs/user/main/cli/apptainer_exec.html and its appendix;
pyxis, NVIDIA's plugin of srun: https://github.com/NVIDIA/pyxis/wiki/Usage (0.20); names of images in enroot:
https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.container import SCRATCH, Limits
from trtmatrix.launchers.gpu import SLURM_JOB
from trtmatrix.suite.matrix import repository_of
from trtmatrix.suite.model import NO_GPU, Gpu

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
