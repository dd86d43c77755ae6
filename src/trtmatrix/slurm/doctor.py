"""Doctor for a site: how Slurm, the shared folder and each GPU's jobs stand. Nothing is submitted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.text import counted
from trtmatrix.images.doctor import Findings, can_run_line, cannot_lines
from trtmatrix.images.downloads import gigabytes
from trtmatrix.images.rules import Finding, Level
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import take_survey
from trtmatrix.slurm.cluster import Cluster, open_cluster, open_site
from trtmatrix.slurm.commands import JobRefused, run_command, sbatch
from trtmatrix.slurm.tasks import sbatch_words
from trtmatrix.suite.plan import Pull


def examine_site(site: Path | None, context: Context) -> Findings:
    """Look at the site; a GPU whose jobs would be refused is told with sbatch's words and what to correct."""
    cluster = open_site(site, context)
    findings = list(_findings(cluster))
    troubled = {finding.what for finding in findings if finding.level is Level.TROUBLE}
    if troubled - {gpu.name for gpu in cluster.site.gpus}:
        return Findings(findings=tuple(findings), can_run=(), cannot=())
    context, opened = open_cluster(site, 0, context)
    survey = take_survey(context, Pull.NAMED, opened)
    able = [launch for launch in survey.plan.launches if launch.gpu.name not in troubled]
    return Findings(
        findings=tuple(findings), can_run=tuple(map(can_run_line, able)),
        cannot=tuple(cannot_lines(survey.plan.excluded, ())),
    )  # fmt: skip


def _findings(cluster: Cluster) -> Iterator[Finding]:
    site, root = cluster.site, cluster.shared.root
    try:
        settings = run_command(["scontrol", "show", "config"])
    except TrtMatrixError as error:
        told = f"{str(error).splitlines()[0]}\nrun on a login node; scontrol ping says how the controller is"
        yield _trouble("Slurm", told, "all cells of TensorRT through Slurm")
        return
    version = re.search(r"SLURM_VERSION\s*=\s*(\S+)", settings)
    yield Finding(level=Level.GOOD, what="Slurm", found=version[1] if version else "release not known")
    try:
        cluster.shared.check()
        free = gigabytes(shutil.disk_usage(root).free)
        found = f"{root}: {free} free; that nodes see it, the first job shows"
        yield Finding(level=Level.GOOD, what="shared folder", found=found)
    except TrtMatrixError as error:
        yield _trouble("shared folder", str(error), "all cells through Slurm")
    for gpu in site.gpus:
        words = sbatch_words(site, gpu, name="trtmatrix-test", folder=site.shared, tasks=site.limits.tasks)
        try:
            sbatch(["--test-only", *words, "--wrap=true"])
            found = f"sbatch would take its jobs ({gpu.gres})"
            yield Finding(level=Level.GOOD, what=gpu.name, found=found)
        except JobRefused as error:
            yield _trouble(gpu.name, str(error), "cells of that GPU")
        except TrtMatrixError as error:
            yield Finding(level=Level.LACKING, what=gpu.name, found=f"sbatch --test-only: {error}")
    for run in cluster.shared.runs() if (root / "runs").is_dir() else ():
        names = ",".join(sent.name for sent in run.submissions())
        cells = len((run.facts() or {"claims": ()})["claims"])
        remedy = "the command that began it follows it" + (
            f"; to end it: scancel -n {names}" if names else ""
        )
        found = f"{counted(cells, 'cell')} under way, or left by a client that died"
        yield Finding(level=Level.LACKING, what=f"run {run.key}", found=found, remedy=remedy)


def _trouble(what: str, told: str, prevents: str) -> Finding:
    """Return trouble that is told as errors are: what it is, and behind a line break what mends it."""
    found, _, remedy = told.partition("\n")
    return Finding(level=Level.TROUBLE, what=what, found=found, remedy=remedy.strip(), prevents=prevents)
