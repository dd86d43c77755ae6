"""pyxis, NVIDIA's plugin of srun, and enroot, which pulls its images: command lines and environment.

Not run by us. Options: https://github.com/NVIDIA/pyxis/wiki/Usage (0.20) and srun's own; names:
https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md. The container is a step of our own job.
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

STEP = ("--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--input=none")
"""A step beside others of the job: this process may be in one itself, which would keep the GPU from it."""
ALONE = (
    "--container-readonly", "--no-container-mount-home", "--no-container-remap-root",
    "--no-container-entrypoint", f"--container-workdir={SCRATCH}",
)  # fmt: skip
GIVEN = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
NAMES = ("HOME", "USER", "LOGNAME", "PATH", "LANG")
"""All that srun exports is set inside: no more than what srun and enroot themselves need."""


class Pyxis:
    """What srun is told."""

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
        granted = ("--container-unshare=net",) if "container-unshare" in self.help else ()
        return granted, () if granted else ("containers of this pyxis have the network of the node",)

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
            self.srun, *STEP, *node, f"--cpus-per-task={cpus}", f"--export={','.join(names)}", *ALONE,
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

    def pull_folders(self, environment: Mapping[str, str], work: Path) -> dict[str, str]:
        """Return where layers go, unless the environment or enroot.conf says.

        Source: https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md.
        """
        names = {f"ENROOT_{kind}_PATH": str(work / kind) for kind in ("CACHE", "TEMP", "DATA", "RUNTIME")}
        folder = Path(environment.get("ENROOT_SYSCONF_PATH") or "/etc/enroot")
        files = [folder / "enroot.conf", *(folder / "enroot.conf.d").glob("*.conf")]
        said = "\n".join(file.read_text(errors="replace") for file in files if file.is_file())
        return {
            name: place for name, place in names.items()
            if not environment.get(name) and not re.search(rf"(?m)^\s*{name}[\s=]", said)
        }  # fmt: skip
