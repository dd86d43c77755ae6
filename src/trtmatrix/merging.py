"""``merge``: takes records that were made elsewhere into the results that git sees, each checked."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtmatrix.context import Context, open_context
from trtmatrix.core.errors import ExitCode, MachineryError, combine_exit_codes
from trtmatrix.core.merge import (
    Fate,
    Hosted,
    Incoming,
    Key,
    Merged,
    Refused,
    Settled,
    find_differences,
    gpu_lines,
    group_runs,
    settle,
)
from trtmatrix.core.render_merge import merge_json, merge_text
from trtmatrix.effects.record_source import Source, read_sources
from trtmatrix.effects.record_tree import (
    is_whole,
    one_at_a_time,
    read_beside,
    read_held,
    take_output,
    write_settled,
)
from trtmatrix.known_cells import KnownCells


def merge_command(args: argparse.Namespace) -> ExitCode:
    """Read all sources, check each record, write what is new, tell of all."""
    context = open_context(args)
    try:
        context.project.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.project.cache, prefix="merge-") as scratch:
            found = [read_sources(path, Path(scratch) / str(n)) for n, path in enumerate(args.files)]
            sources = [source for each in found for source in each]
            with contextlib.nullcontext() if args.dry_run else one_at_a_time(context.project.results):
                merged = merge(context, sources, dry=args.dry_run)
    except OSError as error:
        raise MachineryError(
            f"a file could not be written or read: {error}\n"
            "  what came in so far is whole: merge again once that is mended"
        ) from error
    print(json.dumps(merge_json(merged), indent=1) if args.json else merge_text(merged), end="")
    return exit_code(merged)


def exit_code(merged: Merged) -> ExitCode:
    """Return how a merge ends: 2 where something cannot be used, 1 on a conflict, 4 without any record."""
    codes = set()
    if merged.refused or merged.of(Fate.REFUSED):
        codes.add(ExitCode.USAGE)
    if merged.of(Fate.CONFLICT):
        codes.add(ExitCode.SURPRISE)
    if not merged.settled:
        codes.add(ExitCode.NOTHING)
    return combine_exit_codes(codes)


def merge(context: Context, sources: Sequence[Source], *, dry: bool = False) -> Merged:
    """Take records in, unless ``dry``; :class:`ConfigError` where the results here are damaged."""
    from trtmatrix.effects.store import read_records

    results, known = context.project.results, KnownCells(context)
    here = [item.record for item in read_records(results)]
    settled: list[Settled] = []
    differences: dict[Key, tuple[str, ...]] = {}
    for key, group in group_runs(one for source in sources for one in source.records).items():
        record = group[0].record
        unknown = known.unknown(record)
        one = settle(group, read_held(results, record), unknown)
        if one.fate is Fate.CONFLICT:
            differences[key] = tuple(_differences(results, group))
        if one.fate in {Fate.NEW, Fate.CONFLICT} and not unknown:
            one = replace(one, remarks=known.remarks(record))
        if not dry:
            write_settled(results, one)
        settled.append(one)
    outputs, damaged = _take_outputs(context, sources, settled, dry=dry)
    coming = [one.incoming[0].record for one in settled if one.fate is Fate.NEW]
    return Merged(
        settled=tuple(settled), refused=(*(r for s in sources for r in s.refused), *damaged),
        hosts=tuple(Hosted(source=s.name, records=len(s.records), host=s.host) for s in sources),
        gpus=gpu_lines(here, coming), differences=differences, outputs=outputs, dry=dry,
    )  # fmt: skip


def _differences(results: Path, group: Sequence[Incoming]) -> list[str]:
    """Return where the first record that contradicts what is here, or the first of the group, differs."""
    datas: list[Mapping[str, Any]] = [one.record.data for one in group]
    beside = read_beside(results, group[0].record)
    first = beside if beside is not None else datas[0]
    return next((found for data in datas if (found := find_differences(first, data))), [])


def _take_outputs(
    context: Context, sources: Sequence[Source], settled: Sequence[Settled], *, dry: bool
) -> tuple[int, list[Refused]]:
    """Copy the kept outputs of records that count into the cache, each checked; returns how many."""
    from trtmatrix.effects.kept_outputs import kept_file
    from trtmatrix.effects.record_pack import kept_digests

    counted = [one.incoming[0].record for one in settled if one.fate in {Fate.NEW, Fate.SAME}]
    wanted = sorted({digest for record in counted for digest in kept_digests(record)})
    cache, taken, damaged = context.project.cache, 0, []
    for digest in wanted:
        folder = next(
            (s.outputs for s in sources if s.outputs and kept_file(s.outputs.parent, digest).is_file()), None
        )
        if folder is None or kept_file(cache, digest).is_file():
            continue
        if not is_whole(folder, digest):
            damaged.append(Refused(source=f"outputs/{digest}.npz", words="does not hold what its name says"))
            continue
        taken += 1
        if not dry:
            take_output(cache, folder, digest)
    return taken, damaged
