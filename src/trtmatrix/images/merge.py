"""``merge``: takes records that were made elsewhere into the results that git sees, each checked.

Of one run of one cell there is one record. What contradicts it is refused: what is here stays as it is, and
of two new ones that contradict each other none comes in.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from trtmatrix.common.archive import digest_stream
from trtmatrix.common.border import ARRAY, BLOCK, BorderError, opened, opened_npz, read_file
from trtmatrix.common.errors import ExitCode, MachineryError, combine_exit_codes
from trtmatrix.common.paths import hold_folder, whole_file
from trtmatrix.common.words import counted
from trtmatrix.images.record_packs import Incoming, Source, content_digest, read_source
from trtmatrix.judge.record import Record, parse_object
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.records.store import kept_digests, kept_file, read_records, record_path, write_new
from trtmatrix.suite.repro_files import stored_repros

SCHEMA = 2
"""The number of the JSON's shape."""
SHOWN = 8
"""Differences of two records that are shown in text."""


class Fate(str, Enum):
    """What becomes of the records of one run."""

    NEW = "new"
    SAME = "here already"
    CONFLICT = "in conflict"
    REFUSED = "kept out"


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What becomes of the records of one run, and why.

    ``differences``: where those that contradict each other differ.
    """

    fate: Fate
    words: str
    incoming: Sequence[Incoming]
    differences: tuple[str, ...] = ()

    @property
    def record(self) -> Record:
        """The record that came first."""
        return self.incoming[0].record


@dataclass(frozen=True, kw_only=True)
class Merged:
    """All that a merge did; ``refused``: sources and files that could not be used, and why.

    ``outputs``: how many kept outputs came along.
    """

    sources: Sequence[Source]
    settled: tuple[Settled, ...]
    refused: tuple[tuple[str, str], ...]
    outputs: int

    @property
    def counts(self) -> Counter[Fate]:
        """How many runs had each fate."""
        return Counter(one.fate for one in self.settled)


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Those of ``merge``; ``files``: records, folders of them, packs."""

    project: ProjectOptions
    files: tuple[Path, ...]
    json: bool


def merge_command(options: MergeOptions) -> ExitCode:
    """Read all sources, check each record, write what is new, tell of all.

    Returns 2 where something cannot be used, 1 on a conflict, 4 without any record.
    """
    context = open_context(options.project)
    results, cache = context.project.results, context.project.cache
    try:
        cache.mkdir(parents=True, exist_ok=True)
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="merge-") as scratch:
            sources = [read_source(path, Path(scratch) / str(n)) for n, path in enumerate(options.files)]
            with hold_folder(results):
                merged = merge(context, sources)
    except OSError as error:
        raise MachineryError(
            f"a file could not be written or read: {error}\n"
            "  what came in so far is whole: merge again once that is mended"
        ) from error
    print(json.dumps(merge_json(merged), indent=1) if options.json else merge_text(merged))
    codes = {ExitCode.USAGE} if merged.refused or merged.counts[Fate.REFUSED] else set()
    codes |= {ExitCode.SURPRISE} if merged.counts[Fate.CONFLICT] else set()
    return combine_exit_codes(codes | (set() if merged.settled else {ExitCode.NOTHING}))


def merge(context: Context, sources: Sequence[Source]) -> Merged:
    """Take records and their outputs in; :class:`ConfigError` where the results here are damaged."""
    read_records(context.project.results)
    runs = defaultdict(list)
    every = [one for source in sources for one in source.records]
    for one in sorted(every, key=lambda one: (one.record.cell, one.record.run, one.digest, one.source)):
        runs[one.record.cell, one.record.run].append(one)
    settled = tuple(_settle(context, group) for group in runs.values())
    outputs, damaged = _take_outputs(context.project.cache, sources, settled)
    refused = (*(each for source in sources for each in source.refused), *damaged)
    return Merged(sources=sources, settled=settled, refused=refused, outputs=outputs)


def _settle(context: Context, incoming: list[Incoming]) -> Settled:
    """Write the record of one run where it is new."""
    record, results = incoming[0].record, context.project.results
    places = [record_path(root, record) for root in (results, results / "local")]
    here = {file: parse_object(read_file(file), str(file)) for file in places if file.is_file()}
    held, differences = {content_digest(data) for data in here.values()}, tuple[str, ...]()
    new = {one.digest: one for one in reversed(incoming) if one.digest not in held}
    if not new:
        fate, words = Fate.SAME, Fate.SAME.value
    elif why := _why_unknown(context, record):
        fate, words = Fate.REFUSED, why
    elif here or len(new) > 1:
        first, *others = [*here.values(), *(dict(one.record.data) for one in new.values())]
        differences = next((found for each in others if (found := tuple(find_differences(first, each)))), ())
        stays = f"{next(iter(here))} stays as it is" if here else "none of them is taken in"
        fate, words = Fate.CONFLICT, stays
    else:
        write_new(places[0], read_file(Path(record.file)))
        fate, words = Fate.NEW, Fate.NEW.value
    return Settled(fate=fate, words=words, incoming=incoming, differences=differences)


