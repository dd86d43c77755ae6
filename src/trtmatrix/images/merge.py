"""Records that travel: ``pack --records`` writes those measured here, ``merge`` takes in those of elsewhere.

Of one run of one cell there is one record. What contradicts it is refused: what is here stays as it is, and
of two new ones that contradict each other none comes in.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common import archive
from trtmatrix.common.archive import SUFFIX
from trtmatrix.common.border import ARRAY, BLOCK, BorderError, opened, opened_npz, read_file
from trtmatrix.common.errors import ExitCode, MachineryError, TrtMatrixError, combine_exit_codes
from trtmatrix.common.paths import digest_stream, hold_folder, whole_file
from trtmatrix.common.text import counted, one_line, printable, to_json
from trtmatrix.judge.record import Pool, Record, RecordError, parse_object, record_from
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.records.operators import FILE as OPERATORS
from trtmatrix.records.operators import (
    LARGEST,
    NO_RECORD,
    OperatorRecord,
    parse_record,
    read_operator_records,
    record_text,
)
from trtmatrix.records.store import kept_digests, kept_file, read_records, record_path, write_new
from trtmatrix.suite.cells import select_cases, select_repros, select_versions
from trtmatrix.suite.model import CPU, Product, slug_of
from trtmatrix.suite.repro_files import stored_repros

SCHEMA = 2
"""The number of the JSON's shape."""
SHOWN = 8
"""Differences of two records that are shown in text."""
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
    (records, operators), cache = select_records(context), context.project.cache
    if not records and not operators:
        none = f"no selected record was measured here: {context.project.local} has none of them"
        mend = "measure some (python -m trtmatrix run), or select others: python -m trtmatrix table"
        print(f"trtmatrix: {none}\n  {mend}", file=sys.stderr)
        return ExitCode.NOTHING
    kept = [kept_file(cache, digest) for digest in sorted({d for one in records for d in kept_digests(one)})]
    here = [file for file in kept if file.is_file()]
    files: dict[str, bytes | Path] = {
        **{f"{RECORDS}/{record_path(Path(), one).as_posix()}": Path(one.file) for one in records},
        **{f"{RECORDS}/{one.place.as_posix()}": context.project.local / one.place for one in operators},
        **{f"{OUTPUTS}/{file.name}": file for file in here},
    }
    try:
        if not to.name.endswith(SUFFIX):
            sums = archive.sums_text({name: archive.digest_of(content) for name, content in files.items()})
            to = to / f"records-{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
        archive.write_archive(to, files)
    except OSError as error:
        raise MachineryError(f"a record or an output cannot be read: {error}") from error
    if gone := len(kept) - len(here):
        lost = counted(gone, "output")
        print(f"trtmatrix: not in the cache any more: {lost} that records name", file=sys.stderr)
    size, many = archive.write_size(to.stat().st_size), counted(len(records) + len(operators), "record")
    print(
        f"{to}: {many}, {counted(len(here), 'kept output')}, {size}, sha256 {archive.digest_of(to)}\n"
        f"next, on the other host: python -m trtmatrix merge {to.name}"
    )
    return ExitCode.AS_EXPECTED


def select_records(context: Context) -> tuple[list[Record], list[OperatorRecord]]:
    """Return the records measured here that were selected, in the order of their cells and runs.

    Where neither repros nor cases are named, also those of the user's own models, of repros that are gone and
    of operators.
    """
    selection = context.selection
    versions = {version.name for version in select_versions(context.matrix, selection)}
    repros = select_repros(context.plain_repros, selection)
    rows = {(repro.id, case.id) for repro, case in select_cases(repros, selection)}
    gpus = {slug for name in selection.gpus for slug in (name, slug_of(name))}
    every_version = not (selection.versions or selection.runtimes)
    every_row = not (selection.repros or selection.cases)

    def is_wanted(version: str, gpu: str) -> bool:
        return (every_version or version in versions) and (not gpus or gpu in gpus)

    found = []
    for item in read_records(context.project.results):
        cell = item.record.cell
        wanted = item.local and is_wanted(cell.version, cell.gpu)
        if wanted and (every_row or (cell.repro, cell.case) in rows):
            found.append(item.record)
    operators = [
        one for one in read_operator_records(context.project.results)
        if every_row and is_wanted(one.version, one.gpu) and (context.project.local / one.place).is_file()
    ]  # fmt: skip
    return sorted(found, key=lambda record: (record.cell, record.run)), operators


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A record from elsewhere: its file, its content's digest, and where it was found, in words."""

    record: Record | OperatorRecord
    file: Path
    digest: str
    source: str

    @property
    def id(self) -> str:
        """The cell, or ``operators`` in the place of a repro and its case."""
        record = self.record
        if isinstance(record, Record):
            return str(record.cell)
        return f"operators@{record.version}#{record.gpu}"

    @property
    def run(self) -> str:
        """Which run it is of; of operators when that began."""
        record = self.record
        return record.run if isinstance(record, Record) else str(record.facts.get("started", ""))


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
            data = _read_content(file)
            of_cell = file.name != OPERATORS
            record = record_from(data, str(file), pool) if of_cell else _read_operators(file)
            if problem := next(problems_of(record, parts), ""):
                source.refused.append((name, problem))
            else:
                digest = content_digest(data)
                source.records.append(Incoming(record=record, file=file, digest=digest, source=name))
        except RecordError as error:
            source.refused.append((name, f"line {str(error).removeprefix(f'{file}:')}"))
        except (OSError, ValueError, RecursionError) as error:
            source.refused.append((name, str(getattr(error, "strerror", None) or error)))
        except NO_RECORD as error:
            source.refused.append((name, f"is no record of operators: {error}"))
    return source


