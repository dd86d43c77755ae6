"""Doctor: what was found on this host, what that lets run, what to do about the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trtmatrix.context import Context
from trtmatrix.core.expand import select_versions
from trtmatrix.core.model import Exclusion
from trtmatrix.core.plan import Excluded, Launch, Pull, count_excluded, make_plan
from trtmatrix.core.preflight.checks import check, restrict
from trtmatrix.core.preflight.finding import Finding, finding_lines
from trtmatrix.core.preflight.host import host_findings
from trtmatrix.core.preflight.rules import remedy_of
from trtmatrix.perform import Options
from trtmatrix.preflighting import find_wants, gather
from trtmatrix.scene import Scene

NO_REMEDIES: Mapping[Exclusion, str] = {}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was looked at, what it lets run, and how the controls came out where they were run."""

    findings: tuple[Finding, ...]
    can_run: tuple[str, ...]
    cannot: tuple[str, ...]
    controls: tuple[Finding, ...] = ()


def examine(context: Context, scene: Scene) -> Findings:
    """Look at engine, GPUs, images, registries, disk and memory. Touches nothing.

    Registries and room are looked at as if all images that can be of use here were to be had.
    """
    everything = replace(scene, plan=make_plan(scene.cells, scene.host, context.selection, Pull.ALL))
    wants = find_wants(context, everything, Options(), frozenset())
    facts = gather(context, everything, wants.launches)
    versions = select_versions(context.matrix, context.selection)
    findings = [*host_findings(facts, wants, versions), *check(facts, wants).findings]
    checked = check(facts, find_wants(context, scene, Options(), frozenset()))
    plan = restrict(scene.plan, checked.excluded)
    told = {item.why for item in checked.excluded}
    if not facts.engine.available:
        told.add(Exclusion.NO_ENGINE)
    cannot = cannot_lines(plan.excluded, told)
    return Findings(
        findings=tuple(findings), can_run=tuple(can_run_line(x) for x in plan.launches), cannot=tuple(cannot)
    )


def can_run_line(launch: Launch) -> str:
    """Return what of a version this host can run."""
    first = " (its image is pulled first)" if launch.pull else ""
    first = " (its image is built first)" if launch.build else first
    return f"{launch.version.name} on {launch.gpu.name}: {len(launch.cells)} cells{first}"


def cannot_lines(
    excluded: Sequence[Excluded], told: Collection[Exclusion],
    remedies: Mapping[Exclusion, str] = NO_REMEDIES,
) -> list[str]:  # fmt: skip
    """Return why cells are not run, with what mends it where the findings have not ``told`` so.

    ``remedies``: those that are others than on one host.
    """
    return [
        f"{count} cells: {why.value}{f' ({detail})' if detail else ''}; "
        f"{'see above' if why in told else remedies.get(why) or remedy_of(why)}".rstrip("; ")
        for why, count, detail in count_excluded(excluded)
    ]


def doctor_text(findings: Findings) -> str:
    """Return the findings for a terminal."""
    lines = list(finding_lines(findings.findings))
    lines += ["", "This lets run:", *(f"  {line}" for line in findings.can_run or ("nothing",))]
    if findings.cannot:
        lines += ["", "Not here:", *(f"  {line}" for line in findings.cannot)]
    if findings.controls:
        lines += ["", *finding_lines(findings.controls)]
    return "\n".join(lines)


def doctor_json(findings: Findings) -> dict[str, Any]:
    """Return the findings as plain data."""
    return asdict(findings)
