"""The site as plans, tables and ``doctor`` see it: its GPUs, what jobs found of them, its images."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.images.checks import Finding, Level, gigabytes
from trtmatrix.images.preflight import Findings, conclude
from trtmatrix.judge.entry import Stored
from trtmatrix.launchers.gpu import known_gpu
from trtmatrix.launchers.references import with_own_images
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import take_survey
from trtmatrix.slurm.commands import JobRefused, run_command, sbatch
from trtmatrix.slurm.shared import Shared
from trtmatrix.slurm.sitefile import Site, SiteGpu, read_site
from trtmatrix.slurm.tasks import sbatch_words
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Gpu, Seen
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Pull, is_own


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A site with its shared folder."""

    site: Site
    shared: Shared

    def host(self, stored: Iterable[Stored]) -> Host:
        """Return its nodes together as one host, as records and digests see it; images are not known."""
        records = [item.record for item in stored if item.record.gpu.get("host")]
        gpus = tuple(_model(gpu, [r for r in records if r.cell.gpu == gpu.slug]) for gpu in self.site.gpus)
        engine = Engine(available=True, gpu_access=GpuAccess.TOOLKIT, name=self.site.runtime)
        return Host(engine=engine, gpus=gpus)

    def planned(self, context: Context, stored: Sequence[Stored]) -> Host:
        """Return the same host as a plan sees it, which counts on the images that nodes have or can load.

        Those are the ones that the site names, those of which a node has left a record, and with Docker
        those that no registry has: a job tells.
        """
        host, docker = self.host(stored), self.site.runtime == "docker"
        ran = {item.record.cell.version for item in stored if item.record.gpu.get("host")}
        images = {}
        for version in context.matrix.versions:
            if isinstance(origin := version.origin, ImageOrigin):
                own = docker and origin.build is None and is_own(origin.image)
                if own or version.name in {*self.site.images, *ran}:
                    images[origin.image] = origin.pin.ids[0] if origin.pin else "on a node"
        engine = replace(host.engine, images=images, ids=frozenset(images.values()))
        return replace(host, engine=engine, offline=context.offline)


def _model(entry: SiteGpu, records: Iterable[Any]) -> Gpu:
    """Return one model of a site, with the boards that its nodes have by the newest record of each."""
    newest = {record.gpu["host"]: record for record in sorted(records, key=lambda record: record.started)}
    boards = {
        Seen(name=str(r.gpu["name"]), variant=str(r.gpu.get("variant") or ""), driver=r.gpu.get("driver"))
        for r in newest.values()
    }
    numbers = {b: [int(n) for n in (b.driver or "0").split(".") if n.isdecimal()] for b in boards}
    seen = tuple(sorted(boards, key=lambda b: (numbers[b], b.name + b.variant), reverse=True))
    listed, variants = known_gpu(entry.name), {board.variant for board in seen}
    computes = [str(r.gpu["compute"]) for r in newest.values() if r.gpu.get("compute")]
    return Gpu(
        slug=entry.slug, name=entry.name, remote=True, seen=seen, driver=seen[0].driver if seen else None,
        compute=computes[0] if computes else listed.compute if listed else None,
        datacenter=bool(listed and listed.datacenter),
        variant=variants.pop() if len(variants) == 1 else "",
    )  # fmt: skip


def open_site(named: Path | None, context: Context) -> Cluster:
    """Read the site's file; its shared folder is not looked at yet."""
    site = read_site(named, context.project.folder)
    return Cluster(site=site, shared=Shared(Path(site.shared), lambda text: print(text, file=sys.stderr)))


def open_cluster(site: Path | None, memory: int, context: Context) -> tuple[Context, Cluster]:
    """Return the context with the site's images in it, and the cluster.

    ``site``: its file, where one is named; ``memory``: what a container may take, in bytes. The records that
    came while nobody looked are taken to this project first.
    """
    if "host" in context.selection.runtimes:
        raise UsageError("--runtime host: interpreters of this host are not run through Slurm; leave it out")
    cluster = open_site(site, context)
    limit = cluster.site.limits.memory
    if cluster.site.runtime == "docker" and memory > limit:
        raise UsageError(
            f"--memory: a container may take {-(-memory >> 20)}m, and its job reserves {limit >> 20}m "
            f"(slurm.yaml: limits.memory)\n  raise that one, or type --memory {limit >> 20}m"
        )
    cluster.shared.check()
    cluster.shared.take_all(context.project)
    images = [f"{version}={image}" for version, image in cluster.site.images.items()]
    cache, said = cluster.shared.root / "cache", "images of slurm.yaml:"
    matrix = with_own_images(context.matrix, images, cluster.site.runtime, cache, said)
    return replace(context, matrix=matrix), cluster


# --- Doctor: how Slurm, the shared folder and each GPU's jobs stand; nothing is submitted


def examine_site(site: Path | None, context: Context) -> Findings:
    """Look at the site; a GPU whose jobs would be refused is told with sbatch's words and what to correct."""
    cluster = open_site(site, context)
    findings = list(_findings(cluster))
    troubled = {finding.what for finding in findings if finding.level is Level.TROUBLE}
    if troubled - {gpu.name for gpu in cluster.site.gpus}:
        return conclude(findings, (), ())
    context, opened = open_cluster(site, 0, context)
    plan = take_survey(context, Pull.NAMED, opened).plan
    able = [launch for launch in plan.launches if launch.gpu.name not in troubled]
    return conclude(findings, able, plan.excluded)


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


def _trouble(what: str, told: str, prevents: str) -> Finding:
    """Return trouble that is told as errors are: what it is, and behind a line break what mends it."""
    found, _, remedy = told.partition("\n")
    return Finding(level=Level.TROUBLE, what=what, found=found, remedy=remedy.strip(), prevents=prevents)
