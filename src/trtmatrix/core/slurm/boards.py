"""The GPUs of a site: what nvidia-smi told of a board on a node, and what is known of each model. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from trtmatrix.core.expand import Cell
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.model import Gpu, Seen
from trtmatrix.core.slurm.site import Site, SiteGpu
from trtmatrix.core.slurm.words import FACTS

Known = Callable[[str], Gpu | None]
"""What a table of GPUs says of a name, such as :func:`trtmatrix.effects.gpu.known_gpu`."""


class BoardError(ValueError):
    """What nvidia-smi told on a node is not one GPU's facts; the message says what it is."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board of a node, and its clocks (MHz) and power limit (W) when the job looked.

    ``clocks`` has the names that records of this host's GPUs have; ``unknown`` alone where none was told.
    """

    gpu: Gpu
    clocks: Mapping[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Node:
    """What jobs found on a node: nvidia-smi's line of each board, and when the last one looked (UTC)."""

    name: str
    gpus: tuple[str, ...] = ()
    seen: str = ""


def host_hash(node: str) -> str:
    """Return what stands for a node in records: the first 16 hexadecimal digits of its name's SHA-256.

    Records are published, a site's names are its own. It tells nodes apart; a name that can be guessed can
    be recognised by it: ``printf %s NODE | sha256sum | cut -c1-16``.
    """
    return sha256(node.encode()).hexdigest()[:16]


def no_table(_name: str) -> Gpu | None:
    """Know no GPU."""
    return None


def parse_gpu_csv(text: str, node: str = "", known: Known = no_table) -> Board:
    """Read what nvidia-smi told of one GPU, its facts in the order of ``words.FACTS``.

    A fact in brackets (``[N/A]``, ``[Not Supported]``, ``[Unknown Error]``) is not known; the compute
    capability is then the table's. :class:`BoardError` where there is not exactly one GPU with a name.
    """
    facts = _facts(text)
    name, uuid = facts["name"], facts["uuid"]
    listed = known(name)
    variant, driver = _variant(facts), facts["driver_version"] or None
    gpu = Gpu(
        slug=slug_of(name), name=name, variant=variant, driver=driver,
        seen=(Seen(name=name, variant=variant, driver=driver),),
        compute=facts["compute_cap"] or (listed.compute if listed else None),
        datacenter=bool(listed and listed.datacenter), uuid=uuid or None,
        uuid_hash=sha256(uuid.encode()).hexdigest() if uuid else None, remote=True,
        host=host_hash(node) if node else "",
    )  # fmt: skip
    return Board(gpu=gpu, clocks=_clocks(facts))


def _facts(text: str) -> dict[str, str]:
    """Return each fact, empty where nvidia-smi does not know it."""
    lines = [line for line in text.splitlines() if line.strip()]
    if refused := re.search(r'Field "([^"]*)" is not a valid field', text):
        raise BoardError(f"nvidia-smi does not know {refused.group(1)}: its driver is older than the fact")
    if len(lines) != 1:
        raise BoardError(f"nvidia-smi told of {len(lines)} GPUs instead of one: {_quote(text)}")
    values = [value.strip() for value in lines[0].split(",")]
    values = [", ".join(values[: 1 - len(FACTS)]), *values[1 - len(FACTS) :]]  # a name may have a comma
    if len(values) != len(FACTS):
        raise BoardError(f"nvidia-smi did not tell {', '.join(FACTS)}: {_quote(text)}")
    facts = {
        fact: "" if _UNKNOWN.fullmatch(value) else value for fact, value in zip(FACTS, values, strict=True)
    }
    if not facts["name"]:
        raise BoardError(f"nvidia-smi told no name of the GPU: {_quote(text)}")
    for fact in ("compute_cap", "driver_version"):
        if facts[fact] and not _RELEASE.fullmatch(facts[fact]):
            raise BoardError(f"nvidia-smi's {fact} is {_quote(facts[fact])}, which is no version")
    return facts


_UNKNOWN = re.compile(r"\[.*\]|N/A|")
_RELEASE = re.compile(r"\d+(\.\d+)+")


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 200 else line[:199] + "…")


