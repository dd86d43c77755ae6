"""The scripts that run on nodes: one for the tasks of an array, one for the import of an image. Pure.

Each begins with what it is told, quoted; the rest of its text is the same for every image and every GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from trtmatrix.core.container import COMPAT, ROOT, Limits, container_environment, probe_command
from trtmatrix.core.slurm import script_apptainer, script_docker, script_image, script_pyxis, script_task
from trtmatrix.core.slurm.images import FILES
from trtmatrix.core.slurm.layout import array_folder, image_folder
from trtmatrix.core.slurm.script_base import BASE
from trtmatrix.core.slurm.script_child import CHILD
from trtmatrix.core.slurm.script_gpu import GPU
from trtmatrix.core.slurm.shell import assign, assign_words
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.core.slurm.submission import warned
from trtmatrix.core.slurm.words import FACTS


@dataclass(frozen=True, kw_only=True)
class TaskScript:
    """What the script of an array's tasks is made from.

    ``slug``: the wanted GPU, as cells name it; ``image``, ``suite``: the keys of the shared image and suite,
    as the manifest has them; ``minutes``: the ``--time`` that its jobs are submitted with; ``driver_least``:
    the least driver that runs the version without its image's own driver library, empty where any does.
    """

    site: Site
    gpu: SiteGpu
    slug: str
    key: str
    version: str
    image: str
    suite: str
    minutes: int
    driver_least: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class ImportScript:
    """What the script of an import is made from.

    ``key``: of the shared image; ``reference``: as a registry or the node's engine knows it; ``file``: one
    that is there already and stands for it, else empty; ``ids``: under which it may be known (the pin's),
    empty where it is not locked; ``config``: the digest of its configuration, where matrix.lock has that.
    """

    site: Site
    key: str
    reference: str
    file: str = ""
    ids: tuple[str, ...] = ()
    config: str = ""


def task_script(spec: TaskScript) -> str:
    """Return the text of ``task.sh``: ``task.sh ATTEMPT`` runs the task that Slurm numbers it."""
    site, shared = spec.site, spec.site.shared
    suite = f"{shared}/suite/{spec.suite}"
    mounts = {
        f"{suite}/trtprobe": f"{ROOT}/trtprobe", f"{suite}/repros": f"{ROOT}/repros",
        f"{shared}/cases": f"{ROOT}/cases",
    }  # fmt: skip
    told = [
        assign("array_folder", array_folder(shared, spec.key)), assign("scratch", site.scratch),
        assign("image_folder", image_folder(shared, spec.image)),
        assign("minutes", spec.minutes), assign("warned", warned(spec.minutes)),
        assign("gpu_slug", spec.slug),
        assign("gpu_name", spec.gpu.name), assign("gpu_gres", spec.gpu.gres),
        assign("gpu_facts", ",".join(FACTS)), assign("driver_least", spec.driver_least),
        assign("compat", f"TRTMATRIX_CUDA_COMPAT={COMPAT}"), assign_words("suite_folders", mounts),
        assign_words("probe", probe_command("python3", ROOT)), *_task_told(spec, mounts),
    ]  # fmt: skip
    opening = f"trtmatrix: the tasks of array {spec.key}, version {spec.version}"
    parts = [BASE, *script_task.PARTS, GPU, script_image.READ_IMAGE, _task_runtime(site)]
    return _script(site, opening, told, parts, script_task.MAIN)


def import_script(spec: ImportScript) -> str:
    """Return the text of an import's script: ``import.sh ATTEMPT`` has one image on the shared folder."""
    site, images = spec.site, f"{spec.site.shared}/images"
    file = spec.file or f"{image_folder(site.shared, spec.key)}/image{FILES[site.runtime]}"
    told = [
        assign("images", images), assign("scratch", site.scratch),
        assign("image_key", spec.key), assign("reference", spec.reference),
        assign("source_file", spec.file), assign_words("image_ids", spec.ids or ("",)),
        assign_words("image_uris", _uris(spec)),
        assign("image_config", spec.config), assign("minutes", site.limits.import_minutes),
        assign("warned", warned(site.limits.import_minutes)),
        assign("reference_json", json.dumps(spec.reference)), assign("file_json", json.dumps(file)),
    ]  # fmt: skip
    opening = f"trtmatrix: the import of {spec.reference or spec.file}"
    parts = [BASE, script_image.IMPORT, _import_runtime(site)]
    return _script(site, opening, told, parts, "stage='the image was fetched'\nhave_image\nexit 0\n")


LINT = "# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word"


def _script(site: Site, opening: str, told: list[str], parts: list[str], main: str) -> str:
    comment = " ".join(opening.split())
    stage = "kind=setup stage='the lines of setup in the settings of the site were run'"
    trap = 'trap \'setup_failed "$?" "$BASH_COMMAND"\' ERR'
    setup = ["", stage, trap, *site.setup, "trap - ERR", "check_environment"]
    lines = ["#!/bin/bash", f"# {comment}. Made by a program: changes are lost.", LINT, "", *told, ""]
    return "\n".join(
        [*lines, *(part.strip("\n") + "\n" for part in parts), "begin", *setup, "", main.strip("\n"), ""]
    )


def _task_told(spec: TaskScript, mounts: dict[str, str]) -> list[str]:
    """Return what the runtime's part of a task's script is told."""
    site = spec.site
    environment = (f"{name}={value}" for name, value in container_environment(toolkit=True).items())
    match site.runtime:
        case NodeRuntime.DOCKER:
            words = script_docker.create_words(
                spec.version, spec.limits, site.access, mounts, site.driver_folder
            )
            return [
                assign_words("create_words", words), assign_words("emptied", script_docker.EMPTIED),
                assign("gpu_access", site.access.name), assign("container_name", f"trtmatrix-{spec.key}"),
            ]  # fmt: skip
        case NodeRuntime.PYXIS:
            joined = ",".join(f"{host}:{inside}:ro" for host, inside in mounts.items())
            return [
                assign_words("srun_words", script_pyxis.srun_words()), assign("read_only_mounts", joined),
                assign_words("emptied", script_pyxis.EMPTIED), assign_words("environment", environment),
            ]  # fmt: skip
        case NodeRuntime.APPTAINER:
            return [
                assign_words("exec_words", script_apptainer.exec_words(mounts)),
                assign_words("emptied", script_apptainer.EMPTIED), assign_words("environment", environment),
            ]  # fmt: skip


def _task_runtime(site: Site) -> str:
    match site.runtime:
        case NodeRuntime.DOCKER:
            return script_docker.DOCKER
        case NodeRuntime.PYXIS:
            return CHILD.strip("\n") + "\n" + script_pyxis.PYXIS
        case NodeRuntime.APPTAINER:
            return CHILD.strip("\n") + "\n" + script_apptainer.APPTAINER


def _import_runtime(site: Site) -> str:
    match site.runtime:
        case NodeRuntime.DOCKER:
            return script_docker.IMPORT
        case NodeRuntime.PYXIS:
            return script_pyxis.IMPORT
        case NodeRuntime.APPTAINER:
            return script_apptainer.IMPORT


def _uris(spec: ImportScript) -> tuple[str, ...]:
    """Return the image's name in the runtime's own words, the likeliest first."""
    match spec.site.runtime:
        case NodeRuntime.DOCKER:
            return (spec.reference,)
        case NodeRuntime.PYXIS:
            return script_pyxis.enroot_uris(spec.reference)
        case NodeRuntime.APPTAINER:
            return (script_apptainer.apptainer_uri(spec.reference),)
