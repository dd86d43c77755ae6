"""A pack of records: what was measured on one host, as one file that another host merges."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix import __version__
from trtmatrix.core.jsontext import to_json
from trtmatrix.core.model import Gpu
from trtmatrix.core.record import Record
from trtmatrix.effects.archive import SUFFIX, Written, digest_of, sums_text, write_archive
from trtmatrix.effects.kept_outputs import kept_file
from trtmatrix.effects.store import record_path
from trtmatrix.effects.unpack import Bounds

HOST, RECORDS, OUTPUTS = "host.json", "records", "outputs"
"""What such a pack holds beside its SHA256SUMS: what it was made on, records, kept outputs by digest."""

PACK = "records-"
"""How the name of a pack begins that is named after its content."""

SCHEMA = 1
"""The number of host.json's shape."""


@dataclass(frozen=True, kw_only=True)
class RecordPack:
    """A pack that was written: its file, how many records and outputs it holds, which outputs were gone."""

    written: Written
    records: int
    outputs: int
    gone: tuple[str, ...]


def bounds_of(file: Path) -> Bounds:
    """Return how much a pack of records may unpack to: records shrink by some ten times, outputs do not."""
    size = file.stat().st_size if file.is_file() else 0
    return Bounds(size=(1 << 30) + 100 * size, files=1_000_000, maker="pack --records")


def write_record_pack(
    target: Path, records: Sequence[Record], cache: Path, host: dict[str, Any]
) -> RecordPack:
    """Write records byte for byte, with the outputs that they name and SHA256SUMS.

    ``target``: a file ``….tar.gz``, or a folder, in which it is named after its content. The same records
    give the same bytes. :class:`UsageError` where it cannot be written.
    """
    text = to_json({"schema": SCHEMA, **host}).encode()
    files: dict[str, bytes | Path] = {HOST: text}
    files |= {f"{RECORDS}/{_place(record)}": Path(record.file) for record in records}
    here, gone = _outputs(records, cache)
    files |= {f"{OUTPUTS}/{file.name}": file for file in here}
    if not target.name.endswith(SUFFIX):
        sums = sums_text({name: digest_of(content) for name, content in files.items()})
        target = target / f"{PACK}{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
    written = write_archive(target, files)
    return RecordPack(written=written, records=len(records), outputs=len(here), gone=tuple(gone))


def _place(record: Record) -> str:
    """Return a record's path in every tree of results."""
    return record_path(Path(), record).as_posix()


def _outputs(records: Iterable[Record], cache: Path) -> tuple[list[Path], list[str]]:
    """Return the files of the outputs that records name, and the digests of those that are gone."""
    digests = sorted({digest for record in records for digest in kept_digests(record)})
    files = [kept_file(cache, digest) for digest in digests]
    here = [file for file in files if file.is_file()]
    return here, [file.stem for file in files if file not in here]


def kept_digests(record: Record) -> Iterator[str]:
    """Yield the digests of the outputs that a record names as kept."""
    kept = record.data.get("kept")
    for facts in kept.values() if isinstance(kept, dict) else ():
        digest = facts.get("sha256") if isinstance(facts, dict) else None
        if isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
            yield digest


def host_facts(gpus: Sequence[Gpu]) -> dict[str, Any]:
    """Return what a pack tells of the host that it was made on; nothing that names the host or its user."""
    return {
        "trtmatrix": __version__, "python": platform.python_version(), "machine": os.uname().machine,
        "os": _os_name(), "kernel": os.uname().release,
        "gpus": [
            {"name": gpu.name, "compute": gpu.compute, "driver": gpu.driver, "variant": gpu.variant}
            for gpu in gpus
        ],
    }  # fmt: skip


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def read_host(folder: Path) -> dict[str, Any]:
    """Return what a pack tells of its host, in texts; nothing where it does not.

    Raises :class:`RecursionError` where it is nested deeper than JSON of any use.
    """
    try:
        found = json.loads((folder / HOST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    facts = found if isinstance(found, dict) else {}
    gpus = facts.get("gpus")
    return {
        **_texts(facts),
        "gpus": [_texts(gpu) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else [],
    }


def _texts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if isinstance(value, str)}