def _why_unknown(context: Context, record: Record) -> str:
    """Return why a record's cell is none of this project's, nor of a model prepared here; or nothing."""
    cell = record.cell
    version = next((one for one in context.matrix.versions if one.name == cell.version), None)
    if version is None:
        return f"matrix.yaml has no version {cell.version}: add it, then merge again"
    if version.product is not record.product:
        return f"{cell.version} is of {version.product.value} here, and the record of {record.product.value}"
    if (loaded := context.repros.get(cell.repro)) is not None:
        if any(case.id == cell.case for case in loaded.repro.cases):
            return ""
        return f"the repro {cell.repro} has no case {cell.case} here: merge where its repro is as it was"
    if stored_repros(context.project.cache, cell.repro, cell.case):
        return ""
    return (
        f"there is no repro {cell.repro} here: of a model of your own, prepare it first "
        "(python -m trtmatrix upgrade --model FILE --no-run); else add the repro, then merge again"
    )


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield each place at which two records differ, with both values."""
    for name in sorted({*first, *second}):
        one, other = first.get(name, "nothing"), second.get(name, "nothing")
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from find_differences(one, other, f"{where}{name}.")
        elif one != other or type(one) is not type(other):
            yield f"{where}{name}: {str(one)[:60]} | {str(other)[:60]}"


def _take_outputs(
    cache: Path, sources: Sequence[Source], settled: Sequence[Settled]
) -> tuple[int, list[tuple[str, str]]]:
    """Copy the kept outputs of records that count into the cache, each checked.

    Returns how many, and those that do not hold what their name says.
    """
    records = [one.record for one in settled if one.fate in {Fate.NEW, Fate.SAME}]
    folders = [source.outputs for source in sources if source.outputs]
    taken, damaged = 0, []
    for digest in sorted({digest for record in records for digest in kept_digests(record)}):
        target = kept_file(cache, digest)
        file = next((f for folder in folders if (f := folder / target.name).is_file()), None)
        if file is None or target.is_file():
            continue
        try:
            with opened_npz(file) as archive, archive.member("output") as (stream, _):
                whole = digest_stream(stream) == digest
        except (OSError, BorderError):
            whole = False
        if not whole:
            damaged.append((f"outputs/{target.name}", "does not hold what its name says"))
            continue
        taken += 1
        with opened(file, ARRAY) as (stream, _), whole_file(target, sync=False) as out:
            shutil.copyfileobj(stream, out, BLOCK)
    return taken, damaged


def merge_text(merged: Merged) -> str:
    """Return what was done: sources, counts, conflicts, what is kept out, and what to type next.

    Nothing of a source's gets through that a terminal would act on.
    """
    lines = [f"{source.name}: {counted(len(source.records), 'record')}" for source in merged.sources]
    counts, refused = merged.counts, list(merged.refused)
    lines.append(", ".join(f"{counts[fate]} {fate.value}" for fate in Fate if counts[fate]) or "no record")
    lines += [f"{merged.outputs} kept outputs came along"] if merged.outputs else []
    for one in merged.settled:
        if one.fate is Fate.REFUSED:
            refused.append((one.incoming[0].source, one.words))
        elif one.fate is Fate.CONFLICT:
            lines += ["", f"conflict: {one.record.cell}, run {one.record.run}: {one.words}"]
            lines += [f"  came: {incoming.source}" for incoming in one.incoming]
            lines += [f"  {line}" for line in one.differences[:SHOWN]]
            more = len(one.differences) - SHOWN
            lines += [f"  and {more} more places"] if more > 0 else []
    lines += ["", *(f"kept out: {source}: {words}" for source, words in refused)] if refused else []
    following = "mend what is kept out or in conflict as said above, then merge again"
    if not merged.settled and not merged.refused:
        following = "python -m trtmatrix merge FILES, with packs of pack --records, or folders of records"
    elif counts[Fate.NEW] or counts[Fate.SAME]:
        following = "python -m trtmatrix table"
    text = "\n".join([*lines, "", f"next: {following}"])
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def merge_json(merged: Merged) -> dict[str, Any]:
    """Return the same as plain data."""
    return {
        "schema": SCHEMA, "outputs": merged.outputs,
        "counts": {fate.name.lower(): merged.counts[fate] for fate in Fate},
        "sources": [{"source": source.name, "records": len(source.records)} for source in merged.sources],
        "records": [
            {
                "id": str(one.record.cell), "run": one.record.run, "fate": one.fate.name.lower(),
                "words": one.words, "sources": [incoming.source for incoming in one.incoming],
                "differences": list(one.differences),
            }
            for one in merged.settled
        ],
        "kept_out": [{"source": source, "words": words} for source, words in merged.refused],
    }  # fmt: skip
