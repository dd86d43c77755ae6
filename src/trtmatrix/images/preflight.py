"""Preflight: what can be known to fail is left out before anything is pulled; doctor: what a host can run."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtmatrix.common.text import counted
from trtmatrix.images.checks import (
    LOW,
    RULES,
    Finding,
    HostFacts,
    Level,
    Room,
    Wants,
    check,
    find_downloads,
    finding_lines,
    restrict,
    rule_of,
)
from trtmatrix.launchers.container import Limits
from trtmatrix.launchers.references import RegistryError, parse_reference
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import estimate_seconds, order_launches
from trtmatrix.plan.survey import Survey
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Engine, Excluded, Keep, Launch, Pull, count_excluded, is_own, make_plan

ASK_SECONDS = (5.0, 5.0)  # to connect to a registry, and between two pieces of its answer
SECONDS = 20.0  # for all registries together: one that sends a byte now and then would never end
ATTEMPTS = 2


def preflight(context: Context, survey: Survey, wants: Wants) -> tuple[Survey, tuple[Finding, ...]]:
    """Hold the facts that the wanted launches hang on against every rule; with ``--offline`` nobody is asked.

    Returns the survey, whose plan then holds only what can run, and what is to be told.
    """
    facts = gather(context, survey, wants.launches)
    excluded, findings = check(facts, wants)
    troubled = [item for item in disk_findings(facts) if item.level is Level.TROUBLE and wants.launches]
    restricted = replace(survey, plan=restrict(survey.plan, excluded))
    return restricted, (*findings, *troubled)


def find_wants(
    context: Context, survey: Survey, *, keep: Keep = Keep.ALL, memory: int = Limits().memory
) -> Wants:
    """Return what a plan wants, images in the order in which they start; see :class:`Wants`."""
    todo = survey.plan.launches
    seconds = estimate_seconds([cell for launch in todo for cell in launch.cells], survey.stored)
    launches = order_launches(todo, seconds, lambda launch: not launch.lacks_image)
    return Wants(launches=tuple(launches), lock=context.lock, keep=keep, memory=memory)


def gather(context: Context, survey: Survey, launches: Sequence[Launch]) -> HostFacts:
    """Look at what the launches hang on; registries are asked for what is to be pulled alone."""
    engine, project = survey.host.engine, context.project
    # Where the engine keeps images; None where that is on another host.
    images = find_room(Path(engine.root)) if engine.root and Path(engine.root).is_dir() else None
    silent = context.offline or not engine.is_daemon  # whose logins for registries are its own
    downloads = find_downloads(launches, context.lock, engine)
    asks = [] if silent else [each.reference for each in downloads if each.reference]
    answers: Mapping[str, str | RegistryError] = {}
    if asks:
        from trtmatrix.images.registry import Registry, ask_registries  # slow to import

        registry = Registry(insecure=engine.insecure, attempts=ATTEMPTS, seconds=ASK_SECONDS)
        answers = ask_registries(registry.check, asks, seconds=SECONDS)
    return HostFacts(
        engine=engine, gpus=survey.scan.gpus, scan_reason=survey.scan.reason,
        images=images, cache=find_room(project.cache), results=find_room(project.results),
        answers=answers,
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


# --- Doctor


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was looked at, and what it lets run."""

    findings: tuple[Finding, ...]
    can_run: tuple[str, ...]
    cannot: tuple[str, ...]


def examine(context: Context, survey: Survey) -> Findings:
    """Look at engine, GPUs, images, registries, disk and memory. Touches nothing.

    Registries and room are looked at as if all images that can be of use here were to be had.
    """
    everything = replace(survey, plan=make_plan(survey.cells, survey.host, context.selection, Pull.ALL))
    wants = find_wants(context, everything)
    facts = gather(context, everything, wants.launches)
    versions = select_versions(context.matrix, context.selection)
    findings = (*host_findings(facts, versions), *check(facts, wants)[1])
    excluded, _ = check(facts, find_wants(context, survey))
    plan, told = restrict(survey.plan, excluded), {item.why for item in excluded}
    told |= set() if facts.engine.available else {Exclusion.NO_ENGINE}
    return conclude(findings, plan.launches, plan.excluded, told)


