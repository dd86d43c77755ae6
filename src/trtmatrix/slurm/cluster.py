"""The site: its shared folder, and how plans, tables and ``doctor`` see its GPUs and its images."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.border import ARRAY, BLOCK, BorderError, opened, read_file
from trtmatrix.common.errors import TrtMatrixError, UsageError
from trtmatrix.common.paths import Project, hold, whole_file, whole_folder
from trtmatrix.common.text import write_size
from trtmatrix.images.checks import Finding, Level
from trtmatrix.images.preflight import Findings, conclude
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import NewerRecordError, Record, RecordError, parse_record
from trtmatrix.launchers.gpu import known_gpu
from trtmatrix.launchers.references import with_own_images
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import take_survey
from trtmatrix.records.store import kept_digests, kept_file, record_path, set_aside, write_new
from trtmatrix.slurm.commands import JobRefused, run_command, sbatch
from trtmatrix.slurm.sitefile import Site, SiteGpu, read_site
from trtmatrix.slurm.tasks import sbatch_words
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import CellId, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Pull, is_own


class Cluster:
    """A site with its shared folder (``root``), which is made on the first use."""

    def __init__(self, site: Site) -> None:
        self.site, self.root = site, Path(site.shared)
        self.local = self.root / "results" / "local"
        self._copied: dict[tuple[int, int], Path] = {}  # by device and inode of their source

    def check(self) -> None:
        """Make the folder, and try what is needed of it; :class:`UsageError` where that fails."""
        try:
            for name in ("runs", "suites", "cache/cases", "cache/outputs", "results/local"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            with hold(self.root / "lock"):
                pass
        except OSError as error:
            raise UsageError(
                f"shared: {self.root} cannot be used: {error.strerror}\n"
                "  it must be a folder of yours on a file system that all nodes mount, with POSIX locks"
            ) from error

    def stage_suite(self, project: Project) -> str:
        """Return the folder with our packages, matrix.yaml, its lock and the repros, copied there if new.

        A run goes on with the suite that it began with, whatever is edited meanwhile.
        """
        sources = {"matrix.yaml": project.matrix, "matrix.lock": project.lock}
        trees = {**{f"src/{name}": path for name, path in PACKAGES.items()}, "repros": project.repros}
        for name, tree in trees.items():
            sources |= {f"{name}/{file.relative_to(tree)}": file for file in tree.rglob("*")}
        content = {
            name: file.read_bytes() for name, file in sorted(sources.items())
            if file.is_file() and not re.search(r"(^|/)(\.|__pycache__)", name)
        }  # fmt: skip
        folder = self.root / "suites" / sha256(repr(content).encode()).hexdigest()[:16]
        if not folder.is_dir():
            with whole_folder(folder) as partial:
                for name, data in content.items():
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(data)
        os.utime(folder)
        return str(folder)

    def stage_case(self, case: Path) -> None:
        """Copy a prepared case if it is not there; files that cases share here are shared there, too."""
        target = self.root / "cache" / "cases" / case.name
        if target.is_dir():
            return
        with whole_folder(target) as partial:
            for file in (path for path in case.rglob("*") if path.is_file()):
                inner, facts = file.relative_to(case), file.stat()
                copy, source = partial / inner, (facts.st_dev, facts.st_ino)
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(self._copied[source], copy)
                except (KeyError, OSError):  # the first of its kind; a file system without links
                    shutil.copy(file, copy)
                self._copied[source] = target / inner

    def take(self, cell: CellId, names: Iterable[str], project: Project) -> list[Record]:
        """Copy records of a cell, outputs first, to this project's own; returns them as they lie here.

        A damaged one is set aside: its cell has none.
        """
        taken = []
        for file in (self.local / cell.folder / name for name in sorted(names)):
            try:
                content = read_file(file)
                record = parse_record(content, str(file))
                for digest in kept_digests(record):
                    theirs, ours = kept_file(self.root / "cache", digest), kept_file(project.cache, digest)
                    if theirs.exists() and not ours.exists():
                        with opened(theirs, ARRAY) as (stream, _), whole_file(ours, sync=False) as out:
                            shutil.copyfileobj(stream, out, BLOCK)
                target = record_path(project.local, record)
                with contextlib.suppress(FileExistsError):
                    write_new(target, content)
                taken.append(parse_record(content, str(target)))
            except FileNotFoundError:  # another client was sooner to set it aside
                continue
            except (RecordError, BorderError) as error:
                print(error, "" if isinstance(error, NewerRecordError) else set_aside(file), file=sys.stderr)
        return taken

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


def record_names(root: Path, cell: CellId) -> set[str]:
    """Return the names of a cell's records below a folder of records."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return {name for name in os.listdir(root / cell.folder) if name.endswith(".json")}  # noqa: PTH208 - of 2,000 folders: no objects
    return set()


