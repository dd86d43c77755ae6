"""The rules by which a site is looked at: what each prevents, what mends it, its source. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trtmatrix.core.preflight.rules import Rule

_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_CONF = "https://slurm.schedmd.com/slurm.conf.html"

_ALL = (
    Rule(
        id="slurm", looks_at="whether Slurm's commands are here and its controller answers",
        prevents="all cells of TensorRT on GPUs through Slurm",
        mends="run on a login node; scontrol ping says how the controller is",
        source="https://slurm.schedmd.com/scontrol.html",
    ),
    Rule(
        id="slurm-request", looks_at="whether sbatch would take a job for each GPU (sbatch --test-only)",
        prevents="cells of that GPU",
        mends="correct its gres, constraint, partition, account or qos, or the limits",
        source=_SBATCH,
    ),
    Rule(
        id="slurm-import", looks_at="whether sbatch would take a job that imports an image",
        prevents="cells in images that no import has had yet",
        mends="correct options, import_options or limits",
        source=_SBATCH,
    ),
    Rule(
        id="slurm-nodes", looks_at="whether a node with that GPU can take jobs now", prevents="",
        mends="scontrol show node NODE says why not; jobs wait until one can",
        source="https://slurm.schedmd.com/sinfo.html",
    ),
    Rule(
        id="slurm-model", looks_at="whether the nodes with its gres have that GPU, where jobs of ours looked",
        prevents="cells of that GPU: its jobs find another one, and end",
        mends='correct its gres or its name: srun --gres=GRES nvidia-smi -L; sinfo -o "%G %N"',
        source="https://slurm.schedmd.com/gres.html",
    ),
    Rule(
        id="slurm-time", looks_at="limits.minutes against the partition's longest time, and its state",
        prevents="cells of that GPU: jobs are refused, or wait for ever",
        mends="lower limits.minutes, or name another partition", source=_CONF,
    ),
    Rule(
        id="slurm-array", looks_at="limits.tasks against MaxArraySize and MaxJobCount",
        prevents="arrays of so many tasks: they are refused", mends="lower limits.tasks", source=_CONF,
    ),
    Rule(
        id="slurm-folder", looks_at="whether the shared folder is written, locks and renames, and has room",
        prevents="all cells through Slurm", mends="name a folder of a file system that all nodes mount",
        source="docs/slurm.md",
    ),
    Rule(
        id="slurm-runtime", looks_at="what starts containers on a node, which only a node can show",
        prevents="", mends="the command beside it starts one there by hand",
        source="https://github.com/NVIDIA/pyxis",
    ),
    Rule(
        id="slurm-ends",
        looks_at="whether a killed job leaves nothing: with Docker an epilog, else Slurm's own tracking",
        prevents="", mends="ask the site's administrators: docs/slurm.md, What a killed job leaves",
        source="https://slurm.schedmd.com/prolog_epilog.html",
    ),
    Rule(
        id="slurm-seen", looks_at="what GPUs and drivers jobs of ours found on the nodes", prevents="",
        mends="", source="docs/slurm.md",
    ),
    Rule(
        id="slurm-left", looks_at="arrays that no client follows: their jobs go on, their records wait",
        prevents="", mends="the command that began it goes on with it: type it again",
        source="docs/slurm.md",
    ),
)  # fmt: skip

SITE_RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
"""All rules, in the order in which they are told."""
