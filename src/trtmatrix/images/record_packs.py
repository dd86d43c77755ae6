"""Records that travel: ``pack --records`` writes those measured here, ``merge`` reads those of elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common import archive
from trtmatrix.common.archive import SUFFIX
from trtmatrix.common.border import read_file
from trtmatrix.common.errors import ExitCode, MachineryError, TrtMatrixError
from trtmatrix.common.jsontext import check_depth, to_json
from trtmatrix.common.words import one_line
from trtmatrix.judge.record import Pool, Record, RecordError, parse_object, record_from
from trtmatrix.plan.context import Context
from trtmatrix.records.store import kept_digests, kept_file, read_records, record_path
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.model import CPU, Product, slug_of

RECORDS, OUTPUTS = "records", "outputs"
"""The folders of a pack beside its SHA256SUMS: records, kept outputs by digest."""
RESERVED = frozenset({"local", "surfaces"})
"""Folders of the results that hold something else than a GPU's records."""


def pack_records(context: Context, to: Path) -> ExitCode:
    """Write the selected records that were measured here, published or not, with the outputs that they name.

    Byte for byte, with SHA256SUMS. ``to``: a file ``….tar.gz``, or a folder, in which it is named after its
    content: the same records give the same bytes. The exit code is NOTHING where there are none.
    :class:`UsageError` where the pack cannot be written.
    """
    records, cache = select_records(context), context.project.cache
    if not records:
        none = f"no selected record was measured here: {context.project.local} has none of them"
        mend = "measure some (python -m trtmatrix run), or select others: python -m trtmatrix table"
        print(f"trtmatrix: {none}\n  {mend}", file=sys.stderr)
        return ExitCode.NOTHING
    kept = [kept_file(cache, digest) for digest in sorted({d for one in records for d in kept_digests(one)})]
    here = [file for file in kept if file.is_file()]
    files: dict[str, bytes | Path] = {
        **{f"{RECORDS}/{record_path(Path(), one).as_posix()}": Path(one.file) for one in records},
        **{f"{OUTPUTS}/{file.name}": file for file in here},
    }
    try:
        if not to.name.endswith(SUFFIX):
            sums = archive.sums_text({name: archive.digest_of(content) for name, content in files.items()})
            to = to / f"records-{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
        written = archive.write_archive(to, files)
    except OSError as error:
        raise MachineryError(f"a record or an output cannot be read: {error}") from error
    if gone := len(kept) - len(here):
        print(f"trtmatrix: {gone} outputs that records name are gone from the cache", file=sys.stderr)
    size = archive.write_size(written.size)
    print(
        f"{written.file}: {len(records)} records, {len(here)} kept outputs, {size}, sha256 {written.sha256}\n"
        f"next, on the other host: python -m trtmatrix merge {written.file.name}"
    )
    return ExitCode.AS_EXPECTED


def select_records(context: Context) -> list[Record]:
    """Return the records measured here that were selected, in the order of their cells and runs.

    Where neither repros nor cases are named, also those of the user's own models and of repros that are gone.
    """
    selection = context.selection
    versions = {version.name for version in select_versions(context.matrix, selection)}
    repros = select_repros(context.plain_repros, selection)
    rows = {(repro.id, case.id) for repro, case in select_cases(repros, selection)}
    gpus = {slug for name in selection.gpus for slug in (name, slug_of(name))}
    every_version = not (selection.versions or selection.runtimes)
    every_row = not (selection.repros or selection.cases)
    found = []
    for item in read_records(context.project.results):
        cell = item.record.cell
        wanted = (every_version or cell.version in versions) and (not gpus or cell.gpu in gpus)
        if item.local and wanted and (every_row or (cell.repro, cell.case) in rows):
            found.append(item.record)
    return sorted(found, key=lambda record: (record.cell, record.run))


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A record from elsewhere: its content's digest, and where it was found, in words."""

    record: Record
    digest: str
    source: str


@dataclass(kw_only=True)
class Source:
    """What was read of one file or folder; ``refused``: what is not taken in, and why.

    ``outputs``: where a pack has its kept outputs.
    """

    name: str
    records: list[Incoming] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    outputs: Path | None = None


def read_source(path: Path, scratch: Path) -> Source:
    """Read all records of one file or folder; what cannot be used is named with the reason.

    A pack with one changed byte is refused whole. ``scratch``: for unpacking.
    """
    source = Source(name=str(path))
    try:
        files = _list_records(path, scratch, source)
    except (TrtMatrixError, ValueError) as error:
        source.refused.append((source.name, str(error).removeprefix(f"{path}: ")))
        return source
    pool = Pool(lambda file: parse_object(read_file(Path(file)), file))
    for name, (file, parts) in files.items():
        try:
            data = parse_object(read_file(file))
            check_depth(data)
            record = record_from(data, str(file), pool)
            if problem := next(problems_of(record, parts), ""):
                source.refused.append((name, problem))
            else:
                source.records.append(Incoming(record=record, digest=content_digest(data), source=name))
        except RecordError as error:
            source.refused.append((name, f"line {str(error).removeprefix(':')}"))
        except (OSError, ValueError, RecursionError) as error:
            source.refused.append((name, str(getattr(error, "strerror", None) or error)))
    return source


Files = dict[str, tuple[Path, tuple[str, ...]]]
"""Records by the names under which they are told of, each with its path in the source."""


def _list_records(path: Path, scratch: Path, source: Source) -> Files:
    """Return the files of a source: one record, a tree of results, or a pack, whose digests are checked."""
    folder = path
    if not path.is_dir():
        if not path.is_file():
            raise ValueError("is not there: name records (.json), folders of them, or packs of records")
        if path.suffix == ".json":
            return {source.name: (path, (path.name,))}
        if not path.name.endswith(SUFFIX):
            raise ValueError(f"is neither .json, {SUFFIX} nor a folder; a pack of images is for unpack")
        size = (1 << 30) + 100 * path.stat().st_size  # records shrink by some ten times, outputs do not
        bounds = archive.Bounds(size=size, files=1_000_000, maker="pack --records")
        folder = archive.read_archive(path, scratch, bounds)
    root = folder
    if (folder / archive.SUMS).is_file():
        if problems := archive.find_differences(folder):
            raise ValueError("is not as it was made:\n" + "\n".join(f"    {one}" for one in problems))
        root = folder / RECORDS if (folder / RECORDS).is_dir() else folder
        source.outputs = folder / OUTPUTS if (folder / OUTPUTS).is_dir() else None
    files: Files = {}
    for place, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "surfaces")
        for name in sorted(names):
            if name.endswith(".json") and not name.startswith("."):
                parts = Path(place, name).relative_to(root).parts
                files[f"{source.name}: {'/'.join(parts)}"] = (Path(place, name), parts)
    return files


def content_digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content, however it is laid out; ``ValueError`` on a bare NaN."""
    return sha256(to_json(data).encode("utf-8", "backslashreplace")).hexdigest()


def problems_of(record: Record, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield why a record was renamed, moved or edited since it was measured.

    ``parts``: its path in its source; as many folders as there are must be those of a tree of results. Its
    cell must be of the GPU that its facts name; products other than TensorRT are run on the CPU.
    """
    cell, named = record.cell, record.gpu.get("name")
    wanted = (*cell.folder.split("/"), f"{record.run}.json")
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
