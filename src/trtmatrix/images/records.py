"""Records that travel: ``pack --records`` writes those measured here, ``merge`` reads those of elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common.archive import SUFFIX, SUMS, Written, digest_of, sums_text, write_archive, write_size
from trtmatrix.common.errors import ExitCode, MachineryError, TrtMatrixError
from trtmatrix.common.unpack import Bounds, find_differences, read_archive
from trtmatrix.images.fates import Incoming, Refused, content_digest, misfit, misplaced
from trtmatrix.judge.record import Pool, Record, RecordError, parse_object, record_from
from trtmatrix.plan.context import Context
from trtmatrix.records.kept_outputs import kept_file
from trtmatrix.records.store import read_records, record_path
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.gpus import slug_of

RECORDS, OUTPUTS = "records", "outputs"
"""The folders of a pack beside its SHA256SUMS: records, kept outputs by digest."""

PACK = "records-"
"""How the name of a pack begins that is named after its content."""

LARGEST = 1 << 26
"""Bytes from which on a file is no record."""

SHOWN = 3


def pack_records(context: Context, args: argparse.Namespace) -> ExitCode:
    """Write the selected records that were measured here, published or not, to ``--to``; say what to do next.

    The exit code is NOTHING where there are none. :class:`UsageError` where the pack cannot be written.
    """
    records = select_records(context)
    if not records:
        print(
            f"trtmatrix: no selected record was measured here: {context.project.local} has none of them\n"
            "  measure some (python -m trtmatrix run), or select others: python -m trtmatrix table",
            file=sys.stderr,
        )
        return ExitCode.NOTHING
    try:
        written, outputs, gone = write_record_pack(args.to, records, context.project.cache)
    except OSError as error:
        raise MachineryError(f"a record or an output cannot be read: {error}") from error
    if gone:
        names = ", ".join(digest[:12] for digest in gone[:SHOWN]) + ", …" * (len(gone) > SHOWN)
        words = f"{len(gone)} outputs that records name are gone from the cache, and not in it: {names}"
        print(f"trtmatrix: {words}", file=sys.stderr)
    print(
        f"{written.file}: {len(records)} records, {outputs} kept outputs, {write_size(written.size)}, "
        f"sha256 {written.sha256}\nnext, on the other host: python -m trtmatrix merge {written.file.name}"
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
    chosen = [
        item.record
        for item in read_records(context.project.results)
        if item.local
        and (item.record.cell.version in versions or not (selection.versions or selection.runtimes))
        and (
            (item.record.cell.repro, item.record.cell.case) in rows
            or not (selection.repros or selection.cases)
        )
        and (item.record.cell.gpu in gpus or not selection.gpus)
    ]
    return sorted(chosen, key=lambda record: (record.cell, record.run))


def write_record_pack(
    target: Path, records: Sequence[Record], cache: Path
) -> tuple[Written, int, Sequence[str]]:
    """Write records byte for byte, with the outputs that they name and SHA256SUMS.

    ``target``: a file ``….tar.gz``, or a folder, in which it is named after its content. The same records
    give the same bytes. Returns also how many outputs it holds, and the digests of those that are gone.
    :class:`UsageError` where it cannot be written.
    """
    files: dict[str, bytes | Path] = {
        f"{RECORDS}/{record_path(Path(), record).as_posix()}": Path(record.file) for record in records
    }
    kept = [kept_file(cache, one) for one in sorted({d for record in records for d in kept_digests(record)})]
    here, gone = [file for file in kept if file.is_file()], [file.stem for file in kept if not file.is_file()]
    files |= {f"{OUTPUTS}/{file.name}": file for file in here}
    if not target.name.endswith(SUFFIX):
        sums = sums_text({name: digest_of(content) for name, content in files.items()})
        target = target / f"{PACK}{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
    return write_archive(target, files), len(here), gone


def kept_digests(record: Record) -> Iterator[str]:
    """Yield the digests of the outputs that a record names as kept."""
    kept = record.data.get("kept")
    for facts in kept.values() if isinstance(kept, dict) else ():
        digest = facts.get("sha256") if isinstance(facts, dict) else None
        if isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
            yield digest


@dataclass(frozen=True, kw_only=True)
class Source:
    """What was read of one file or folder. ``outputs``: where a pack has its kept outputs."""

    name: str
    records: tuple[Incoming, ...] = ()
    refused: tuple[Refused, ...] = ()
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
        # Records shrink by some ten times, outputs do not.
        size = (1 << 30) + 100 * path.stat().st_size
        bounds = Bounds(size=size, files=1_000_000, maker="pack --records")
        try:
            return _folder(read_archive(path, scratch, bounds), str(path))
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
    packed = (folder / SUMS).is_file() and (folder / RECORDS).is_dir()
    found = _read(name, _files(folder / RECORDS if packed else folder))
    outputs = folder / OUTPUTS
    return replace(found, outputs=outputs) if packed and outputs.is_dir() else found


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
        data = parse_object(file.read_bytes())
        record, digest = record_from(data, str(file), pool), content_digest(data)
    except RecordError as error:
        return f"line {str(error).removeprefix(':')}"
    except (OSError, ValueError, RecursionError) as error:
        return str(getattr(error, "strerror", None) or error)
    if wrong := misplaced(record, parts) or misfit(record, slug_of(str(record.gpu.get("name")))):
        return wrong
    return Incoming(record=record, digest=digest, source=source)


def _reread(file: str) -> Mapping[str, Any]:
    return parse_object(Path(file).read_bytes(), file)