def _model(entry: SiteGpu, records: Iterable[Any]) -> Gpu:
    """Return one model of a site, with the boards that its nodes have by the newest record of each."""
    newest = {record.gpu["host"]: record for record in sorted(records, key=lambda record: record.started)}
    boards = {
        Gpu(
            slug=entry.slug, name=str(r.gpu["name"]), variant=str(r.gpu.get("variant") or ""),
            driver=r.gpu.get("driver"),
        )
        for r in newest.values()
    }  # fmt: skip
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


def open_cluster(site: Path | None, memory: int, context: Context) -> tuple[Context, Cluster]:
    """Return the context with the site's images in it, and the cluster.

    ``site``: its file, where one is named; ``memory``: what a container may take, in bytes. The records that
    came while nobody looked are taken to this project first.
    """
    if "host" in context.selection.runtimes:
        raise UsageError("--runtime host: interpreters of this host are not run through Slurm; leave it out")
    cluster = Cluster(read_site(site, context.project.folder))
    limit = cluster.site.limits.memory
    if cluster.site.runtime == "docker" and memory > limit:
        raise UsageError(
            f"--memory: a container may take {-(-memory >> 20)}m, and its job reserves {limit >> 20}m "
            f"(slurm.yaml: limits.memory)\n  raise that one, or type --memory {limit >> 20}m"
        )
    cluster.check()
    for folder in cluster.local.glob("*/*/*/*"):
        gpu, version, repro, case = folder.parts[-4:]
        cell, ours = CellId(repro=repro, case=case, version=version, gpu=gpu), context.project
        cluster.take(cell, record_names(cluster.local, cell) - record_names(ours.local, cell), ours)
    images = [f"{version}={image}" for version, image in cluster.site.images.items()]
    cache, said = cluster.root / "cache", "images of slurm.yaml:"
    matrix = with_own_images(context.matrix, images, cluster.site.runtime, cache, said)
    return replace(context, matrix=matrix), cluster


# --- Doctor: how Slurm, the shared folder and each GPU's jobs stand; nothing is submitted


def examine_site(site: Path | None, context: Context) -> Findings:
    """Look at the site; a GPU whose jobs would be refused is told with sbatch's words and what to correct."""
    cluster = Cluster(read_site(site, context.project.folder))
    findings = list(_findings(cluster))
    troubled = {finding.what for finding in findings if finding.level is Level.TROUBLE}
    if troubled - {gpu.name for gpu in cluster.site.gpus}:
        return conclude(findings, (), ())
    context, opened = open_cluster(site, 0, context)
    plan = take_survey(context, Pull.NAMED, opened).plan
    able = [launch for launch in plan.launches if launch.gpu.name not in troubled]
    return conclude(findings, able, plan.excluded)


def _findings(cluster: Cluster) -> Iterator[Finding]:
    site, root = cluster.site, cluster.root
    try:
        version = re.search(r"SLURM_VERSION\s*=\s*(\S+)", run_command(["scontrol", "show", "config"]))
        yield _well("Slurm", version[1] if version else "release not known")
    except TrtMatrixError as error:
        told = f"{str(error).splitlines()[0]}\nrun on a login node; scontrol ping says how the controller is"
        yield _trouble("Slurm", told, "all cells of TensorRT through Slurm")
        return
    try:
        cluster.check()
        free = write_size(shutil.disk_usage(root).free)
        yield _well("shared folder", f"{root}: {free} free; that nodes see it, the first job shows")
    except TrtMatrixError as error:
        yield _trouble("shared folder", str(error), "all cells through Slurm")
    for gpu in site.gpus:
        words = sbatch_words(site, gpu, name="trtmatrix-test", folder=site.shared, tasks=site.limits.tasks)
        try:
            sbatch(["--test-only", *words, "--wrap=true"])
            yield _well(gpu.name, f"sbatch would take its jobs ({gpu.gres})")
        except JobRefused as error:
            yield _trouble(gpu.name, str(error), "cells of that GPU")
        except TrtMatrixError as error:
            yield Finding(level=Level.LACKING, what=gpu.name, found=f"sbatch --test-only: {error}")


def _well(what: str, found: str) -> Finding:
    return Finding(level=Level.GOOD, what=what, found=found)


def _trouble(what: str, told: str, prevents: str) -> Finding:
    """Return trouble that is told as errors are: what it is, and behind a line break what mends it."""
    found, _, remedy = told.partition("\n")
    return Finding(level=Level.TROUBLE, what=what, found=found, remedy=remedy.strip(), prevents=prevents)
