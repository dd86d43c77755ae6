"""``pack --records``: the records measured on this host, as one file for ``merge`` on another."""

from __future__ import annotations

import argparse
import sys

from trtmatrix.context import Context
from trtmatrix.core.errors import ExitCode, MachineryError
from trtmatrix.core.expand import select_cases, select_repros, select_versions
from trtmatrix.core.record import Record

SHOWN = 3


def pack_records(context: Context, args: argparse.Namespace) -> ExitCode:
    """Write the selected records that were measured here, published or not, to ``--to``; say what to do next.

    The exit code is NOTHING where there are none. :class:`UsageError` where the pack cannot be written.
    """
    from trtmatrix.effects.archive import write_size
    from trtmatrix.effects.gpu import find_gpus
    from trtmatrix.effects.record_pack import host_facts, write_record_pack

    records = select_records(context)
    if not records:
        print(
            f"trtmatrix: no selected record was measured here: {context.project.local} has none of them\n"
            "  measure some (python -m trtmatrix run), or select others: python -m trtmatrix table",
            file=sys.stderr,
        )
        return ExitCode.NOTHING
    try:
        pack = write_record_pack(args.to, records, context.project.cache, host_facts(find_gpus().gpus))
    except OSError as error:
        raise MachineryError(f"a record or an output cannot be read: {error}") from error
    if pack.gone:
        more = ", …" if len(pack.gone) > SHOWN else ""
        print(
            f"trtmatrix: {len(pack.gone)} outputs that records name are gone from the cache, and not in it: "
            f"{', '.join(digest[:12] for digest in pack.gone[:SHOWN])}{more}",
            file=sys.stderr,
        )
    written = pack.written
    print(
        f"{written.file}: {pack.records} records, {pack.outputs} kept outputs, {write_size(written.size)}, "
        f"sha256 {written.sha256}\nnext, on the other host: python -m trtmatrix merge {written.file.name}"
    )
    return ExitCode.AS_EXPECTED


def select_records(context: Context) -> list[Record]:
    """Return the records measured here that were selected, in the order of their cells and runs.

    Where neither repros nor cases are named, also those of the user's own models and of repros that are gone.
    """
    from trtmatrix.effects.store import read_records

    selection = context.selection
    versions = {version.name for version in select_versions(context.matrix, selection)}
    repros = select_repros(context.plain_repros, selection)
    rows = {(repro.id, case.id) for repro, case in select_cases(repros, selection)}
    by_row = bool(selection.repros or selection.cases)
    chosen = [
        item.record
        for item in read_records(context.project.results)
        if item.local
        and (item.record.cell.version in versions or not (selection.versions or selection.runtimes))
        and ((item.record.cell.repro, item.record.cell.case) in rows or not by_row)
        and (item.record.cell.gpu in _slugs(selection.gpus) or not selection.gpus)
    ]
    return sorted(chosen, key=lambda record: (record.cell, record.run))


def _slugs(names: tuple[str, ...]) -> set[str]:
    """Return the slugs of GPUs that were named as users do."""
    from trtmatrix.core.gpu_names import slug_of

    return {slug for name in names for slug in (name, slug_of(name))}
