"""Taking in records that were made elsewhere: what is new, what is here, what contradicts. Pure.

Of one run of one cell there is one record. Where two are found they contradict each other: neither counts
then, whichever came first, so that merging gives the same in any order, at once or one after another. What
was measured on this very host stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any

from trtmatrix.core.jsontext import to_json
from trtmatrix.core.model import CPU, CellId, Product
from trtmatrix.core.record import Record
from trtmatrix.core.table import one_line

RESERVED = frozenset({"local", "surfaces"})
"""Folders of the results that hold something else than a GPU's records."""

Key = tuple[CellId, str]
"""A run of a cell."""

APART = ".conflict-"
"""What stands behind ``<run>.json`` in the name of a record that is kept apart, before its content's mark."""

MARK = 16
"""Hexadecimal digits of a content's digest that stand for it in a file's name."""


class Fate(str, Enum):
    """What becomes of the records of one run."""

    NEW = "new"
    SAME = "here already"
    CONFLICT = "conflict"
    REFUSED = "kept out"


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A record from elsewhere: its content's digest, and where it was found, in words."""

    record: Record
    digest: str
    source: str

    @property
    def key(self) -> Key:
        """The run that it is of."""
        return self.record.cell, self.record.run


@dataclass(frozen=True, kw_only=True)
class Held:
    """What is here of a run: the digests of the published and the local record, marks of those kept apart."""

    published: str = ""
    local: str = ""
    apart: frozenset[str] = frozenset()


NOTHING = Held()


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What becomes of a run.

    ``publish``, ``apart``: records that are written; ``move``: the published one is kept apart too.
    ``remarks``: what is told of a record that is taken in.
    """

    key: Key
    fate: Fate
    words: str
    incoming: tuple[Incoming, ...]
    publish: Incoming | None = None
    apart: tuple[Incoming, ...] = ()
    move: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What is not taken in, and why."""

    source: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """A source with what it tells of the host that it was made on."""

    source: str
    records: int
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Merged:
    """All that a merge did, or would do. ``outputs``: kept outputs that were taken in."""

    settled: tuple[Settled, ...]
    refused: tuple[Refused, ...] = ()
    hosts: tuple[Hosted, ...] = ()
    gpus: tuple[str, ...] = ()
    differences: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    outputs: int = 0
    dry: bool = False

    def of(self, fate: Fate) -> tuple[Settled, ...]:
        """Return the runs of one fate."""
        return tuple(one for one in self.settled if one.fate is fate)


def content_digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content, however it is laid out; ``ValueError`` on a bare NaN."""
    return sha256(to_json(data).encode("utf-8", "backslashreplace")).hexdigest()


def mark_of(digest: str) -> str:
    """Return what stands for a content in a file's name."""
    return digest[:MARK]


def group_runs(incoming: Iterable[Incoming]) -> dict[Key, list[Incoming]]:
    """Group records by run; both in an order that does not hang on that of the files."""
    groups: dict[Key, list[Incoming]] = {}
    for one in sorted(incoming, key=lambda one: (*one.key, one.digest, one.source)):
        groups.setdefault(one.key, []).append(one)
    return groups


def settle(incoming: Sequence[Incoming], held: Held, unknown: str = "") -> Settled:
    """Say what becomes of the records of one run, at least one; ``unknown``: why its cell is none of ours."""
    found = {one.digest: one for one in reversed(incoming)}  # of equal ones the first
    known = {held.published, held.local}
    new = tuple(
        one for digest, one in sorted(found.items())
        if digest not in known and mark_of(digest) not in held.apart
    )  # fmt: skip
    key, all_of_it = incoming[0].key, tuple(incoming)
    if new and unknown:
        return Settled(key=key, fate=Fate.REFUSED, words=unknown, incoming=all_of_it)
    if held.apart and not held.published:
        return Settled(
            key=key, fate=Fate.CONFLICT, words=_words(len(held.apart | marks(new)), held),
            incoming=all_of_it, apart=new,
        )  # fmt: skip
    if not new:
        return Settled(key=key, fate=Fate.SAME, words=Fate.SAME.value, incoming=all_of_it)
    if held == NOTHING and len(new) == 1:
        return Settled(key=key, fate=Fate.NEW, words=Fate.NEW.value, incoming=all_of_it, publish=new[0])
    count = len(held.apart | marks(new)) + bool(held.published)
    return Settled(
        key=key, fate=Fate.CONFLICT, words=_words(count, held), incoming=all_of_it, apart=new,
        move=bool(held.published),
    )  # fmt: skip


