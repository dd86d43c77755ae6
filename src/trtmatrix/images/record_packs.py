"""``pack --records``: writes the records that were measured here, with their kept outputs, as one archive."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.archive import SUFFIX, Written, digest_of, sums_text, write_archive, write_size
from trtmatrix.common.errors import ExitCode, MachineryError
from trtmatrix.judge.record import Record
from trtmatrix.plan.context import Context
from trtmatrix.records.kept_outputs import kept_file
from trtmatrix.records.store import read_records, record_path
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.gpus import slug_of

RECORDS, OUTPUTS = "records", "outputs"
"""The folders of a pack beside its SHA256SUMS: records, kept outputs by digest."""

PACK = "records-"
"""How the name of a pack begins that is named after its content."""


def pack_records(context: Context, args: argparse.Namespace) -> ExitCode:
    """Write the selected records that were measured here, published or not, to ``--to``.

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
        print(f"trtmatrix: {gone} outputs that records name are gone from the cache", file=sys.stderr)
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
    every_version = not (selection.versions or selection.runtimes)
    every_row = not (selection.repros or selection.cases)
    found = []
    for item in read_records(context.project.results):
        cell = item.record.cell
        wanted = (every_version or cell.version in versions) and (not gpus or cell.gpu in gpus)
        if item.local and wanted and (every_row or (cell.repro, cell.case) in rows):
            found.append(item.record)
    return sorted(found, key=lambda record: (record.cell, record.run))


def write_record_pack(target: Path, records: Sequence[Record], cache: Path) -> tuple[Written, int, int]:
    """Write records byte for byte, with the outputs that they name and SHA256SUMS.

    ``target``: a file ``….tar.gz``, or a folder, in which it is named after its content: the same records
    give the same bytes. Returns also how many outputs it holds, and how many are gone.
    """
    files: dict[str, bytes | Path] = {
        f"{RECORDS}/{record_path(Path(), record).as_posix()}": Path(record.file) for record in records
    }
    kept = [kept_file(cache, digest) for digest in sorted({d for one in records for d in kept_digests(one)})]
    here = [file for file in kept if file.is_file()]
    files |= {f"{OUTPUTS}/{file.name}": file for file in here}
    if not target.name.endswith(SUFFIX):
        sums = sums_text({name: digest_of(content) for name, content in files.items()})
        target = target / f"{PACK}{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
    return write_archive(target, files), len(here), len(kept) - len(here)


def kept_digests(record: Record) -> Iterator[str]:
    """Yield the digests of the outputs that a record names as kept."""
    kept = record.data.get("kept")
    for facts in kept.values() if isinstance(kept, dict) else ():
        digest = facts.get("sha256") if isinstance(facts, dict) else None
        if isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef"):
            yield digest