def _read_operators(file: Path) -> OperatorRecord:
    return parse_record(read_file(file, LARGEST))


def _read_content(file: Path) -> Mapping[str, Any]:
    """Return what a record says; of operators as it would be written anew, however it is packed."""
    if file.name == OPERATORS:
        return parse_object(record_text(_read_operators(file)).encode(), str(file))
    return parse_object(read_file(file), str(file))


Files = dict[str, tuple[Path, tuple[str, ...]]]
"""Records by the names under which they are told of, each with its path in the source."""


def _list_records(path: Path, scratch: Path, source: Source) -> Files:
    """Return the files of a source: one record, a tree of results, or a pack, whose digests are checked."""
    folder = path
    if not path.is_dir():
        if not path.is_file():
            raise ValueError("is not there: name records (.json), folders of them, or packs of records")
        if path.suffix == ".json" or path.name == OPERATORS:
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
            if name == OPERATORS or (name.endswith(".json") and not name.startswith(".")):
                parts = Path(place, name).relative_to(root).parts
                files[f"{source.name}: {'/'.join(parts)}"] = (Path(place, name), parts)
    return files


def content_digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record's content, however it is laid out; ``ValueError`` on a bare NaN."""
    return sha256(to_json(data).encode()).hexdigest()


def problems_of(record: Record | OperatorRecord, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield why a record was renamed, moved or edited since it was measured.

    ``parts``: its path in its source; as many folders as there are must be those of a tree of results. Its
    cell must be of the GPU that its facts name; products other than TensorRT are run on the CPU.
    """
    gpu, facts = (
        (record.cell.gpu, record.gpu) if isinstance(record, Record) else (record.gpu, record.facts["gpu"])
    )
    named, wanted = facts.get("name"), _place_of(record).parts
    seen = parts[-len(wanted) :]
    if seen != wanted[-len(seen) :]:
        yield f"by its content it is {'/'.join(wanted)}: a file was renamed, moved or edited"
    if gpu in RESERVED:
        yield f"its cell's GPU is {gpu}, and results/{gpu} holds other things than a GPU's records"
    elif record.product is not Product.TENSORRT:
        if gpu != CPU.slug or named:
            product = record.product.value
            yield f"a record of {product} is of the {CPU.slug} and names no GPU; this one of {gpu}"
    elif not isinstance(named, str) or not named:
        yield f"its cell is of {gpu}, and its facts (gpu) name no GPU: it was edited"
    elif slug_of(named) != gpu or one_line(named) != named:
        yield f"its cell is of {gpu}, and its facts (gpu) name {one_line(named, 60)!r}: it was edited"


def _place_of(record: Record | OperatorRecord) -> Path:
    """Return where a record lies in a tree of results."""
    return record_path(Path(), record) if isinstance(record, Record) else record.place


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
    read_operator_records(context.project.results)
    runs = defaultdict(list)
    every = [one for source in sources for one in source.records]
    for one in sorted(every, key=lambda one: (_place_of(one.record), one.digest, one.source)):
        runs[_place_of(one.record)].append(one)
    settled = tuple(_settle(context, group) for group in runs.values())
    outputs, damaged = _take_outputs(context.project.cache, sources, settled)
    refused = (*(each for source in sources for each in source.refused), *damaged)
    return Merged(sources=sources, settled=settled, refused=refused, outputs=outputs)


def _settle(context: Context, incoming: list[Incoming]) -> Settled:
    """Write the record of one run where it is new."""
    record, results = incoming[0].record, context.project.results
    places = [root / _place_of(record) for root in (results, results / "local")]
    here = {file: _read_content(file) for file in places if file.is_file()}
    held, differences = {content_digest(data) for data in here.values()}, tuple[str, ...]()
    new = {one.digest: one for one in reversed(incoming) if one.digest not in held}
    if not new:
        fate, words = Fate.SAME, Fate.SAME.value
    elif why := _why_unknown(context, record):
        fate, words = Fate.REFUSED, why
    elif here or len(new) > 1:
        first, *others = [*here.values(), *(_read_content(one.file) for one in new.values())]
        differences = next((found for each in others if (found := tuple(find_differences(first, each)))), ())
        stays = f"{next(iter(here))} stays as it is" if here else "none of them is taken in"
        fate, words = Fate.CONFLICT, stays
    else:
        write_new(places[0], read_file(incoming[0].file, LARGEST))
        fate, words = Fate.NEW, Fate.NEW.value
    return Settled(fate=fate, words=words, incoming=incoming, differences=differences)


def _why_unknown(context: Context, record: Record | OperatorRecord) -> str:
    """Return why a record's cell is none of this project's, nor of a model prepared here; or nothing."""
    name = record.cell.version if isinstance(record, Record) else record.version
    version = next((one for one in context.matrix.versions if one.name == name), None)
    if version is None:
        return f"matrix.yaml has no version {name}: add it, then merge again"
    if version.product is not record.product:
        return f"{name} is of {version.product.value} here, and the record of {record.product.value}"
    if not isinstance(record, Record):
        return ""
    cell = record.cell
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
    """Copy the kept outputs of records that count into the cache; return how many, and those not as named."""
    taken_in = (one.incoming[0].record for one in settled if one.fate in {Fate.NEW, Fate.SAME})
    records = [record for record in taken_in if isinstance(record, Record)]
    folders = [source.outputs for source in sources if source.outputs]
    taken, damaged = 0, []
    for digest in sorted({digest for record in records for digest in kept_digests(record)}):
        target = kept_file(cache, digest)
        file = next((f for folder in folders if (f := folder / target.name).is_file()), None)
        if file is None or target.is_file():
            continue
        try:
            with opened_npz(file) as npz, npz.member("output") as (stream, _):
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
    lines += [f"{counted(merged.outputs, 'kept output')} came along"] if merged.outputs else []
    for one in merged.settled:
        if one.fate is Fate.REFUSED:
            refused.append((one.incoming[0].source, one.words))
        elif one.fate is Fate.CONFLICT:
            lines += ["", f"conflict: {one.incoming[0].id}, run {one.incoming[0].run}: {one.words}"]
            lines += [f"  came: {incoming.source}" for incoming in one.incoming]
            lines += [f"  {line}" for line in one.differences[:SHOWN]]
            more = len(one.differences) - SHOWN
            lines += [f"  and {counted(more, 'more place')}"] if more > 0 else []
    lines += ["", *(f"kept out: {source}: {words}" for source, words in refused)] if refused else []
    following = "mend what is kept out or in conflict as said above, then merge again"
    if not merged.settled and not merged.refused:
        following = "python -m trtmatrix merge FILES, with packs of pack --records, or folders of records"
    elif counts[Fate.NEW] or counts[Fate.SAME]:
        following = "python -m trtmatrix table"
    text = "\n".join([*lines, "", f"next: {following}"])
    return printable(text)


def merge_json(merged: Merged) -> dict[str, Any]:
    """Return the same as plain data."""
    return {
        "schema": SCHEMA, "outputs": merged.outputs,
        "counts": {fate.name.lower(): merged.counts[fate] for fate in Fate},
        "sources": [{"source": source.name, "records": len(source.records)} for source in merged.sources],
        "records": [
            {
                "id": one.incoming[0].id, "run": one.incoming[0].run, "fate": one.fate.name.lower(),
                "words": one.words, "sources": [incoming.source for incoming in one.incoming],
                "differences": list(one.differences),
            }
            for one in merged.settled
        ],
        "kept_out": [{"source": source, "words": words} for source, words in merged.refused],
    }  # fmt: skip