def _words(count: int, held: Held) -> str:
    if held.local:
        return f"the one measured here stays, {count} kept apart"
    return f"{count} that contradict each other, all kept apart: none counts"


def marks(records: Iterable[Incoming]) -> frozenset[str]:
    """Return the marks of records' contents."""
    return frozenset(mark_of(one.digest) for one in records)


def misplaced(record: Record, parts: Sequence[str]) -> str:
    """Return what is wrong with the place of a record in its source, given as path parts, or nothing.

    The file is named after the run; as many folders as there are must be those of a tree of results.
    """
    cell = record.cell
    wanted = [cell.gpu, cell.version, cell.repro, cell.case, f"{record.run}.json"]
    seen = list(parts)[-len(wanted) :]
    if seen == wanted[-len(seen) :]:
        return ""
    return f"by its content it is {'/'.join(wanted)}: a file was renamed, moved or edited"


def misfit(record: Record, slug: str) -> str:
    """Return why a record is not of the GPU that its cell says, or nothing.

    ``slug``: the GPU that its facts name, as a part of a cell's id. TensorRT's cells are run on a GPU, those
    of the other products on the CPU.
    """
    gpu, named = record.cell.gpu, record.gpu.get("name")
    if gpu in RESERVED:
        return f"its cell's GPU is {gpu}, which is no GPU's name here: results/{gpu} holds other things"
    if record.product is not Product.TENSORRT:
        if gpu == CPU.slug and not named:
            return ""
        return f"a record of {record.product.value} is of the {CPU.slug} and names no GPU; this one of {gpu}"
    if not isinstance(named, str) or not named:
        return f"its cell is of {gpu}, and its facts (gpu) name no GPU: it was edited"
    if slug != gpu or one_line(named) != named:
        return f"its cell is of {gpu}, and its facts (gpu) name {one_line(named, 60)!r}: it was edited"
    return ""


def find_differences(first: Any, second: Any) -> list[str]:  # noqa: ANN401 - JSON
    """Return each place at which two records differ, with both values."""
    return [f"{where}: {_short(a)} | {_short(b)}" for where, a, b in _differing("", first, second)]


_ABSENT = object()


def _differing(where: str, first: Any, second: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for name in sorted({*first, *second}):
            inner = f"{where}.{name}" if where else str(name)
            yield from _differing(inner, first.get(name, _ABSENT), second.get(name, _ABSENT))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (a, b) in enumerate(zip(first, second, strict=True)):
            yield from _differing(f"{where}[{index}]", a, b)
    elif first != second or type(first) is not type(second):
        yield where, first, second


def _short(value: object) -> str:
    text = "nothing" if value is _ABSENT else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def gpu_lines(here: Iterable[Record], coming: Iterable[Record]) -> tuple[str, ...]:
    """Say which GPUs' records come with drivers or variants that the records here do not have."""
    known, new = _gpus(here), _gpus(coming)
    lines = []
    for slug, facts in sorted(new.items()):
        name, added = facts[0][0], sorted({_facts(one) for one in facts})
        before = sorted({_facts(one) for one in known.get(slug, [])})
        if not before:
            lines.append(f"{name}: no records of this GPU were here; they come with {'; '.join(added)}")
        elif set(added) - set(before):
            lines.append(
                f"{name}: {'; '.join(added)} in what comes, {'; '.join(before)} here: "
                "the tables name all of them, and cells are not compared across drivers unawares"
            )
    return tuple(lines)


def _gpus(records: Iterable[Record]) -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    for record in records:
        gpu = record.gpu
        if name := gpu.get("name"):
            texts = (name, gpu.get("driver") or "", gpu.get("variant") or "")
            facts = (one_line(str(texts[0])), one_line(str(texts[1])), one_line(str(texts[2])))
            found.setdefault(record.cell.gpu, []).append(facts)
    return found


def _facts(facts: tuple[str, str, str]) -> str:
    _, driver, variant = facts
    return f"driver {driver or 'unknown'}" + (f", {variant}" if variant else "")
