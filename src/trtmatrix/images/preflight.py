"""Preflight: everything that can be known to fail is known, and left out, before anything is pulled."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtmatrix.images.checks import HostFacts, Wants, check, restrict
from trtmatrix.images.downloads import LOW, Room, find_downloads
from trtmatrix.images.rules import RULES, Finding, Level
from trtmatrix.launchers.container import Limits
from trtmatrix.launchers.references import RegistryError
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import estimate_seconds, order_launches
from trtmatrix.plan.survey import Survey
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Keep, Launch

ASK_SECONDS = (5.0, 5.0)
"""To connect to a registry, and between two pieces of its answer."""
SECONDS = 20.0
"""For all registries together: one that sends a byte now and then would never end."""
ATTEMPTS = 2
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What came of it: the survey, whose plan holds only what can run, and what is to be told."""

    survey: Survey
    findings: tuple[Finding, ...]


def preflight(context: Context, survey: Survey, wants: Wants) -> Preflight:
    """Gather the facts that the wanted launches hang on, and hold them against every rule.

    With ``--offline`` nobody is asked.
    """
    facts = gather(context, survey, wants.launches)
    checked = check(facts, wants)
    troubled = [item for item in disk_findings(facts) if item.level is Level.TROUBLE and wants.launches]
    restricted = replace(survey, plan=restrict(survey.plan, checked.excluded))
    return Preflight(survey=restricted, findings=(*checked.findings, *troubled))


def find_wants(
    context: Context, survey: Survey, served: Collection[CellId] = (), *, keep: Keep = Keep.ALL,
    memory: int = Limits().memory, is_here: Callable[[Launch], bool] = lambda launch: not launch.lacks_image,
) -> Wants:  # fmt: skip
    """Return the launches with the cells that are to be run, in the order in which they start.

    Cells that are ``served`` from the store need nothing. ``keep``, ``memory``: see :class:`Wants`;
    ``is_here``: whether a launch starts without a pull or an installation.
    """
    todo = survey.plan.without(served)
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], survey.stored)
    return Wants(
        launches=tuple(order_launches(todo, seconds, is_here)), lock=context.lock, keep=keep,
        memory=memory, registry=context.matrix.registry,
    )  # fmt: skip


def gather(context: Context, survey: Survey, launches: Sequence[Launch]) -> HostFacts:
    """Look at what the launches hang on; registries are asked for what is to be pulled alone."""
    engine, project, memory = survey.host.engine, context.project, dict[str, int]()
    # Where the engine keeps images; None where that is on another host.
    images = find_room(Path(engine.root)) if engine.root and Path(engine.root).is_dir() else None
    silent = context.offline or not engine.is_daemon  # whose logins for registries are its own
    downloads = find_downloads(launches, context.lock, engine, context.matrix.registry)
    asks = () if silent else tuple(dict.fromkeys(each.reference for each in downloads if each.reference))
    with contextlib.suppress(OSError):  # a host may not say what memory it has
        lines = (line.split() for line in MEMORY.read_text().splitlines())
        memory = {name: int(kilobytes) << 10 for name, kilobytes, *_ in lines}
    return HostFacts(
        engine=engine, gpus=survey.scan.gpus, scan_reason=survey.scan.reason,
        images=images, cache=find_room(project.cache), results=find_room(project.results),
        memory=memory.get("MemTotal:", 0), available=memory.get("MemAvailable:", 0),
        answers=ask_for(asks, engine.insecure),
    )  # fmt: skip


def disk_findings(facts: HostFacts) -> Iterator[Finding]:
    """Yield how much is free for cache and results."""
    for room in (facts.cache, facts.results):
        yield RULES["disk"].finding(room.told, Level.TROUBLE if room.free < LOW else Level.GOOD)


def find_room(path: Path) -> Room:
    """Return what is free where a folder is, or will be made."""
    there = path.resolve()
    existing = next(parent for parent in (there, *there.parents) if parent.exists())
    return Room(path=str(path), free=shutil.disk_usage(existing).free)


def ask_for(
    references: Sequence[str], insecure: Sequence[str], seconds: float = SECONDS
) -> dict[str, RegistryError | None]:
    """Ask for every reference at the same time; returns what is wrong with each, or None."""
    if not references:
        return {}
    from trtmatrix.images.registry import Registry, ask_registries  # slow to import

    registry = Registry(insecure=insecure, attempts=ATTEMPTS, seconds=ASK_SECONDS)
    found = ask_registries(registry.check, references, seconds=seconds)
    return {each: answer if isinstance(answer, RegistryError) else None for each, answer in found.items()}
