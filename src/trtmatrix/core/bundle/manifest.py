"""What goes into an archive and what does not fit; how that is told before anything is written. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trtmatrix.core.bundle.facts import LIMIT_BYTES, LeftOut
from trtmatrix.core.redact import Private

LEFT_OUT = "left-out.json"
RESERVE = 200_000
"""Bytes of an archive that are kept free for what is written after the choice (ISSUE.md, the scripts)."""

OVERHEAD = 700
"""Bytes that a file adds to an archive beside its own: the head, its digest, compressed."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file as it will lie in the archive.

    ``sha256`` and ``size``: of the file there; ``packed``: about what it takes, compressed, in bytes.
    ``what``: what is in it, in words. ``rank``: 0 must be in, of others the highest is left out first.
    ``weights``: it holds weights of the user's own model. ``taken``: what was taken out of it. ``told``: what
    the user must know of it.
    """

    name: str
    sha256: str
    size: int
    packed: int
    what: str = ""
    rank: int = 0
    weights: bool = False
    taken: Mapping[Private, int] = field(default_factory=dict)
    told: tuple[str, ...] = ()


def choose(items: Sequence[Item], limit: int = LIMIT_BYTES, reserve: int = RESERVE) -> tuple[LeftOut, ...]:
    """Return what is left out so that the rest fits: the highest rank first, of those the largest.

    Once enough is left out, what is smaller than the room that is left comes in again.
    """
    total = sum(item.packed + OVERHEAD for item in items) + reserve
    out: list[Item] = []
    for item in sorted(items, key=lambda item: (-item.rank, -item.packed, item.name)):
        if total <= limit or item.rank == 0:
            break
        out.append(item)
        total -= item.packed + OVERHEAD
    for item in sorted(out, key=lambda item: (item.rank, item.packed, item.name)):
        if total + item.packed + OVERHEAD <= limit:
            out.remove(item)
            total += item.packed + OVERHEAD
    return tuple(_left_out(item, limit) for item in sorted(out, key=lambda item: item.name))


def _left_out(item: Item, limit: int) -> LeftOut:
    why = f"the archive would be larger than {write_size(limit)}"
    return LeftOut(name=item.name, sha256=item.sha256, size=item.size, why=why)


def left_out_json(left_out: Sequence[LeftOut]) -> str:
    """Return ``left-out.json``: digest, size and reason of each file that is not in the archive."""
    files = [{"name": o.name, "sha256": o.sha256, "size": o.size, "why": o.why} for o in left_out]
    return json.dumps({"left_out": files}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def sums_text(digests: Mapping[str, str]) -> str:
    """Return what ``sha256sum -c`` reads."""
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def listing(items: Sequence[Item], left_out: Sequence[LeftOut] = (), warnings: Sequence[str] = ()) -> str:
    """Return what goes out, a line for each file, and what was taken out of it."""
    width = max((len(item.name) for item in items), default=0)
    count = f"{len(items)} file{'s' if len(items) != 1 else ''}"
    total = write_size(sum(item.packed for item in items))
    lines = [f"What goes out: {count}, about {total} compressed"]
    for item in sorted(items, key=lambda item: item.name):
        lines.append(f"  {item.name:{width}}  {write_size(item.size):>8}  {item.what}".rstrip())
        lines += [f"    {note}" for note in item.told]
    if weights := [item.name for item in items if item.weights]:
        lines.append(f"THE WEIGHTS OF YOUR OWN MODEL GO OUT, in {', '.join(sorted(weights))}")
    lines.append(_taken(items))
    lines += [f"Left out: {o.name}, {write_size(o.size)}, sha256 {o.sha256}: {o.why}" for o in left_out]
    lines += [f"Note: {warning}" for warning in warnings]
    return "\n".join(lines) + "\n"


def _taken(items: Sequence[Item]) -> str:
    counts: Counter[Private] = Counter()
    for item in items:
        counts.update(item.taken)
    if not counts:
        return "Taken out: nothing private was found"
    return "Taken out: " + ", ".join(f"{kind.value} {counts[kind]}×" for kind in Private if counts[kind])


def write_size(size: int) -> str:
    """Write bytes in decimal units: ``812 B``, ``4.1 kB``, ``25.0 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
