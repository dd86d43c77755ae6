"""What repros know of a model's nodes, by its graph alone: on one screen or as JSON; nothing is run. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

import onnx
from onnx import NodeProto

from trtmatrix.common.text import counted, name_source, one_line
from trtmatrix.onnxmodel.graphs import OWN, all_nodes, opset_of
from trtmatrix.onnxmodel.matching import Wiring, find_places, make_wirings
from trtmatrix.records.operators import OperatorRecord
from trtmatrix.suite.model import release_of
from trtmatrix.suite.repros import Effect, Facts, Rule

UNSURE = "its axes or sizes, which the file does not tell, are such"
"""What it depends on where a condition could not be looked at."""

SCHEMA = 2
"""The number of the JSON's shape."""

HEIGHT, NAMED = 40, 3
"""Lines of a screen, and the nodes of a group that it names."""

LIMITS = (
    "what hangs on values, on sizes that the file does not tell, or on the precision asked of the build; "
    "plugins; speed"
)
"""What no rule can tell."""
UNTESTED = "operators that {} may lack, but for those that a rule names (ONNX's tests were not run there)"

TESTS = "https://github.com/onnx/onnx/tree/main/onnx/backend/test"
"""Where the tests are from that tell which operators a version's parser knows."""


@dataclass(frozen=True, kw_only=True)
class NodeAt:
    """What becomes of nodes at a version. ``known``: measured, reported, read or assumed; ``on``: which GPU.

    ``depends``: what else it takes, which no graph tells. ``source``: the address that says so.
    """

    effect: Effect
    known: str
    source: str
    on: str = ""
    depends: str = ""

    @property
    def is_sure(self) -> bool:
        """Whether it is known, and not merely feared."""
        return self.known != "assumed" and not self.depends


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one operator that one rule describes: their names in the graph's order, what is with them."""

    repro: str
    operator: str
    nodes: tuple[str, ...]
    what: str
    instead: str
    at: Mapping[str, NodeAt]


@dataclass(frozen=True, kw_only=True)
class StaticCheck:
    """A model held against the rules of the repros, for these versions in the order of their release.

    ``rules``: how many there are. ``silent``: repros that have none. ``untested``: versions of which no
    test has told which operators they lack.
    """

    model: str
    opset: int
    nodes: int
    versions: tuple[str, ...]
    rules: int
    silent: tuple[str, ...]
    untested: tuple[str, ...]
    groups: tuple[NodeGroup, ...]

    @property
    def is_sure(self) -> bool:
        """Whether something is known to be ignored, wrong or refused at one of the versions."""
        return any(item.is_sure for group in self.groups for item in group.at.values())

    @property
    def not_looked_at(self) -> str:
        """What it can tell nothing of."""
        names = name_versions(self.untested)
        return "; ".join([*([UNTESTED.format(names)] if names else []), LIMITS])


def check_model(
    model: onnx.ModelProto, name: str, facts: Mapping[str, Facts], versions: Sequence[str], compute: str = "",
    records: Iterable[OperatorRecord] = (),
) -> StaticCheck:  # fmt: skip
    """Hold a model against the rules of repros (id → facts); the surest and largest groups come first.

    ``compute``: the compute capability of the GPU that is meant, where one is. ``records``: of ONNX's tests,
    which tell what operators a version has.
    """
    wirings = make_wirings(model)
    ordered = tuple(sorted(dict.fromkeys(versions), key=release_of))
    rules = [(repro, rule) for repro, said in facts.items() for rule in said.rules]
    groups = [group for each in rules for group in _groups(wirings, *each, ordered, compute)]
    tested = {record.version: record for record in records if record.version in ordered}
    groups += _lacking(model, [tested[version] for version in ordered if version in tested], groups)
    groups.sort(key=lambda g: (any(i.is_sure for i in g.at.values()), len(g.at), len(g.nodes)), reverse=True)
    return StaticCheck(
        model=name, opset=opset_of(model), versions=ordered, rules=len(rules), groups=tuple(groups),
        nodes=sum(len(nodes) for wiring in wirings for nodes in wiring.by_operator.values()),
        silent=tuple(repro for repro, said in facts.items() if not said.rules and repro != "controls"),
        untested=tuple(version for version in ordered if version not in tested),
    )  # fmt: skip


def _lacking(
    model: onnx.ModelProto, records: Sequence[OperatorRecord], told: Sequence[NodeGroup]
) -> Iterator[NodeGroup]:
    """Yield the nodes of operators that a version's parser does not know, but for what a rule has told."""
    nodes: dict[str, list[str]] = {}
    for node in all_nodes(model):
        if node.domain in OWN:
            nodes.setdefault(node.op_type, []).append(node.name or node.output[0])
    for operator, names in nodes.items():
        refused = {v for g in told if g.operator == operator for v, a in g.at.items() if a.is_sure}
        at = {
            record.version: NodeAt(
                effect=Effect.REFUSED, known="measured", source=TESTS,
                on=str(record.facts["gpu"].get("name", "")).removeprefix("NVIDIA "),
            )
            for record in records if operator in record.lacking and record.version not in refused
        }  # fmt: skip
        if at:
            what = "an operator that the parser does not know"
            yield NodeGroup(
                repro="operators", operator=operator, nodes=tuple(names), what=what, instead="", at=at
            )


