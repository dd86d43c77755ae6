"""Reads the records that ``merge`` is given: files, folders and packs, each record checked by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.archive import SUFFIX, SUMS
from trtmatrix.common.errors import TrtMatrixError
from trtmatrix.common.jsontext import to_json
from trtmatrix.common.unpack import Bounds, find_differences, read_archive
from trtmatrix.images.record_packs import OUTPUTS, PACK, RECORDS
from trtmatrix.judge.record import Pool, Record, RecordError, parse_record, record_from
from trtmatrix.suite.gpus import CPU, slug_of
from trtmatrix.suite.model import Product
from trtmatrix.tables.table import one_line

LARGEST = 1 << 26
"""Bytes from which on a file is no record."""

RESERVED = frozenset({"local", "surfaces"})
"""Folders of the results that hold something else than a GPU's records."""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A record from elsewhere: its content's digest, and where it was found, in words."""

    record: Record
    digest: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What is not taken in, and why."""

    source: str
    words: str


@dataclass(kw_only=True)
class Source:
    """What was read of one file or folder. ``outputs``: where a pack has its kept outputs."""

    name: str
    records: list[Incoming] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    outputs: Path | None = None


def read_sources(path: Path, scratch: Path) -> list[Source]:
    """Read a file or folder, and each pack of records that a folder holds. ``scratch``: for unpacking."""
    packs = sorted(path.glob(f"{PACK}*{SUFFIX}")) if path.is_dir() else []
    sources = [read_source(pack, scratch / str(number)) for number, pack in enumerate(packs)]
    beside = read_source(path, scratch / "folder")
    return [*sources, beside] if beside.records or beside.refused or not packs else sources


def read_source(path: Path, scratch: Path) -> Source:
    """Read all records of one file or folder; what cannot be used is named with the reason.

    A pack with one changed byte is refused whole.
    """
    source = Source(name=str(path))
    try:
        _read_path(path, source, scratch)
    except (TrtMatrixError, ValueError) as error:
        source.refused.append(Refused(source=str(path), words=str(error).removeprefix(f"{path}: ")))
    return source


def _read_path(path: Path, source: Source, scratch: Path) -> None:
    if path.is_dir():
        _read_folder(path, source)
    elif not path.is_file():
        raise ValueError("is not there: name records (.json), folders of them, or packs of pack --records")
    elif path.name.endswith(SUFFIX):
        # Records shrink by some ten times, outputs do not.
        bounds = Bounds(size=(1 << 30) + 100 * path.stat().st_size, files=1_000_000, maker="pack --records")
        _read_folder(read_archive(path, scratch, bounds), source)
    elif path.suffix == ".json":
        _read_files({str(path): (path, (path.name,))}, source)
    else:
        raise ValueError(f"is neither .json, {SUFFIX} nor a folder; a pack of images is for unpack")


def _read_folder(folder: Path, source: Source) -> None:
    """Read a tree of results, or what a pack unpacks to, whose digests are checked first."""
    packed = (folder / SUMS).is_file()
    if packed and (problems := find_differences(folder)):
        raise ValueError("is not as it was made:\n" + "\n".join(f"    {one}" for one in problems))
    root = folder / RECORDS if packed and (folder / RECORDS).is_dir() else folder
    files: dict[str, tuple[Path, tuple[str, ...]]] = {}
    for place, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "surfaces")
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                file = Path(place, name)
                parts = file.relative_to(root).parts
                files[f"{source.name}: {'/'.join(parts)}"] = (file, parts)
    _read_files(files, source)
    if root != folder and (folder / OUTPUTS).is_dir():
        source.outputs = folder / OUTPUTS


def _read_files(files: Mapping[str, tuple[Path, tuple[str, ...]]], source: Source) -> None:
    """Read records, each with its path in the source, by the names under which they are told of."""
    pool = Pool(_reread)
    for name, (file, parts) in files.items():
        try:
            record, digest = _read_record(file, parts, pool)
        except RecordError as error:
            source.refused.append(Refused(source=name, words=f"line {str(error).removeprefix(':')}"))
        except (OSError, ValueError, RecursionError) as error:
            words = str(getattr(error, "strerror", None) or error)
            source.refused.append(Refused(source=name, words=words))
        else:
            source.records.append(Incoming(record=record, digest=digest, source=name))


def _read_record(file: Path, parts: tuple[str, ...], pool: Pool) -> tuple[Record, str]:
    """Return a record and its content's digest; ``ValueError`` says why it is none, or not as it was made."""
    if file.stat().st_size > LARGEST:
        raise ValueError(f"has more than {LARGEST:,} bytes, which no record has")
    data = parse_record(file.read_bytes()).data
    record = record_from(data, str(file), pool)
    if problem := next(problems_of(record, parts), ""):
        raise ValueError(problem)
    return record, content_digest(data)


def _reread(file: str) -> Mapping[str, Any]:
    return parse_record(Path(file).read_bytes(), file).data


def content_digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content, however it is laid out; ``ValueError`` on a bare NaN."""
    return sha256(to_json(data).encode("utf-8", "backslashreplace")).hexdigest()


def problems_of(record: Record, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield why a record was renamed, moved or edited since it was measured.

    ``parts``: its path in its source; as many folders as there are must be those of a tree of results. Its
    cell must be of the GPU that its facts name; products other than TensorRT are run on the CPU.
    """
    cell, named = record.cell, record.gpu.get("name")
    wanted = (cell.gpu, cell.version, cell.repro, cell.case, f"{record.run}.json")
    seen = parts[-len(wanted) :]
    if seen != wanted[-len(seen) :]:
        yield f"by its content it is {'/'.join(wanted)}: a file was renamed, moved or edited"
    if cell.gpu in RESERVED:
        yield f"its cell's GPU is {cell.gpu}, and results/{cell.gpu} holds other things than a GPU's records"
    elif record.product is not Product.TENSORRT:
        if cell.gpu != CPU.slug or named:
            product = record.product.value
            yield f"a record of {product} is of the {CPU.slug} and names no GPU; this one of {cell.gpu}"
    elif not isinstance(named, str) or not named:
        yield f"its cell is of {cell.gpu}, and its facts (gpu) name no GPU: it was edited"
    elif slug_of(named) != cell.gpu or one_line(named) != named:
        yield f"its cell is of {cell.gpu}, and its facts (gpu) name {one_line(named, 60)!r}: it was edited"
