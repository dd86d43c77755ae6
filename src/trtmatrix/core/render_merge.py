"""What ``merge`` prints: text and JSON. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from trtmatrix.core.merge import APART, Fate, Hosted, Merged, Settled
from trtmatrix.core.table import one_line

SCHEMA = 1
"""The number of the JSON's shape."""

WORD = 80
"""Characters of a fact of a host's that are shown."""

SHOWN = 8
"""Differences of two records that are shown in text."""


def merge_text(merged: Merged) -> str:
    """Return what was done: sources, counts, conflicts with their differences, what is kept out, remarks.

    It ends with what to type next. Nothing of a source's gets through that a terminal would act on.
    """
    lines = [_source(one) for one in merged.hosts]
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


def _source(one: Hosted) -> str:
    records = f"{one.records} record" + ("" if one.records == 1 else "s")
    facts = host_words(one.host)
    return f"{one.source}: {records}" + (f", made on {facts}" if facts else "")


def host_words(host: Mapping[str, Any]) -> str:
    """Return what is known of a host in one line: GPUs with drivers, else the system."""
    gpus = [gpu for gpu in _list(host.get("gpus")) if isinstance(gpu, Mapping)]
    names = [f"{_word(gpu, 'name')} (driver {_word(gpu, 'driver')})" for gpu in gpus]
    system = ", ".join(_word(host, name) for name in ("os", "machine") if host.get(name))
    made_by = f"by trtmatrix {_word(host, 'trtmatrix')}" if host.get("trtmatrix") else ""
    return ", ".join(part for part in ("; ".join(dict.fromkeys(names)), system, made_by) if part)


def _word(facts: Mapping[str, Any], name: str) -> str:
    return one_line(str(facts.get(name) or "unknown"), WORD)


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - JSON of anyone's
    return value if isinstance(value, list) else []


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
        count = f"{len(which)} record" + ("" if len(which) == 1 else "s")
        yield f"note: {count}: {remark} (such as {which[0].key[0]})"
    yield from (f"note: {line}" for line in merged.gpus)


def merge_json(merged: Merged) -> dict[str, Any]:
    """Return the same as plain data."""
    return {
        "schema": SCHEMA, "dry_run": merged.dry, "outputs": merged.outputs,
        "counts": {fate.name.lower(): len(merged.of(fate)) for fate in Fate},
        "sources": [{"source": o.source, "records": o.records, "host": dict(o.host)} for o in merged.hosts],
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
