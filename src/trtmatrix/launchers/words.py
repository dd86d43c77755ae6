"""What both runtimes run inside a container, and what they mount. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trtmatrix.common.errors import MachineryError
from trtmatrix.launchers.container import SCRATCH, ContainerSpec
from trtmatrix.suite.gpus import Gpu

BEGAN = "began"
"""What the first shell inside leaves: it tells a probe that failed from a container that never started."""

FIRST = """\
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
"""The first shell forgets what a scheduler or runtime says of this job: by it two runs of a cell differ."""


def inside_words(spec: ContainerSpec, gpu: Gpu) -> list[str]:
    """Return what is run in the container; CUDA is told which GPU is the cell's.

    ``env`` sets the variables: neither runtime takes HOME, and in pyxis the image's win over the caller's.
    """
    environment = without(spec.environment, "NVIDIA_VISIBLE_DEVICES")
    if gpu.index is not None:
        environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.uuid or str(gpu.index)}
    settings = [f"{name}={value}" for name, value in environment.items()]
    return ["sh", "-c", FIRST, f"{spec.out[1]}/{BEGAN}", "env", *settings, *spec.command]


def mount_words(spec: ContainerSpec, scratch: str) -> Iterator[str]:
    """Yield ``outside:inside[:ro]`` of each folder. :class:`MachineryError` where that cannot be written."""
    read_only = [(pair, ":ro") for pair in spec.read_only_mounts.items()]
    for (outside, inside), flag in [*read_only, (spec.out, ""), ((scratch, SCRATCH), "")]:
        if re.search(r"[,:\"]", outside):
            raise MachineryError(f'{outside} cannot be given to a container: no path may have one of , : "')
        yield f"{outside}:{inside}{flag}"


def without(environment: Mapping[str, str], pattern: str) -> dict[str, str]:
    """Return the variables whose names do not match."""
    return {name: value for name, value in environment.items() if not re.fullmatch(pattern, name)}
