<<<<<<< HEAD
"""What a cluster says of itself: its release, its limits, its nodes and partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass

NODES_FORMAT = "%N|%T|%G|%P|%f"
"""Node, state, gres, partition, features; one line a node and partition. Source: man sinfo."""
PARTITIONS_FORMAT = "%P|%a|%l"
"""Partition (``*`` at the default one), whether it is up, the longest time. The same source."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """A node: ``state`` is Slurm's word without its marks, in small letters; ``gres`` as Slurm writes it."""

    name: str
    state: str
    gres: str = ""
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    silent: bool = False
    """It does not answer the controller (a ``*`` after its state)."""


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """A partition. ``minutes``: the longest that a job may be given, None for no limit."""

    name: str
    default: bool
    up: bool
    minutes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConfigFacts:
    """Some of ``scontrol show config``; None and nothing for what it does not say.

    ``max_array``: an array's indices are below it. ``epilogs``: files or patterns of them. ``accounting``:
    the plugin's last word (``slurmdbd``, ``none``).
    """

    cluster: str = ""
    max_array: int | None = None
    max_jobs: int | None = None
    epilogs: tuple[str, ...] = ()
    accounting: str = ""
    kill_wait: int | None = None
    settings: str = ""


def parse_version(text: str) -> str:
    """Return the release of ``squeue --version`` (``slurm-wlm 22.05.8``), empty where it says none."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?\S*", text)
    return found[0] if found else ""


def parse_ping(text: str) -> tuple[bool, str]:
    """Return whether a controller is up, and the lines of ``scontrol ping`` in one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return any(re.search(r"\bis UP\b", line) for line in lines), "; ".join(lines)


def parse_config(text: str) -> ConfigFacts:
    """Read ``scontrol show config``; newer releases number some names (``Epilog[0]``)."""
    pairs = [(name.strip(), value.strip()) for name, sign, value in
             (line.partition("=") for line in text.splitlines()) if sign]  # fmt: skip
    known = dict(pairs)
    epilogs = [value for name, value in pairs if re.fullmatch(r"Epilog(\[\d+\])?", name)]
    return ConfigFacts(
        cluster=_said(known, "ClusterName"), max_array=_count(known, "MaxArraySize"),
        max_jobs=_count(known, "MaxJobCount"), kill_wait=_count(known, "KillWait"),
        epilogs=tuple(path for value in epilogs if value != "(null)" for path in value.split(",") if path),
        accounting=_said(known, "AccountingStorageType").rpartition("/")[2].replace("(null)", "none"),
        settings=_said(known, "SLURM_CONF"),
    )  # fmt: skip


def parse_nodes(text: str) -> tuple[NodeFacts, ...]:
    """Read ``sinfo --noheader --Node --format=NODES_FORMAT``; other lines are left out."""
    found = dict[str, NodeFacts]()
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 5 or not parts[0]:
            continue
        name, state, gres, partition, features = parts
        before = found[name].partitions if name in found else ()
        word = re.match(r"[a-z_]*", state.lower())
        found[name] = NodeFacts(
            name=name, state=word[0] if word else "", silent="*" in state, gres=_plain(gres),
            partitions=(*before, partition.rstrip("*")),
            features=tuple(part for part in _plain(features).split(",") if part),
        )  # fmt: skip
    return tuple(found.values())


def parse_partitions(text: str) -> tuple[PartitionFacts, ...]:
    """Read ``sinfo --noheader --format=PARTITIONS_FORMAT``; one that has several lines is told once."""
    found = dict[str, PartitionFacts]()
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 3 and parts[0]:
            name = parts[0].rstrip("*")
            found[name] = PartitionFacts(
                name=name, default=parts[0].endswith("*"), up=parts[1].startswith("up"),
                minutes=parse_minutes(parts[2]),
            )  # fmt: skip
    return tuple(found.values())


def parse_minutes(text: str) -> int | None:
    """Return the minutes of a time as Slurm writes it, rounded down; None for no limit.

    ``days-hours:minutes:seconds``, ``days-hours``, ``hours:minutes:seconds``, ``minutes:seconds``,
    ``minutes``. Source: man sbatch, ``--time``.
    """
    found = _TIME.fullmatch(text.strip())
    if not found:
        return None
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes = [*numbers, 0][:2]
        return (int(days) * 24 + hours) * 60 + minutes
    return numbers[0] * 60 + numbers[1] if len(numbers) == 3 else numbers[0]


def _said(known: dict[str, str], name: str) -> str:
    return known.get(name, "")


def _count(known: dict[str, str], name: str) -> int | None:
    found = re.match(r"\d+", known.get(name, ""))
    return int(found[0]) if found else None


def _plain(text: str) -> str:
    return "" if text == "(null)" else text
=======
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
class SiteFacts:
    """What doctor looks at. ``away``: why Slurm does not answer, with ``away_remedy``; all else is empty then.

    ``json``: squeue tells in JSON; ``accounting``: there is some. ``folder_kind``, ``folder_free``: the file
    system of the shared folder and its free bytes, or ``folder_trouble``. ``epilogs``: the text of each
    epilog of the nodes, None where it cannot be read here. ``pyxis``: whether srun knows its options here,
    None where that was not asked. ``seen``: what jobs of ours found on nodes.
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
>>>>>>> int
