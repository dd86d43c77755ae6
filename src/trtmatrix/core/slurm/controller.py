"""What scontrol writes of a cluster: its configuration, its nodes, its partitions. Pure, and tolerant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trtmatrix.core.slurm.sitevalues import SLURM_TIME, slurm_minutes

NOTHING = frozenset({"", "(null)", "n/a", "none", "unlimited", "infinite"})


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is of use here of ``scontrol show config``; empty or None where it does not say.

    ``array``: one more than the highest index of an array; ``jobs``: of all users at once; ``epilogs``:
    paths, maybe patterns, of the nodes; ``tracking``: what finds a job's processes.
    """

    version: str = ""
    cluster: str = ""
    array: int | None = None
    jobs: int | None = None
    epilogs: tuple[str, ...] = ()
    accounting: str = ""
    tracking: str = ""


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """A node: its GPUs by type (empty where they have none), whether it can take jobs, and Slurm's word."""

    name: str
    gpus: tuple[tuple[str, int], ...]
    state: str
    partitions: tuple[str, ...]
    features: tuple[str, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs can start there, at once or when others have ended."""
        words = set(re.split(r"[^A-Z_]+", self.state.upper()))
        return not words & _AWAY and "*" not in self.state


_AWAY = {
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVAL", "INVALID_REG", "UNKNOWN", "FUTURE",
    "NOT_RESPONDING", "MAINT", "ERROR",
}  # fmt: skip
"""Source: https://slurm.schedmd.com/sinfo.html (node state codes). Power saving is none of them."""


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition; ``minutes``: the longest ``--time``, None for no limit."""

    name: str
    default: bool
    state: str
    minutes: int | None


def parse_config(text: str) -> Config:
    """Read ``scontrol show config``: a name, ``=`` and a value a line."""
    found: dict[str, str] = {}
    epilogs: list[str] = []
    for line in text.splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or value.lower() in NOTHING:
            continue
        if re.fullmatch(r"Epilog(\[\d+\])?", name):
            epilogs += [each for each in re.split(r"[,\s]+", value) if each]
        found.setdefault(name, value)
    return Config(
        version=found.get("SLURM_VERSION", ""), cluster=found.get("ClusterName", ""),
        array=_number(found.get("MaxArraySize")), jobs=_number(found.get("MaxJobCount")),
        epilogs=tuple(epilogs), accounting=found.get("AccountingStorageType", ""),
        tracking=found.get("ProctrackType", ""),
    )  # fmt: skip


def parse_nodes(text: str) -> tuple[ClusterNode, ...]:
    """Read ``scontrol show nodes --oneliner``."""
    return tuple(
        ClusterNode(
            name=line["NodeName"], gpus=tuple(parse_gres(line.get("Gres", ""))), state=line.get("State", ""),
            partitions=_list(line.get("Partitions")), features=_list(line.get("AvailableFeatures")),
        )
        for line in _lines(text) if "NodeName" in line
    )  # fmt: skip


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Read ``scontrol show partition --oneliner``."""
    return tuple(
        Partition(
            name=line["PartitionName"], default=line.get("Default", "") == "YES",
            state=line.get("State", ""), minutes=parse_minutes(line.get("MaxTime", "")),
        )
        for line in _lines(text) if "PartitionName" in line
    )  # fmt: skip


def parse_gres(text: str) -> Iterator[tuple[str, int]]:
    """Yield type and number of a node's GPUs: ``gpu:h200:8(S:0-1)``, ``gpu:2``; others are left out.

    A type may be a number (``gpu:3090:8``) where another one follows it.
    """
    for part in re.split(r",(?![^()]*\))", text):
        words = part.partition("(")[0].split(":")
        if words[0] != "gpu":
            continue
        count = int(words[-1]) if len(words) > 1 and words[-1].isdecimal() else 1
        typed = len(words) > 2 or (len(words) == 2 and not words[1].isdecimal())
        yield (words[1] if typed else ""), count


def parse_minutes(text: str) -> int | None:
    """Return a time of Slurm's in minutes, None for no limit or where it is none."""
    match = SLURM_TIME.fullmatch(text.strip())
    return slurm_minutes(match) if match else None


def _lines(text: str) -> Iterator[dict[str, str]]:
    """Yield the names with their values of each line; of a name that stands twice the first."""
    for line in text.splitlines():
        found: dict[str, str] = {}
        marks = list(re.finditer(r"(?:^|\s)([A-Z][A-Za-z_]*(?:/[A-Za-z]+)?)=", line))
        ends = [*(mark.start() for mark in marks[1:]), len(line)][: len(marks)]
        for mark, end in zip(marks, ends, strict=True):
            found.setdefault(mark[1], line[mark.end() : end].strip())
        yield found


def _list(text: str | None) -> tuple[str, ...]:
    return () if text is None or text.lower() in NOTHING else tuple(text.split(","))


def _number(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match[0]) if match else None