def conclude(
    findings: Iterable[Finding], launches: Iterable[Launch], excluded: Sequence[Excluded],
    told: Collection[Exclusion] = (),
) -> Findings:  # fmt: skip
    """Return findings with what can be run, and why the rest cannot.

    Also what mends that, where the findings have not ``told`` so.
    """
    can_run, cannot = list[str](), list[str]()
    for launch in launches:
        how = "built" if launch.build else "pulled" if launch.pull else ""
        first = f" (its image is {how} first)" if how else ""
        can_run.append(
            f"{launch.version.name} on {launch.gpu.name}: {counted(len(launch.cells), 'cell')}{first}"
        )
    for why, count, detail in count_excluded(excluded):
        rule = rule_of(why)
        remedy = "see above" if why in told else rule.mends if rule else ""
        words = f"{why.value}{f' ({detail})' if detail else ''}; {remedy}".rstrip("; ")
        cannot.append(f"{counted(count, 'cell')}: {words}")
    return Findings(findings=tuple(findings), can_run=tuple(can_run), cannot=tuple(cannot))


def doctor_text(findings: Findings) -> str:
    """Return the findings for a terminal."""
    lines = list(finding_lines(findings.findings))
    lines += ["", "This lets run:", *(f"  {line}" for line in findings.can_run or ("nothing",))]
    if findings.cannot:
        lines += ["", "Not here:", *(f"  {line}" for line in findings.cannot)]
    return "\n".join(lines)


def host_findings(facts: HostFacts, versions: Sequence[Version]) -> Iterator[Finding]:
    """Yield how everything stands that a run needs of a host."""
    engine = facts.engine
    access = engine.gpu_access.value if engine.gpu_access else "none"
    found = f"{engine.name} {engine.version}; containers get GPUs by: {access}"
    if not engine.available:
        yield RULES["engine"].finding(engine.reason, remedy=engine.remedy or RULES["engine"].mends)
    elif facts.gpus and engine.gpu_access is None:
        yield RULES["gpu-access"].finding(found, Level.TROUBLE)
    else:
        yield RULES["engine"].finding(found, Level.GOOD)
    if engine.unlimited:
        yield RULES["engine-limits"].finding(f"{engine.name} cannot limit {', '.join(engine.unlimited)} here")
    if not facts.gpus:
        yield RULES["gpu"].finding(facts.scan_reason)
    for gpu in facts.gpus:
        found = f"{gpu.name}, {gpu.variant}, compute capability {gpu.compute}, driver {gpu.driver}"
        yield RULES["gpu"].finding(found, Level.GOOD, what=f"GPU {gpu.index}")
    for version in versions:
        if isinstance(version.origin, ImageOrigin):
            yield image_finding(version, version.origin, engine)
    hosts = Counter(parse_reference(reference).host for reference in facts.answers)
    lacking = {answer.host for answer in facts.answers.values() if isinstance(answer, RegistryError)}
    for host, count in hosts.items():
        if host not in lacking:  # which are told by what they prevent
            has = f"{host} answers, and has the {counted(count, 'image')} to be pulled"
            yield RULES["registry"].finding(has, Level.GOOD)
    yield from disk_findings(facts)
    if facts.images is not None:
        yield RULES["disk-images"].finding(facts.images.told, Level.GOOD)


def image_finding(version: Version, origin: ImageOrigin, engine: Engine) -> Finding:
    """Return whether the image of a version is here, and whether it is pinned."""
    held, what = engine.held(origin), f"image of {version.name}"
    pinned = origin.pin is not None or origin.build is not None or "@sha256:" in origin.image
    loose = "" if pinned else " (not locked)"
    if held is not None:
        level = Level.GOOD if pinned else Level.LACKING
        return RULES["lock"].finding(f"{origin.image}: {held[:19]}{loose}", level, what=what)
    made = origin.build is not None or is_own(origin.image)
    absent = (Exclusion.IMAGE_NOT_BUILT if made else Exclusion.IMAGE_NOT_PULLED).value
    remedy = RULES["image"].mends
    if not engine.available:
        absent, remedy = "unknown: no container engine", ""
    elif made and origin.build is None:
        remedy = "make it on this host (docker/README.md)"
    found = f"{origin.image}: {absent}{loose}"
    return RULES["image"].finding(found, what=what, remedy=remedy, prevents="")
