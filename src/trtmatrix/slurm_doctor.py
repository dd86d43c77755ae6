"""Doctor for a site: how Slurm, the shared folder and each GPU's jobs stand, and what that lets run."""

from __future__ import annotations

import argparse
from dataclasses import replace

from trtmatrix.cluster import Cluster, open_cluster
from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.counting import counted
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.expand import select_versions
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import Pull
from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.core.slurm.checks import is_other_model, site_findings
from trtmatrix.core.slurm.facts import LeftArray
from trtmatrix.doctor import Findings, can_run_line, cannot_lines
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.site_facts import look_at_site
from trtmatrix.effects.slurm import Slurm
from trtmatrix.scene import look_around
from trtmatrix.slurm_orphans import orphans
from trtmatrix.where import open_site

REMEDIES = {
    Exclusion.IMAGE_NOT_PULLED: "name the versions by --trt, or --pull all: a job imports each image once",
    Exclusion.IMAGE_NOT_BUILT: "no registry has it: build it (nox -s image -- VERSION), put it where every "
    "node sees it, and name it under images: in slurm.yaml (docs/slurm.md)",
    Exclusion.OTHER_GPU: "add it to gpus: in slurm.yaml, if the site has it",
}  # fmt: skip
"""What mends on a site what is mended otherwise on one host."""


def examine_site(args: argparse.Namespace, context: Context) -> Findings:
    """Look at the site and its shared folder; nothing is submitted."""
    site, folder = open_site(args, context)
    slurm = Slurm()
    facts = look_at_site(site, slurm, folder)
    if not (facts.away or facts.folder_trouble):
        facts = replace(facts, left=left_arrays(folder, slurm))
    findings = list(site_findings(facts, site))
    refused = {each.gpu: each.refused for each in facts.requests if each.refused and each.gpu}
    other = {gpu.name for gpu in site.gpus if is_other_model(facts, site, gpu)}
    if facts.folder_trouble:
        return Findings(findings=tuple(findings), can_run=(), cannot=())
    context, cluster = open_cluster(context, site, folder)
    scene = look_around(context, Pull.NAMED, cluster)
    there = scene.plan.away
    away = "Slurm does not answer" if facts.away else ""
    able = [launch for launch in there if not (away or launch.gpu.name in refused.keys() | other)]
    kept = [launch for launch in there if launch not in able]
    return Findings(
        findings=(*findings, image_finding(context, cluster)),
        can_run=(
            *(
                f"{launch.version.name} on {launch.gpu.name}: {counted(len(launch.cells), 'cell')}"
                for launch in able
            ),
            *(can_run_line(launch) for launch in scene.plan.here),
        ),
        cannot=(
            *(
                f"{counted(len(each.cells), 'cell')} of {each.version.name} on {each.gpu.name}: see above"
                for each in kept
            ),
            *cannot_lines(scene.plan.excluded, (), REMEDIES),
        ),
    )  # fmt: skip


def left_arrays(folder: SharedFolder, slurm: Slurm) -> tuple[LeftArray, ...]:
    """Return the arrays that no client follows; none where Slurm has stopped answering meanwhile."""
    try:
        jobs = slurm.jobs()
    except MachineryError:
        return ()
    with folder.lock():
        found = orphans(folder, jobs)
    return tuple(
        LeftArray(
            key=orphan.manifest.key, cells=len(orphan.cells), version=orphan.manifest.version,
            gpu=orphan.manifest.gpu, jobs=orphan.jobs, end=orphan.end,
        )
        for orphan in found
    )  # fmt: skip


def image_finding(context: Context, cluster: Cluster) -> Finding:
    """Return which images are on the shared folder; the site's own count once their import was run."""
    versions = [
        version for version in select_versions(context.matrix, context.selection)
        if isinstance(version.origin, ImageOrigin)
    ]  # fmt: skip
    held = [v.name for v in versions if cluster.folder.image(cluster.key_of(v)) is not None]
    names = f": {', '.join(held[:8])}{', …' if len(held) > 8 else ''}" if held else ""
    return Finding(
        level=Level.GOOD if held else Level.LACKING, what="images on the shared folder",
        found=f"{len(held)} of {len(versions)}{names}", rule="slurm-import",
        remedy="" if held else "name versions by --trt: a job imports each image once",
    )  # fmt: skip
