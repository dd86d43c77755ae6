"""What becomes of records that come from elsewhere: new, here already, in conflict; and its words. Pure.

Of one run of one cell there is one record. Where two are found they contradict each other: neither counts
then, whichever came first, so that merging gives the same in any order, at once or one after another. What
was measured on this very host stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from typing import Any

from trtmatrix.common.jsontext import to_json
from trtmatrix.judge.record import Record
from trtmatrix.suite.gpus import CPU
from trtmatrix.suite.model import CellId, Product
from trtmatrix.tables.table import one_line

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
class Merged:
    """All that a merge did, or would do: ``sources`` with their numbers of records, ``outputs`` that came."""

    settled: tuple[Settled, ...]
    refused: tuple[Refused, ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict)
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
    same = Settled(key=incoming[0].key, fate=Fate.SAME, words=Fate.SAME.value, incoming=tuple(incoming))
    if new and unknown:
        return replace(same, fate=Fate.REFUSED, words=unknown)
    undecided = held.apart and not held.published
    if not new and not undecided:
        return same
    if held == NOTHING and len(new) == 1:
        return replace(same, fate=Fate.NEW, words=Fate.NEW.value, publish=new[0])
    count = len(held.apart | marks(new)) + bool(held.published)
    words = f"{count} that contradict each other, all kept apart: none counts"
    if held.local:
        words = f"the one measured here stays, {count} kept apart"
    return replace(same, fate=Fate.CONFLICT, words=words, apart=new, move=bool(held.published))


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


def find_differences(first: Any, second: Any, where: str = "") -> list[str]:  # noqa: ANN401 - JSON
    """Return each place at which two records differ, with both values."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        found = []
        for name in sorted({*first, *second}):
            inner = f"{where}.{name}" if where else str(name)
            found += find_differences(first.get(name, _ABSENT), second.get(name, _ABSENT), inner)
        return found
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [line for n, (a, b) in pairs for line in find_differences(a, b, f"{where}[{n}]")]
    if first != second or type(first) is not type(second):
        return [f"{where}: {_short(first)} | {_short(second)}"]
    return []


_ABSENT = object()


def _short(value: object) -> str:
    text = "nothing" if value is _ABSENT else repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def gpu_lines(here: Iterable[Record], coming: Iterable[Record]) -> tuple[str, ...]:
    """Say which GPUs' records come with drivers or variants that the records here do not have."""
    known, lines = _gpus(here), []
    for slug, (name, added) in sorted(_gpus(coming).items()):
        before = known.get(slug, (name, set()))[1]
        if not before:
            words = "; ".join(sorted(added))
            lines.append(f"{name}: no records of this GPU were here; they come with {words}")
        elif added - before:
            lines.append(
                f"{name}: {'; '.join(sorted(added))} in what comes, {'; '.join(sorted(before))} here: "
                "the tables name all of them, and cells are not compared across drivers unawares"
            )
    return tuple(lines)


def _gpus(records: Iterable[Record]) -> dict[str, tuple[str, set[str]]]:
    """Return the name of each GPU, and its drivers and variants in words."""
    found: dict[str, tuple[str, set[str]]] = {}
    for record in records:
        if name := record.gpu.get("name"):
            driver, variant = (one_line(str(record.gpu.get(key) or "")) for key in ("driver", "variant"))
            words = f"driver {driver or 'unknown'}" + (f", {variant}" if variant else "")
            found.setdefault(record.cell.gpu, (one_line(str(name)), set()))[1].add(words)
    return found


SCHEMA = 1
"""The number of the JSON's shape."""

SHOWN = 8
"""Differences of two records that are shown in text."""


def merge_text(merged: Merged) -> str:
    """Return what was done: sources, counts, conflicts with their differences, what is kept out, remarks.

    It ends with what to type next. Nothing of a source's gets through that a terminal would act on.
    """
    lines = [f"{name}: {_counted(count)}" for name, count in merged.sources.items()]
    counts = ", ".join(f"{len(merged.of(fate))} {_COUNTED[fate]}" for fate in Fate if merged.of(fate))
    would = " (dry run: nothing was written)" if merged.dry else ""
    lines.append((counts or "no record") + would)
    if merged.outputs:
        lines.append(f"{merged.outputs} kept outputs {'would come' if merged.dry else 'came'} along")
    for one in merged.of(Fate.CONFLICT):
        lines += ["", *_conflict(one, merged.differences.get(one.key, ()))]
    refused = [f"kept out: {one.source}: {one.words}" for one in merged.refused]
    refused += [f"kept out: {one.incoming[0].source}: {one.words}" for one in merged.of(Fate.REFUSED)]
    lines += ["", *refused] if refused else []
    remarks = list(_remarks(merged))
    lines += ["", *remarks] if remarks else []
    lines += ["", f"next: {_next(merged)}"]
    return "".join(f"{_printable(line)}\n" for line in "\n".join(lines).split("\n"))


def _next(merged: Merged) -> str:
    """Return the next command to type."""
    if not merged.settled and not merged.refused:
        return "python -m trtmatrix merge FILES, with packs of pack --records, or records (.json) in folders"
    if merged.dry:
        return "the same without --dry-run"
    if merged.of(Fate.NEW) or merged.of(Fate.SAME):
        return "python -m trtmatrix table"
    return "mend what is kept out or in conflict as said above, then merge again"


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)


_COUNTED = {
    Fate.NEW: "new", Fate.SAME: "here already", Fate.CONFLICT: "in conflict", Fate.REFUSED: "kept out",
}  # fmt: skip


def _conflict(one: Settled, differences: tuple[str, ...]) -> Iterator[str]:
    cell, run = one.key
    yield f"conflict: {cell}, run {run}: {one.words}"
    yield from (f"  came: {incoming.source}" for incoming in one.incoming)
    yield from (f"  {line}" for line in differences[:SHOWN])
    if len(differences) > SHOWN:
        yield f"  and {len(differences) - SHOWN} more places"
    yield (
        f"  look at {run}.json{APART}* in {cell.gpu}/{cell.version}/{cell.repro}/{cell.case} of the results, "
        f"rename the right one to {run}.json, leave the others as they are"
    )


def _remarks(merged: Merged) -> Iterator[str]:
    """Yield what is told of records that come in, each remark once with its count; then of GPUs."""
    groups: dict[str, list[Settled]] = defaultdict(list)
    for one in merged.settled:
        for remark in one.remarks:
            groups[remark].append(one)
    for remark, which in sorted(groups.items()):
        yield f"note: {_counted(len(which))}: {remark} (such as {which[0].key[0]})"
    yield from (f"note: {line}" for line in merged.gpus)


def _counted(count: int) -> str:
    return f"{count} record" + ("" if count == 1 else "s")


def merge_json(merged: Merged) -> dict[str, Any]:
    """Return the same as plain data."""
    return {
        "schema": SCHEMA, "dry_run": merged.dry, "outputs": merged.outputs,
        "counts": {fate.name.lower(): len(merged.of(fate)) for fate in Fate},
        "sources": [{"source": name, "records": count} for name, count in merged.sources.items()],
        "records": [
            {
                "id": str(one.key[0]), "run": one.key[1], "fate": one.fate.name.lower(), "words": one.words,
                "sources": [incoming.source for incoming in one.incoming], "remarks": list(one.remarks),
                "differences": list(merged.differences.get(one.key, ())),
            }
            for one in merged.settled
        ],
        "kept_out": [{"source": one.source, "words": one.words} for one in merged.refused],
        "gpus": list(merged.gpus),
    }  # fmt: skip
