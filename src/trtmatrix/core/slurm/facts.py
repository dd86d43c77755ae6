"""What was found of a site before anything is submitted, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.core.slurm.boards import Node
from trtmatrix.core.slurm.controller import ClusterNode, Config, Partition


@dataclass(frozen=True, kw_only=True)
class Request:
    """What sbatch said of a job that was not submitted. ``gpu``: as the site names it, empty for an import.

    ``refused``: its words where it would not have it, with ``remedy``; ``because``: the keys of the site file
    without any one of which it would. ``when``: its words of when and where the job would start.
    """

    gpu: str
    when: str = ""
    refused: str = ""
    remedy: str = ""
    because: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeftArray:
    """An open array that no client follows. ``jobs``: those that wait or run; ``end``: what cancels them."""

    key: str
    cells: int
    version: str
    gpu: str
    jobs: tuple[str, ...] = ()
    end: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What doctor looks at. ``away``: why Slurm does not answer, with ``away_remedy``; the rest is unset.

    ``json``: squeue tells in JSON; ``accounting``: there is some. ``folder_kind``, ``folder_free``: the file
    system of the shared folder and its free bytes, or ``folder_trouble``. ``epilogs``: the text of each
    epilog of the nodes, None where it cannot be read here. ``pyxis``: whether srun knows its options here,
    None where that was not asked. ``seen``: what jobs of ours found on nodes; ``left``: arrays that nobody
    follows.
    """

    away: str = ""
    away_remedy: str = ""
    config: Config = field(default_factory=Config)
    nodes: tuple[ClusterNode, ...] = ()
    partitions: tuple[Partition, ...] = ()
    json: bool = True
    accounting: bool = False
    requests: tuple[Request, ...] = ()
    folder_kind: str = ""
    folder_free: int = 0
    folder_trouble: str = ""
    epilogs: Mapping[str, str | None] = field(default_factory=dict)
    pyxis: bool | None = None
    seen: tuple[Node, ...] = ()
    left: tuple[LeftArray, ...] = ()
