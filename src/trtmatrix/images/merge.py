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

from trtmatrix.common.archive import digest_stream
from trtmatrix.common.errors import ExitCode, MachineryError, combine_exit_codes
from trtmatrix.common.file_lock import hold_folder
from trtmatrix.images.fates import (
    APART,
    Fate,
    Held,
    Incoming,
    Key,
    Merged,
    Refused,
    Settled,
    content_digest,
    find_differences,
    gpu_lines,
    group_runs,
    mark_of,
    merge_json,
    merge_text,
    settle,
)
from trtmatrix.images.known_cells import KnownCells
from trtmatrix.images.records import Source, kept_digests, read_sources
from trtmatrix.judge.record import Record, parse_record
from trtmatrix.plan.context import Context, open_context
from trtmatrix.records.kept_outputs import kept_file, unpack_kept
from trtmatrix.records.store import read_records, record_path, write_new


def merge_command(args: argparse.Namespace) -> ExitCode:
    """Read all sources, check each record, write what is new, tell of all."""
    context = open_context(args)
    try:
        context.project.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=context.project.cache, prefix="merge-") as scratch:
            found = [read_sources(path, Path(scratch) / str(n)) for n, path in enumerate(args.files)]
            sources = [source for each in found for source in each]
            results = context.project.results
            if not args.dry_run:
                results.mkdir(parents=True, exist_ok=True)
            with contextlib.nullcontext() if args.dry_run else hold_folder(results):
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
        sources={source.name: len(source.records) for source in sources},
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
            with contextlib.suppress(FileExistsError):
                file = kept_file(cache, digest)
                write_new(file, (folder / file.name).read_bytes())
    return taken, damaged


def read_held(results: Path, record: Record) -> Held:
    """Return what the tree has of a record's run."""
    published = record_path(results, record)
    start = f"{published.name}{APART}"
    apart = frozenset(file.name.removeprefix(start) for file in published.parent.glob(f"{start}*"))
    return Held(
        published=_digest(published), local=_digest(record_path(results / "local", record)), apart=apart
    )


def _digest(file: Path) -> str:
    return content_digest(_data(file)) if file.is_file() else ""


def _data(file: Path) -> Mapping[str, Any]:
    return parse_record(file.read_bytes(), str(file)).data


def read_beside(results: Path, record: Record) -> Mapping[str, Any] | None:
    """Return the content that is here of a record's run, to compare another with, or None."""
    published = record_path(results, record)
    apart = sorted(published.parent.glob(f"{published.name}{APART}*"))
    for file in (published, record_path(results / "local", record), *apart):
        if file.is_file():
            return _data(file)
    return None


def write_settled(results: Path, settled: Settled) -> None:
    """Write what becomes of a run; each step leaves a whole tree, and merging again goes on from there."""
    published = record_path(results, settled.incoming[0].record)
    if settled.publish is not None:
        write_new(published, _content(settled.publish))
    if settled.move:
        published.rename(_apart(published, _digest(published)))
    for one in settled.apart:
        with contextlib.suppress(FileExistsError):
            write_new(_apart(published, one.digest), _content(one))


def _apart(published: Path, digest: str) -> Path:
    return published.with_name(f"{published.name}{APART}{mark_of(digest)}")


def _content(one: Incoming) -> bytes:
    return Path(one.record.file).read_bytes()


def is_whole(outputs: Path, digest: str) -> bool:
    """Whether a pack's kept output holds the bytes that its name says."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "output.npy"
        try:
            unpack_kept(outputs.parent, digest, file)
            with file.open("rb") as stream:
                return digest_stream(stream) == digest
        except (OSError, ValueError):
            return False
