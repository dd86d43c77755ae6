"""Reads records that come from elsewhere: files, folders, packs; what they come in is never changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.merge import Incoming, Refused, content_digest, misfit, misplaced
from trtmatrix.core.record import Pool, RecordError, parse_record, record_from
from trtmatrix.effects.archive import SUFFIX, SUMS
from trtmatrix.effects.record_pack import HOST, OUTPUTS, PACK, RECORDS, bounds_of, read_host
from trtmatrix.effects.unpack import find_differences, read_archive

LARGEST = 1 << 26
"""Bytes from which on a file is no record."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was read of one file or folder. ``outputs``: where a pack has its kept outputs."""

    name: str
    records: tuple[Incoming, ...] = ()
    refused: tuple[Refused, ...] = ()
    host: Mapping[str, Any] = field(default_factory=dict)
    outputs: Path | None = None


def read_sources(path: Path, scratch: Path) -> list[Source]:
    """Read a file or folder, as :func:`read_source` does, and each pack of records that a folder holds."""
    packs = sorted(path.glob(f"{PACK}*{SUFFIX}")) if path.is_dir() else []
    sources = [read_source(pack, scratch / str(number)) for number, pack in enumerate(packs)]
    beside = read_source(path, scratch / "folder")
    return [*sources, beside] if beside.records or beside.refused or not packs else sources


def read_source(path: Path, scratch: Path) -> Source:
    """Read all records of a file or folder; ``scratch``: a folder for this source, where a pack is unpacked.

    Nothing is raised: what cannot be used is named with the reason. A pack with one changed byte is refused
    whole.
    """
    if path.is_dir():
        return _folder(path, str(path))
    if not path.is_file():
        return _refuse(
            path, "is not there: name records (.json), folders of them, or packs of pack --records"
        )
    if path.name.endswith(SUFFIX):
        try:
            return _folder(read_archive(path, scratch, bounds_of(path)), str(path))
        except TrtMatrixError as error:
            return _refuse(path, str(error).removeprefix(f"{path}: "))
    if path.suffix == ".json":
        return _read(str(path), [(path, (path.name,))])
    return _refuse(path, f"is neither .json, {SUFFIX} nor a folder; a pack of images is for unpack")


def _refuse(path: Path, words: str) -> Source:
    return Source(name=str(path), refused=(Refused(source=str(path), words=words),))


def _folder(folder: Path, name: str) -> Source:
    """Read a tree of results, or what a pack unpacks to, whose digests are checked first."""
    if (folder / SUMS).is_file() and (problems := find_differences(folder)):
        words = "is not as it was made:\n" + "\n".join(f"    {one}" for one in problems)
        return Source(name=name, refused=(Refused(source=name, words=words),))
    packed = (folder / HOST).is_file() and (folder / RECORDS).is_dir()
    try:
        host = read_host(folder) if packed else {}
    except RecursionError:
        words = f"its {HOST} is nested deeper than pack --records writes it: have it made again there"
        return Source(name=name, refused=(Refused(source=name, words=words),))
    found = _read(name, _files(folder / RECORDS if packed else folder))
    if not packed:
        return found
    outputs = folder / OUTPUTS
    return Source(
        name=name, records=found.records, refused=found.refused, host=host,
        outputs=outputs if outputs.is_dir() else None,
    )  # fmt: skip


def _files(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield each file that should be a record, with its path's parts; surfaces lie beside, and are none."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "surfaces")
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                file = Path(folder) / name
                yield file, file.relative_to(root).parts


def _read(name: str, files: Iterable[tuple[Path, tuple[str, ...]]]) -> Source:
    records: list[Incoming] = []
    refused: list[Refused] = []
    pool = Pool(_reread)
    for file, parts in files:
        source = name if name == str(file) else f"{name}: {'/'.join(parts)}"
        one = _record(file, parts, source, pool)
        if isinstance(one, Incoming):
            records.append(one)
        else:
            refused.append(Refused(source=source, words=one))
    return Source(name=name, records=tuple(records), refused=tuple(refused))


def _record(file: Path, parts: tuple[str, ...], source: str, pool: Pool) -> Incoming | str:
    """Return a record, or why it is none."""
    try:
        if file.stat().st_size > LARGEST:
            return f"has more than {LARGEST:,} bytes, which no record has"
        data = parse_record(file.read_bytes()).data
        record, digest = record_from(data, str(file), pool), content_digest(data)
    except RecordError as error:
        return f"line {str(error).removeprefix(':')}"
    except (OSError, ValueError, RecursionError) as error:
        return str(getattr(error, "strerror", None) or error)
    if wrong := misplaced(record, parts) or misfit(record, slug_of(str(record.gpu.get("name")))):
        return wrong
    return Incoming(record=record, digest=digest, source=source)


def _reread(file: str) -> Mapping[str, Any]:
    return parse_record(Path(file).read_bytes(), file).data
