"""Doctor for a site: how Slurm, the shared folder and each GPU's jobs stand. Nothing is submitted."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from trtmatrix.context import Context
from trtmatrix.core.counting import counted
from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.plan import Pull
from trtmatrix.core.preflight.checks import gigabytes
from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.doctor import Findings, can_run_line, cannot_lines
from trtmatrix.scene import look_around
from trtmatrix.slurm.cluster import Cluster, open_cluster, open_site
from trtmatrix.slurm.commands import Refused, Slurm, run_command
from trtmatrix.slurm.sitefile import Runtime, Site, SiteGpu
from trtmatrix.slurm.tasks import sbatch_words

LOW = 40 * 10**9
"""Free bytes of the shared folder below which an image of NGC's as a file may not fit."""
LABEL = "io.trtmatrix.slurm"
EPILOG = "docker/slurm/epilog"
ABLE = ("idle", "mix", "alloc", "comp", "plan")
"""How the states of nodes begin that take jobs, now or after others (https://slurm.schedmd.com/sinfo.html)."""


def examine_site(args: argparse.Namespace, context: Context) -> Findings:
    """Look at the site; a GPU whose jobs would be refused is told with sbatch's words and what to correct."""
    cluster = open_site(args.site, context)
    findings = list(_findings(cluster))
    if any(finding.level is Level.TROUBLE and not finding.what.startswith("NVIDIA") for finding in findings):
        return Findings(findings=tuple(findings), can_run=(), cannot=())
    context, opened = open_cluster(args, context)
    scene = look_around(context, Pull.NAMED, opened)
    refused = {finding.what for finding in findings if finding.level is Level.TROUBLE}
    able = [launch for launch in scene.plan.launches if launch.gpu.name not in refused]
    return Findings(
        findings=tuple(findings), can_run=tuple(map(can_run_line, able)),
        cannot=tuple(cannot_lines(scene.plan.excluded, ())),
    )  # fmt: skip


def _findings(cluster: Cluster) -> Iterator[Finding]:
    site = cluster.site
    try:
        settings = run_command(["scontrol", "show", "config"])
        nodes = run_command(["sinfo", "-h", "-N", "-o", "%N|%T|%G|%l"]).splitlines()
    except TrtMatrixError as error:
        remedy = "run on a login node; scontrol ping says how the controller is"
        yield _trouble("Slurm", str(error).splitlines()[0], remedy, "all cells of TensorRT through Slurm")
        return
    version = re.search(r"SLURM_VERSION\s*=\s*(\S+)", settings)
    kept = "sacct is here" if shutil.which("sacct") else "no sacct (none is needed)"
    yield Finding(level=Level.GOOD, what="Slurm", found=f"{version[1] if version else '?'}; {kept}")
    yield _folder(cluster)
    yield _python(site)
    for gpu in site.gpus:
        yield _request(site, gpu)
        yield from _nodes(site, gpu, nodes)
    if site.runtime is Runtime.DOCKER:
        yield _epilog(settings)
    yield from _open_runs(cluster)


def _trouble(what: str, found: str, remedy: str, prevents: str = "") -> Finding:
    return Finding(level=Level.TROUBLE, what=what, found=found, remedy=remedy, prevents=prevents)


def _folder(cluster: Cluster) -> Finding:
    root = cluster.shared.root
    try:
        cluster.shared.check()
    except TrtMatrixError as error:
        words, _, remedy = str(error).partition("\n")
        return _trouble("shared folder", words, remedy.strip(), "all cells through Slurm")
    free = shutil.disk_usage(root).free
    level = Level.GOOD if free >= LOW or cluster.site.runtime is Runtime.DOCKER else Level.LACKING
    remedy = "" if level is Level.GOOD else "an image takes 10 to 34 GB: free some"
    found = f"{root}: {gigabytes(free)} free; that nodes see it, the first job shows"
    return Finding(level=level, what="shared folder", found=found, remedy=remedy)