def _number(text: str) -> float | None:
    """Return a number, with or without its unit (``nounits`` is not obeyed by all), None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:\s*[A-Za-z]+)?", text)
    return float(found.group(1)) if found else None


def _variant(facts: Mapping[str, str]) -> str:
    """Return a board's variant as NVML's facts give it on a single host.

    nvidia-smi tells MiB, NVML bytes, both of the same total: an H200 has 143771 MiB and 143771 * 2**20 bytes
    (measured with driver 580.159.04).
    """
    memory = _number(facts["memory.total"])
    parts = [] if memory is None else [f"{round(memory / 1024)} GiB"]
    return ", ".join([*parts, *(["MIG on"] if facts["mig.mode.current"] == "Enabled" else [])])


def _clocks(facts: Mapping[str, str]) -> dict[str, float | str]:
    """Return clocks as :func:`trtmatrix.effects.gpu.clocks` does: MHz as whole numbers, W as it comes."""
    found: dict[str, float | str] = {}
    for name, fact in (("sm_mhz", "clocks.sm"), ("memory_mhz", "clocks.mem")):
        if (value := _number(facts[fact])) is not None:
            found[name] = int(value)
    if (power := _number(facts["power.limit"])) is not None:
        found["power_limit_w"] = power
    return found or {"unknown": "nvidia-smi does not tell"}


def add_board(node: Node, line: str, seen: str) -> Node:
    """Return what is known of a node after a job that found a board; ``seen``: when, in UTC.

    All boards of a node have one driver: those that were seen with another one are forgotten. What a job
    found before the last one looked, and is collected late, takes nothing away.
    :class:`BoardError` where the line is no board.
    """
    new = parse_gpu_csv(line).gpu
    boards = {board.uuid: (text, board.driver) for text, board in boards_of(node)}
    if seen < node.seen and (
        new.uuid in boards or new.driver not in {driver for _, driver in boards.values()}
    ):
        return node
    still = [text for uuid, (text, driver) in boards.items() if uuid != new.uuid and driver == new.driver]
    return Node(name=node.name, gpus=(*still, line.strip()), seen=max(seen, node.seen))


def site_gpus(site: Site, nodes: Iterable[Node], known: Known = no_table) -> tuple[Gpu, ...]:
    """Return the models that a site has, each with the boards that jobs found on its nodes.

    A board of no model of the site's is left out.
    """
    boards = [board for node in nodes for _, board in boards_of(node)]
    return tuple(
        _model(entry, [board for board in boards if board.slug == slug_of(entry.name)], known)
        for entry in site.gpus
    )


def boards_of(node: Node) -> Iterator[tuple[str, Gpu]]:
    """Yield each line with the board that it tells of; what is none is left out."""
    for line in node.gpus:
        try:
            yield line, parse_gpu_csv(line, node.name).gpu
        except BoardError:
            continue


def _model(entry: SiteGpu, boards: Sequence[Gpu], known: Known) -> Gpu:
    """Return one model of a site; what its boards differ in is known of none."""
    listed = known(entry.name)
    hosts = Counter({(b.name, b.variant, b.driver, b.host) for b in boards})
    alike = Counter((name, variant, driver) for name, variant, driver, _ in hosts)
    seen = tuple(
        Seen(name=name, variant=variant, driver=driver, hosts=count)
        for (name, variant, driver), count in sorted(
            alike.items(), key=lambda item: _order(item[0]), reverse=True
        )
    )
    variants = {board.variant for board in seen}
    computes = [board.compute for board in boards if board.compute]
    return Gpu(
        slug=slug_of(entry.name), name=entry.name, remote=True, seen=seen,
        compute=computes[0] if computes else listed.compute if listed else None,
        datacenter=bool(listed and listed.datacenter), driver=seen[0].driver if seen else None,
        variant=variants.pop() if len(variants) == 1 else "",
    )  # fmt: skip


def _order(board: tuple[str, str, str | None]) -> tuple[tuple[int, ...], str, str]:
    name, variant, driver = board
    return tuple(int(part) for part in (driver or "0").split(".")), variant, name


def renew_cells(cells: Iterable[Cell], gpus: Iterable[Gpu]) -> tuple[Cell, ...]:
    """Return cells over what is known of their GPUs by now: after jobs, more boards were seen than before."""
    by_slug = {gpu.slug: gpu for gpu in gpus}
    return tuple(replace(cell, gpu=by_slug.get(cell.gpu.slug, cell.gpu)) for cell in cells)