def _groups(
    wirings: Sequence[Wiring], repro: str, rule: Rule, versions: Sequence[str], compute: str
) -> Iterator[NodeGroup]:
    """Yield a rule's nodes by operator, those apart of which the file does not tell everything."""
    at = {version: item for version in versions if (item := rule.at_version(release_of(version), compute))}
    places: dict[tuple[str, bool], list[NodeProto]] = {}
    for node, unsure in find_places(wirings, rule) if at else ():
        places.setdefault((node.op_type, unsure), []).append(node)
    for (operator, unsure), nodes in places.items():
        known = {}
        for version, item in at.items():
            gpu = f"compute capability {str(item.compute).removeprefix('==')}" if item.compute else ""
            depends = filter(None, (rule.depends, UNSURE if unsure else "", "" if compute else gpu))
            known[version] = NodeAt(
                effect=item.effect, known=item.basis, source=item.source or rule.source, on=item.on,
                depends=", and ".join(depends),
            )  # fmt: skip
        yield NodeGroup(
            repro=repro, operator=operator, what=rule.what, instead=rule.instead,
            nodes=tuple(node.name or node.output[0] for node in nodes), at=known,
        )  # fmt: skip


def check_json(check: StaticCheck) -> dict[str, Any]:
    """Return all that was found as a JSON object."""
    return {"schema": SCHEMA, **asdict(check), "not_looked_at": check.not_looked_at}


def render_check(check: StaticCheck, width: int, *, full: bool = False) -> str:
    """Return what was found, the surest first, then what it comes to; at most 40 lines unless ``full``."""
    wrap = partial(
        textwrap.wrap, width=width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    lines = wrap(
        f"{one_line(check.model)} · opset {check.opset} · {counted(check.nodes, 'node')} · held against "
        f"{counted(check.rules, 'rule')} at {name_versions(check.versions)}"
    )
    silent = f" There are no rules for {', '.join(check.silent)}." if check.silent else ""
    last = ["", *wrap(f"{sum_up(check)}."), *wrap(f"Not looked at: {check.not_looked_at}.{silent}")]
    room = HEIGHT - len(lines) - len(last) - 2
    for number, group in enumerate(check.groups):
        sources = ", ".join(dict.fromkeys(name_source(item.source) for item in group.at.values()))
        told = ["", *wrap(f"{name_nodes(group)}: {group.what}")]
        instead = [f"instead: {group.instead}"] if group.instead else []
        for text in (describe_versions(group.at), *instead, f"{group.repro}: {sources}"):
            told += wrap(text, initial_indent="    ", subsequent_indent="      ")
        if len(told) > room and not full:
            lines += ["", f"… {counted(len(check.groups) - number, 'more group')} of nodes: --full"]
            break
        room -= len(told)
        lines += told
    return "\n".join([*lines, *last]) + "\n"


def name_nodes(group: NodeGroup) -> str:
    """Return a group's operator with its number, then its first nodes."""
    names = ", ".join(map(one_line, group.nodes[:NAMED])) + (", …" if len(group.nodes) > NAMED else "")
    return f"{group.operator} ×{len(group.nodes)} ({names})"


def describe_versions(at: Mapping[str, NodeAt]) -> str:
    """Return what becomes of nodes at which versions, and how that is known, in a few words."""
    told = []
    for (effect, sure, depends), same in groupby(at, lambda v: (at[v].effect, at[v].is_sure, at[v].depends)):
        stretches = []
        for (known, on), alike in groupby(same, lambda version: (at[version].known, at[version].on)):
            gpu = f" {'on' if known == 'measured' else 'of'} {on}" if on else ""
            stretches.append(f"{name_versions([*alike])} ({known}{gpu})")
        condition = f" if {depends}" if depends else ""
        told.append(f"{'' if sure else 'may be '}{effect.value}{condition}: {', '.join(stretches)}")
    return "; ".join(told)


def name_versions(names: Sequence[str]) -> str:
    """Return versions in words; of more than three the first and the last."""
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]}"


def sum_up(check: StaticCheck) -> str:
    """Say of how many nodes something is known at each version, and of how many it is feared."""
    said = dict[str, list[str]]()
    for version in check.versions:
        found = [(group, item) for group in check.groups if (item := group.at.get(version))]
        sure = {name for group, item in found if item.is_sure for name in group.nodes}
        maybe = {name for group, item in found if not item.is_sure for name in group.nodes} - sure
        parts = [f"{counted(len(sure), 'node')} known to fail"] if sure else []
        parts += [f"{counted(len(maybe), 'node')} that may fail"] if maybe else []
        said.setdefault(", ".join(parts) or "nothing known against it", []).append(version)
    return "; ".join(f"{name_versions(names)}: {text}" for text, names in said.items())
