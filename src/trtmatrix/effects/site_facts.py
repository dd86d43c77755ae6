"""Looks at a site: Slurm, what sbatch would take, the shared folder, epilogs. Submits nothing."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from trtmatrix.core.errors import MachineryError, TrtMatrixError, UsageError
from trtmatrix.core.slurm.controller import parse_config, parse_nodes, parse_partitions
from trtmatrix.core.slurm.facts import Request, SiteFacts
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.core.slurm.sitevalues import LEAST_MEMORY
from trtmatrix.core.slurm.submission import array_words, import_words
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Refused, Slurm
from trtmatrix.effects.slurm_commands import INSTALL, Run, run_command

SECONDS = 60.0
WHOLE = "--wrap=true"
"""Stands for the script of a job that is only asked about."""
KEY = "doctor"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")


def look_at_site(
    site: Site, slurm: Slurm, folder: SharedFolder, run: Run = run_command,
    which: Callable[[str], str | None] = shutil.which,
) -> SiteFacts:  # fmt: skip
    """Return what was found; trouble with Slurm or with the folder is a fact, and no error."""
    facts = _folder_facts(folder)
    try:
        if missing := [name for name in COMMANDS if which(name) is None]:
            raise UsageError(f"{', '.join(missing)}: not on this host\n  {INSTALL}")
        slurm.jobs()
        config = parse_config(_ask(run, "show", "config"))
        facts = replace(
            facts, config=config, json=slurm.json,
            nodes=parse_nodes(_ask(run, "show", "nodes", "--oneliner")),
            partitions=parse_partitions(_ask(run, "show", "partition", "--oneliner")),
            accounting=config.accounting not in {"", "accounting_storage/none"},
            requests=tuple(_requests(site, slurm)), epilogs=read_epilogs(config.epilogs),
            pyxis=_has_pyxis(run) if site.runtime is NodeRuntime.PYXIS else None,
        )  # fmt: skip
    except TrtMatrixError as error:
        words, _, remedy = str(error).partition("\n")
        return replace(facts, away=words, away_remedy=remedy.strip())
    return facts


def _ask(run: Run, *words: str) -> str:
    """Return what scontrol says, nothing where it refuses: a site may hide its nodes."""
    answer = run(["scontrol", *words], SECONDS)
    return "" if answer.code else answer.out


def _folder_facts(folder: SharedFolder) -> SiteFacts:
    try:
        room = folder.check()
        nodes = tuple(folder.boards())
    except TrtMatrixError as error:
        return SiteFacts(folder_trouble=str(error))
    return SiteFacts(folder_kind=room.kind, folder_free=room.free, seen=nodes)


def _has_pyxis(run: Run) -> bool | None:
    """Whether srun knows pyxis' options on this host: a plugin's are told by --help. None: nobody can say.

    Nothing else needs srun here: what is without it is no cluster that is away.
    """
    try:
        return "--container-image" in run(["srun", "--help"], SECONDS).out
    except (MachineryError, UsageError):
        return None


def read_epilogs(patterns: tuple[str, ...]) -> Mapping[str, str | None]:
    """Return the text of each epilog; None for one that is not here or not to be read: nodes may have it."""
    texts: dict[str, str | None] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)) or [pattern]:  # noqa: PTH207 - a whole path with a pattern
            try:
                texts[path] = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                texts[path] = None
    return texts


def _requests(site: Site, slurm: Slurm) -> Iterator[Request]:
    """Yield what sbatch says of a job for each GPU, and of an import. Nothing is submitted."""
    for gpu in site.gpus:
        yield _request(slurm, _gpu_words(site, gpu), gpu.name, _gpu_without(site, gpu))
    yield _request(slurm, import_words(site, key=KEY, attempt=0), "", _import_without(site))


def _request(slurm: Slurm, words: tuple[str, ...], gpu: str, others: Mapping[str, Words]) -> Request:
    try:
        return Request(gpu=gpu, when=slurm.test(words, WHOLE))
    except Refused as error:
        refused, _, remedy = str(error).partition("\n")
    because = tuple(key for key, other in others.items() if _is_taken(slurm, other()))
    return Request(
        gpu=gpu, refused=refused.removeprefix("sbatch refused the job: "), remedy=remedy.strip(),
        because=because,
    )  # fmt: skip


def _is_taken(slurm: Slurm, words: tuple[str, ...]) -> bool:
    try:
        slurm.test(words, WHOLE)
    except Refused:
        return False
    return True


Words = Callable[[], tuple[str, ...]]
"""Words of sbatch, made when they are wanted."""


def _gpu_without(site: Site, gpu: SiteGpu) -> Mapping[str, Words]:
    """Return by key of the site file the words of a job that does without it, to find which is refused.

    Slurm says the same of a GPU, of memory and of cores that no node has.
    """
    gpus = {"constraint": replace(gpu, constraint=""), "partition": replace(gpu, partition=""),
            "account": replace(gpu, account=""), "qos": replace(gpu, qos="")}  # fmt: skip
    found: dict[str, Words] = {f"gres: {gpu.gres}": lambda: tuple(
        word for word in _gpu_words(site, gpu) if not word.startswith("--gres="))}  # fmt: skip
    for key, other in gpus.items():
        if other != gpu:
            found[f"{key}: {getattr(gpu, key)}"] = partial(_gpu_words, site, other)
    if gpu.options:
        found["options of this GPU"] = partial(_gpu_words, site, replace(gpu, options=()))
    for key, smaller in _smaller(site, "memory", "cpus", "minutes"):
        found[key] = partial(_gpu_words, smaller, gpu)
    return found


def _gpu_words(site: Site, gpu: SiteGpu) -> tuple[str, ...]:
    return array_words(site, gpu, key=KEY, tasks=[0], attempt=0, minutes=site.limits.minutes)


def _import_without(site: Site) -> Mapping[str, Words]:
    sites = dict(_smaller(site, "memory", "cpus", "import_minutes"))
    if site.import_options:
        sites["import_options"] = replace(site, import_options=())
    return {key: partial(import_words, other, key=KEY, attempt=0) for key, other in sites.items()}


def _smaller(site: Site, *keys: str) -> Iterator[tuple[str, Site]]:
    """Yield by key sites that ask for next to nothing by it."""
    for key in keys:
        least = LEAST_MEMORY if key == "memory" else 1
        if getattr(site.limits, key) > least:
            yield f"limits.{key}", replace(site, limits=replace(site.limits, **{key: least}))
    if site.options:
        yield "options", replace(site, options=())
