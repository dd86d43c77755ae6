"""Cuts cells into tasks, and words what sbatch and each task are told. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence

from trtmatrix.judge.entry import Stored
from trtmatrix.plan.order import Seconds, split_launch
from trtmatrix.slurm.sitefile import Site, SiteGpu
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Launch

BEGAN = "The task begins."  # what its script says first
GUESSED_SECONDS = 10.0  # of a cell that was never run: between a small graph's second and a model's minute
WORTH_SECONDS = 30.0  # at least worth a task: each waits in the queue and pays for its first Builder


def cut_tasks(
    launch: Launch, seconds: Seconds, site: Site, stored: Iterable[Stored] = ()
) -> list[tuple[Cell, ...]]:
    """Return the cells of each task: as many tasks as may run at once, where each is worth it.

    ``seconds``: of cells that were run before. There are more tasks where one would not fit half of the time,
    and at most ``limits.tasks``. Cells of one repro stay together as far as that goes, and always those that
    have built the same engine, as ``stored`` records say.
    """
    guessed = {cell.id: seconds.get(cell.id, GUESSED_SECONDS) for cell in launch.cells}
    total, limits = sum(guessed.values()), site.limits
    needed = math.ceil(total / (limits.minutes * 60 / 2))
    beside = min(limits.running, math.floor(total / WORTH_SECONDS))
    parts = split_launch(launch, min(limits.tasks, max(1, beside, needed)), guessed, stored)
    return [tuple(part.cells) for part in parts]


def sbatch_words(
    site: Site, gpu: SiteGpu, *, name: str, folder: str, tasks: int, avoid: Iterable[str] = ()
) -> list[str]:
    """Return the words of sbatch for an array; its script follows them.

    ``avoid``: nodes on which tasks could not begin, beside those that the site's options exclude. Of doubled
    words the last counts: a GPU's own follow the site's. Nothing is requeued: what is left of a task is
    submitted anew. The caller's environment stays here: whoever types the command runs the same job.
    """
    minutes = site.limits.minutes
    words = [
        "--parsable", f"--job-name={name}", "--no-requeue", "--export=NONE", "--nodes=1", "--ntasks=1",
        "--open-mode=append", f"--output={folder}/%a.log", f"--array=0-{tasks - 1}%{site.limits.running}",
        f"--gres={gpu.gres}", f"--time={minutes}", f"--signal=B:TERM@{min(60, 20 * minutes)}",
        f"--cpus-per-task={site.limits.cpus}", f"--mem={site.limits.memory >> 20}M", *site.options,
    ]  # fmt: skip
    named = ((key, getattr(gpu, key)) for key in ("constraint", "partition", "account", "qos"))
    words += [*(f"--{key}={value}" for key, value in named if value), *gpu.options]
    excluded = [word.removeprefix("--exclude=") for word in words if word.startswith("--exclude=")][-1:]
    if avoided := sorted(avoid):
        words.append(f"--exclude={','.join([*excluded, *avoided])}")
    return words


def run_line(cells: Sequence[Cell], site: Site, gpu: SiteGpu, *, suite: str, options: Sequence[str]) -> str:
    """Return the command line of a task behind ``python -m``: what a person would type on the node.

    ``options``: how this command was told to run cells.
    """
    words = [
        "trtmatrix", "run", f"--matrix={suite}/matrix.yaml", f"--repros={suite}/repros",
        f"--results={site.shared}/results", f"--cache={site.shared}/cache", f"--engine={site.runtime}",
        f"--trt={cells[0].version.name}", f"--gpu={gpu.name}", "--no-controls", "--rerun",
        *options, *(f"--image={version}={image}" for version, image in site.images.items()),
        *(f"--case={cell.repro.id}/{cell.case.id}" for cell in cells),
    ]  # fmt: skip
    return shlex.join(words)


def task_script(site: Site, *, suite: str, folder: str, python: str) -> str:
    """Return the script of an array: it prepares the node and becomes the task's own line of ``commands``.

    ``folder``: where ``commands`` lies; a task leaves its exit code in ``TASK.exit`` there, 3 if setup fails.
    """
    exports = {
        "TRTMATRIX_EXIT_CODE_FILE": f"{folder}/$SLURM_ARRAY_TASK_ID.exit", "PYTHONPATH": f"{suite}/src",
        "TRTMATRIX_SCRATCH": "$scratch/trtmatrix.$UID",
    }  # fmt: skip
    if site.access != "auto":
        exports["TRTMATRIX_GPU_ACCESS"] = site.access
    if site.driver_folder:
        exports["TRTMATRIX_DRIVER_FOLDER"] = site.driver_folder
    scratch = site.scratch or "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    lacking = f"trtmatrix: $SLURMD_NODENAME has no {python}: name one of all nodes by python: in slurm.yaml"
    return "\n".join([
        "#!/bin/bash", f"echo '{BEGAN}'", "set -e", f"trap 'echo 3 >{folder}/$SLURM_ARRAY_TASK_ID.exit' EXIT",
        *site.setup, "set +e", f'scratch="{scratch}"',
        *(f'export {name}="{value}"' for name, value in exports.items()),
        f'[ -x {python} ] || {{ echo "{lacking}" >&2; exit 1; }}',
        f'line=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {folder}/commands)',
        'echo "$SLURMD_NODENAME: python -m $line"',
        f'eval "exec {python} -m $line"', "",
    ])  # fmt: skip


def claim_of(cell: CellId, digests: Mapping[str, str]) -> str:
    """Return what tells a cell that is wanted in this way from one wanted otherwise: one line of text."""
    return " ".join([str(cell), *(digests.get(name, "-") for name in ("repro", "case", "asked", "probe"))])
