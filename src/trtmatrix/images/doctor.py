"""Doctor: what was found on this host, what that lets run, what to do about the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from trtmatrix.common.text import counted
from trtmatrix.images.checks import HostFacts, Wants, check, restrict
from trtmatrix.images.downloads import gigabytes
from trtmatrix.images.preflight import disk_findings, find_wants, gather
from trtmatrix.images.rules import RULES, Finding, Level, finding_lines, rule_of
from trtmatrix.launchers.references import parse_reference
from trtmatrix.plan.context import Context
from trtmatrix.plan.survey import Survey
from trtmatrix.suite.cells import select_versions
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Engine, Excluded, Launch, Pull, count_excluded, is_own, make_plan


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
    findings = (*host_findings(facts, wants, versions), *check(facts, wants).findings)
    checked = check(facts, find_wants(context, survey))
    plan = restrict(survey.plan, checked.excluded)
    told = {item.why for item in checked.excluded}
    told |= set() if facts.engine.available else {Exclusion.NO_ENGINE}
    can_run = tuple(map(can_run_line, plan.launches))
    return Findings(findings=findings, can_run=can_run, cannot=tuple(cannot_lines(plan.excluded, told)))


def can_run_line(launch: Launch) -> str:
    """Return what of a version this host can run."""
    how = "built" if launch.build else "pulled" if launch.pull else ""
    first = f" (its image is {how} first)" if how else ""
    return f"{launch.version.name} on {launch.gpu.name}: {counted(len(launch.cells), 'cell')}{first}"


def cannot_lines(excluded: Sequence[Excluded], told: Collection[Exclusion]) -> Iterator[str]:
    """Yield why cells are not run, with what mends it where the findings have not ``told`` so."""
    for why, count, detail in count_excluded(excluded):
        rule = rule_of(why)
        remedy = "see above" if why in told else rule.mends if rule else ""
        yield f"{counted(count, 'cell')}: {why.value}{f' ({detail})' if detail else ''}; {remedy}".rstrip(
            "; "
        )


def doctor_text(findings: Findings) -> str:
    """Return the findings for a terminal."""
    lines = list(finding_lines(findings.findings))
    lines += ["", "This lets run:", *(f"  {line}" for line in findings.can_run or ("nothing",))]
    if findings.cannot:
        lines += ["", "Not here:", *(f"  {line}" for line in findings.cannot)]
    return "\n".join(lines)


def host_findings(facts: HostFacts, wants: Wants, versions: Sequence[Version]) -> Iterator[Finding]:
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
    hosts = defaultdict(list)
    for reference, trouble in facts.answers.items():
        hosts[parse_reference(reference).host].append(trouble)
    for host, troubles in hosts.items():
        if not any(troubles):  # others are told by what they prevent
            has = f"{host} answers, and has the {counted(len(troubles), 'image')} to be pulled"
            yield RULES["registry"].finding(has, Level.GOOD)
    yield from disk_findings(facts)
    if facts.images is not None:
        yield RULES["disk-images"].finding(facts.images.told, Level.GOOD)
    found = f"{gigabytes(facts.available)} of {gigabytes(facts.memory)} available"
    if wants.memory <= (engine.memory or facts.memory or wants.memory):
        yield RULES["memory"].finding(found, Level.GOOD)
    else:
        limit = f"a container's limit is {gigabytes(wants.memory)}, more than there is"
        yield RULES["memory"].finding(f"{found}; {limit}")


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
