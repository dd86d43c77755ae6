"""What repros know of the nodes of a model, by its graph alone: no GPU, no weights, nothing is run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from trtmatrix.onnxmodel.graphs import opset_of
from trtmatrix.onnxmodel.matching import Place, Wiring, find_places, make_wirings
from trtmatrix.suite.model import release_of
from trtmatrix.suite.repros import Effect, Facts, Rule

UNSURE = "its axes or sizes, which the file does not tell, are such"
"""What it depends on where a condition could not be looked at."""


@dataclass(frozen=True, kw_only=True)
class NodeAt:
    """What becomes of nodes at a version. ``known``: measured, reported, read or assumed; ``on``: which GPU.

    ``depends``: what else it takes, which no graph tells. ``source``: the address that says so.
    """

    version: str
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
    upstream: str
    operator: str
    nodes: tuple[str, ...]
    what: str
    instead: str
    at: tuple[NodeAt, ...]

    def at_version(self, version: str) -> NodeAt | None:
        """Return what becomes of them at a version; None where nothing is known."""
        return next((item for item in self.at if item.version == version), None)


@dataclass(frozen=True, kw_only=True)
class StaticCheck:
    """A model held against the rules of the repros, for these versions in the order of their release.

    ``rules``: how many there are. ``silent``: repros that have none.
    """

    model: str
    opset: int
    nodes: int
    versions: tuple[str, ...]
    rules: int
    silent: tuple[str, ...]
    groups: tuple[NodeGroup, ...]

    @property
    def is_sure(self) -> bool:
        """Whether something is known to be ignored, wrong or refused at one of the versions."""
        return any(item.is_sure for group in self.groups for item in group.at)


def check_model(
    model: onnx.ModelProto, name: str, facts: Mapping[str, Facts], versions: Sequence[str], compute: str = ""
) -> StaticCheck:
    """Hold a model against the rules of repros (id → facts); the surest and largest groups come first.

    ``compute``: the compute capability of the GPU that is meant, where one is.
    """
    wirings = make_wirings(model)
    ordered = tuple(sorted(dict.fromkeys(versions), key=release_of))
    groups = [
        group
        for repro, said in facts.items()
        for rule in said.rules
        for group in _groups(wirings, repro, said, rule, ordered, compute)
    ]

    def worth(group: NodeGroup) -> tuple[bool, int, int]:
        return any(item.is_sure for item in group.at), len(group.at), len(group.nodes)

    return StaticCheck(
        model=name, opset=opset_of(model), versions=ordered,
        nodes=sum(len(nodes) for wiring in wirings for nodes in wiring.by_operator.values()),
        rules=sum(len(said.rules) for said in facts.values()),
        silent=tuple(repro for repro, said in facts.items() if not said.rules and repro != "controls"),
        groups=tuple(sorted(groups, key=worth, reverse=True)),
    )  # fmt: skip


def _groups(
    wirings: Sequence[Wiring], repro: str, said: Facts, rule: Rule, versions: Sequence[str], compute: str
) -> list[NodeGroup]:
    """Return a rule's nodes by operator, those apart of which the file does not tell everything."""
    if not any(rule.at_version(release_of(version), compute) for version in versions):
        return []
    places: dict[tuple[str, bool], list[Place]] = {}
    for place in find_places(wirings, rule):
        places.setdefault((place.node.op_type, place.unsure), []).append(place)
    return [
        NodeGroup(
            repro=repro, upstream=said.upstream, operator=operator, what=rule.what, instead=rule.instead,
            nodes=tuple(place.node.name or place.node.output[0] for place in found),
            at=tuple(_at(rule, versions, compute, unsure=unsure)),
        )
        for (operator, unsure), found in places.items()
    ]  # fmt: skip


def _at(rule: Rule, versions: Sequence[str], compute: str, *, unsure: bool) -> list[NodeAt]:
    found = []
    for version in versions:
        item = rule.at_version(release_of(version), compute)
        if item is not None:
            gpu = f"compute capability {item.compute.text.removeprefix('==')}" if item.compute.text else ""
            depends = (rule.depends, UNSURE if unsure else "", "" if compute else gpu)
            found.append(
                NodeAt(
                    version=version, effect=item.effect, known=item.basis, source=item.source or rule.source,
                    on=item.on, depends=", and ".join(filter(None, depends)),
                )
            )  # fmt: skip
    return found