def _python(site: Site) -> Finding:
    """Return whether the Python that the site names is one; of uv's own only a run tells."""
    if site.python is None:
        found = "uv fetches its own into the shared folder, once (python: in slurm.yaml names another)"
        return Finding(level=Level.GOOD, what="Python of the nodes", found=found)
    code = "import sys; print(*sys.version_info[:2], sep='.'); sys.exit(sys.version_info < (3, 10))"
    if Path(site.python).exists():
        done = subprocess.run([site.python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found = f"{site.python}, {done.stdout.strip()}; that nodes have it, the first job shows"
            return Finding(level=Level.GOOD, what="Python of the nodes", found=found)
    found, remedy = f"{site.python} is no Python 3.10 or later here", "name another, or leave python: out"
    return _trouble("Python of the nodes", found, remedy, "all cells through Slurm")


def _request(site: Site, gpu: SiteGpu) -> Finding:
    minutes = site.limits.minutes
    words = sbatch_words(
        site, gpu, name="trtmatrix-test", folder=site.shared, tasks=site.limits.tasks, minutes=minutes
    )
    try:
        Slurm().test(words)
    except Refused as error:
        said, _, remedy = str(error).partition("\n")
        return _trouble(gpu.name, said, remedy.strip(), "cells of that GPU")
    except TrtMatrixError as error:
        return Finding(level=Level.LACKING, what=gpu.name, found=f"sbatch --test-only: {error}")
    return Finding(level=Level.GOOD, what=gpu.name, found=f"sbatch would take its jobs ({gpu.gres})")


def _nodes(site: Site, gpu: SiteGpu, lines: list[str]) -> Iterator[Finding]:
    """Yield how many of the nodes with a GPU take jobs, and whether a task may be as long as it asks."""
    kind = gpu.gres.removesuffix(":1") + ":"
    rows = [line.split("|") for line in lines]
    having = {name: (state, limit) for name, state, gres, limit in rows if kind in f"{gres}:"}
    if not having:
        return
    able = [name for name, (state, _) in having.items() if state.startswith(ABLE)]
    found = f"{len(able)} of {counted(len(having), 'node')} can take jobs"
    level = Level.GOOD if able else Level.LACKING
    remedy = "" if able else f"jobs wait: scontrol show node {next(iter(having))} says why"
    yield Finding(level=level, what=f"nodes of {gpu.name}", found=found, remedy=remedy)
    longest = max(_minutes(limit) for _, limit in having.values())
    if longest < site.limits.minutes:
        found = f"partitions allow {longest} minutes; limits.minutes is {site.limits.minutes}"
        remedy = f"lower limits.minutes to {longest}, or name another partition"
        yield _trouble(gpu.name, found, remedy, "cells of that GPU: jobs wait for ever")


def _minutes(limit: str) -> int:
    """Read ``1-12:00:00``, ``1:00:00`` or ``infinite`` as sinfo writes a time limit, in minutes."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if match is None:
        return 1 << 30
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes


def _epilog(settings: str) -> Finding:
    """Return whether the site's epilog removes the container of a job that was killed."""
    named = re.findall(r"^Epilog(?:\[\d+\])?\s*=\s*(/\S+)", settings, re.MULTILINE)
    files = [file for name in named for file in Path("/").glob(name.lstrip("/"))]
    for file in files:
        try:
            if LABEL in file.read_text(errors="replace"):
                return Finding(level=Level.GOOD, what="epilog", found=f"{file} removes our containers")
        except OSError:
            continue
    found = "none was found: a job that is killed leaves its container, which ends itself after 15 s"
    remedy = f"have the administrators install {EPILOG}: docs/slurm.md"
    return Finding(level=Level.LACKING, what="epilog", found=found, remedy=remedy)


def _open_runs(cluster: Cluster) -> Iterator[Finding]:
    for run in cluster.shared.runs() if (cluster.shared.root / "runs").is_dir() else ():
        names = [sent.name for sent in run.submissions()]
        cells = counted(len((run.facts() or {"claims": ()})["claims"]), "cell")
        remedy = f"the command that began it follows it; to end it: scancel -n {','.join(names)}"
        found = f"{cells} under way, or left by a client that died"
        yield Finding(level=Level.LACKING, what=f"run {run.key}", found=found, remedy=remedy)
