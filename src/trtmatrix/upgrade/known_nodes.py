"""What repros know of the nodes of the user's model, as lines of an upgrade report. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trtmatrix.model.static_check import (
    NodeGroup,
    StaticCheck,
    describe_versions,
    name_nodes,
    short_source,
    sum_up,
)
from trtmatrix.upgrade.report import FactLine, ModelSection, Source, Weight, count


def with_nodes(section: ModelSection, check: StaticCheck, before: str, after: str) -> ModelSection:
    """Return a model's section with what is known of its nodes at the two versions of a move."""
    told = f"{count(check.nodes, 'node')} held against {count(check.rules, 'rule')}: {sum_up(check)}"
    lines = tuple(_tell(group, before, after) for group in check.groups)
    return replace(section, facts=(*section.facts, ("nodes", told)), nodes=lines)


def _tell(group: NodeGroup, before: str, after: str) -> FactLine:
    """Return the line of a group: what becomes known to fail at the version moved to counts against it."""
    was, will = group.at_version(before), group.at_version(after)
    failed, fails = was is not None and was.is_sure, will is not None and will.is_sure
    if fails:
        change = f"broken in both {before} and {after}" if failed else f"new at {after}"
    else:
        change = f"nothing known at {after}" if will is None else f"feared at {after}"
    parts = [group.what, change, describe_versions(group.at)]
    parts += [f"instead: {group.instead}"] if group.instead else []
    shown, weight = will or was, Weight.AGAINST if fails and not failed else Weight.NOTE
    return FactLine(
        topic=name_nodes(group), text="; ".join(parts), weight=weight, known=shown.known if shown else "none",
        sources=tuple(_sources(group)),
    )  # fmt: skip


def _sources(group: NodeGroup) -> Iterator[Source]:
    for address in dict.fromkeys(item.source for item in group.at):
        yield Source(title=short_source(address), url=address)
