"""What jobs of ours found on a site's nodes, as doctor tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trtmatrix.core.counting import counted
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.slurm.boards import Node, boards_of
from trtmatrix.core.slurm.controller import ClusterNode

MOST = 6
"""Nodes that are named."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """Another model than a site's entry names; ``nodes``: where it was seen; ``unseen``: nodes to see."""

    models: tuple[str, ...]
    nodes: tuple[str, ...]
    unseen: int

    @property
    def told(self) -> str:
        """Which model is where."""
        return f"{', '.join(self.models)} on {names_of(self.nodes)}"


def other_models(name: str, nodes: Sequence[ClusterNode], seen: Sequence[Node]) -> Other | None:
    """Return what jobs found in the nodes that a GPU's jobs go to, where it never was the model named.

    A node with GPUs of several types says nothing: which of them a job was given is not known here.
    """
    plain = {node.name for node in nodes if len(node.gpus) == 1}
    boards = [(node.name, board.name) for node in seen if node.name in plain for _, board in boards_of(node)]
    found, models = {node for node, _ in boards}, {model for _, model in boards}
    if not models or slug_of(name) in {slug_of(model) for model in models}:
        return None
    return Other(
        models=tuple(sorted(models)), nodes=tuple(sorted(found)),
        unseen=len({node.name for node in nodes} - found),
    )  # fmt: skip


def seen_lines(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield a line for each kind of board: model, variant, driver; how many, on which nodes, seen when."""
    kinds: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        for _, gpu in boards_of(node):
            driver = f"driver {gpu.driver}" if gpu.driver else "driver not known"
            facts: tuple[str, ...] = (gpu.name, gpu.variant or "", driver)
            kinds.setdefault(facts, []).append(node)
    for facts, found in sorted(kinds.items()):
        yield f"{', '.join(filter(None, facts))}: {_where(found)}"


def _where(found: Sequence[Node]) -> str:
    """Return how many boards are on which nodes; a node stands there once for each of its boards."""
    days: Mapping[str, str] = {node.name: node.seen[:10] for node in found}
    last = max(days.values())
    boards = f"{counted(len(found), 'board')} on {counted(len(days), 'node')}"
    return f"{boards} ({names_of(sorted(days))})" + (f", last {last}" if last else "")


def names_of(names: Sequence[str]) -> str:
    """Return names in short."""
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
