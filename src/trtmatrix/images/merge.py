"""Records that travel: ``pack --records`` writes those measured here, ``merge`` takes in those of elsewhere.

Of one run of one cell there is one record. What contradicts it is refused: what is here stays as it is, and
of two new ones that contradict each other none comes in. Of operators a version's newest run on a GPU counts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from trtmatrix.common import archive
from trtmatrix.common.archive import SUFFIX
from trtmatrix.common.border import ARRAY, BLOCK, BorderError, opened, opened_npz, read_file
from trtmatrix.common.errors import ExitCode, TrtMatrixError, UsageError, combine_exit_codes
from trtmatrix.common.options import value
from trtmatrix.common.paths import digest_stream, hold_folder, whole_file
from trtmatrix.common.text import counted, one_line, printable, to_json, write_size
from trtmatrix.judge.record import Record, parse_object, record_from
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.records import operators
from trtmatrix.records.operators import OperatorRecord, read_operator_records
from trtmatrix.records.store import kept_digests, kept_file, read_records, record_path
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.model import CPU, Product, slug_of
from trtmatrix.suite.repro_files import stored_repros

SHOWN = 8  # differences of two records that are shown
RECORDS, OUTPUTS = "records", "outputs"
"""The folders of a pack beside its SHA256SUMS: records, kept outputs by digest."""
RESERVED = frozenset({"local", "surfaces"})
"""Folders of the results that hold something else than a GPU's records."""


def pack_records(context: Context, to: Path) -> ExitCode:
    """Write all records that were measured here, published or not, with the outputs that they name.

    Byte for byte, with SHA256SUMS. ``to``: a folder, in which the pack is named after its content: the same
    records give the same bytes. The exit code is NOTHING where there are none. :class:`UsageError` where only
    some are selected, or the pack cannot be written.
    """
    if context.selection != Selection():
        raise UsageError("pack --records takes all records: leave --trt, --repro and so on out")
    local, cache = context.project.local, context.project.cache
    records = [item.record for item in read_records(context.project.results) if item.local]
    read_operator_records(context.project.results)
    found = [*(Path(record.file) for record in records), *local.glob(f"*/*/{operators.FILE}")]
    if not found:
        print(f"trtmatrix: no record was measured here: {local} has none", file=sys.stderr)
        return ExitCode.NOTHING
    kept = [kept_file(cache, digest) for digest in sorted({d for one in records for d in kept_digests(one)})]
    here = [file for file in kept if file.is_file()]
    files: dict[str, bytes | Path] = {
        **{f"{RECORDS}/{file.relative_to(local).as_posix()}": file for file in found},
        **{f"{OUTPUTS}/{file.name}": file for file in here},
    }
    sums = archive.sums_text({name: archive.digest_of(content) for name, content in files.items()})
    target = to / f"records-{sha256(sums.encode()).hexdigest()[:12]}{SUFFIX}"
    archive.write_archive(target, files)
    if gone := len(kept) - len(here):
        lost = counted(gone, "output")
        print(f"trtmatrix: not in the cache any more: {lost} that records name", file=sys.stderr)
    what = f"{counted(len(found), 'record')}, {counted(len(here), 'kept output')}"
    size = write_size(target.stat().st_size)
    print(
        f"{target}: {what}, {size}, sha256 {archive.digest_of(target)}\n"
        f"next, on the other host: python -m trtmatrix merge {target.name}"
    )
    return ExitCode.AS_EXPECTED


class Fate(str, Enum):
    """What becomes of the records of one run."""

    NEW = "new"
    SAME = "here already"
    OLDER = "older than what is here"
    CONFLICT = "in conflict"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A record in a file, and what it says; ``source``: where it was found, in words."""

    record: Record | OperatorRecord
    data: Mapping[str, Any]
    file: Path
    source: str = ""

    @cached_property
    def place(self) -> Path:
        """Where it lies in a tree of results."""
        record = self.record
        return record_path(Path(), record) if isinstance(record, Record) else record.place

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what it says, however it is laid out and packed."""
        return sha256(to_json(self.data).encode()).hexdigest()

    @property
    def began(self) -> str:
        """When a run of operators began, ISO 8601 in UTC; nothing for a cell's, of which all runs count."""
        return "" if isinstance(self.record, Record) else str(self.record.facts.get("started", ""))


@dataclass(frozen=True, kw_only=True)
class Merged:
    """All that a merge finds and does.

    ``sources``: how many records each has; ``refused``: what is not taken in, and why; ``folders``: where
    packs have their kept outputs; ``fates``: of each run; ``conflicts``: what is told of them, a line each;
    ``outputs``: the kept outputs that came along.
    """

    sources: dict[str, int] = field(default_factory=dict)
    incoming: list[Found] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    fates: Counter[Fate] = field(default_factory=Counter)
    conflicts: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """Those of ``merge``."""

    project: ProjectOptions
    files: tuple[Path, ...] = value("FILE", "records: .json files, folders, packs of records", nargs="+")


def merge_command(options: MergeOptions) -> ExitCode:
    """Read all sources, check each record, write what is new, tell of all.

    Returns 2 where something cannot be used, 1 on a conflict, 4 without any record. :class:`ConfigError`
    where the results here are damaged.
    """
    context, merged = open_context(options.project), Merged()
    results, cache = context.project.results, context.project.cache
    cache.mkdir(parents=True, exist_ok=True)
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="merge-") as scratch:
        for number, path in enumerate(options.files):
            _read_source(context, path, Path(scratch) / str(number), merged)
        with hold_folder(results):
            read_records(results)
            read_operator_records(results)
            runs = defaultdict(list)
            for one in sorted(merged.incoming, key=lambda one: (one.place, one.digest, one.source)):
                runs[one.place].append(one)
            for group in runs.values():
                _settle(results, group, merged)
            _take_outputs(cache, merged)
    print(merge_text(merged))
    codes = {ExitCode.USAGE} if merged.refused else set()
    codes |= {ExitCode.SURPRISE} if merged.fates[Fate.CONFLICT] else set()
    return combine_exit_codes(codes | (set() if merged.fates or merged.refused else {ExitCode.NOTHING}))


def _read_source(context: Context, path: Path, scratch: Path, merged: Merged) -> None:
    """Read all records of one file or folder; what cannot be used is named with the reason.

    A pack with one changed byte is refused whole. ``scratch``: for unpacking.
    """
    merged.sources[str(path)], files = 0, {}
    try:
        files = _list_records(path, scratch, merged)
    except (TrtMatrixError, ValueError) as error:
        merged.refused.append((str(path), str(error).removeprefix(f"{path}: ")))
    for name, (file, parts) in files.items():
        try:
            found = _read(file, name)
        except (OSError, RecursionError, *operators.NO_RECORD) as error:
            words = getattr(error, "strerror", None) or str(error).removeprefix(f"{file.parent}/")
            merged.refused.append((name, f"cannot be used: {words}"))
            continue
        if problem := _why_not(context, found, parts):
            merged.refused.append((name, problem))
        else:
            merged.sources[str(path)] += 1
            merged.incoming.append(found)


def _list_records(path: Path, scratch: Path, merged: Merged) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Return the records of a source by the names under which they are told of, each with its path in it.

    A source is one record, a tree of results, or a pack, whose digests are checked.
    """
    root = path
    if path.is_file():
        if path.suffix == ".json" or path.name == operators.FILE:
            return {str(path): (path, (path.name,))}
        if not path.name.endswith(SUFFIX):
            raise ValueError(f"is neither .json, {SUFFIX} nor a folder; a pack of images is for unpack")
        size = (1 << 30) + 100 * path.stat().st_size  # records shrink by some ten times, outputs do not
        root = archive.read_archive(path, scratch, "pack --records", size, 1_000_000)
    elif not path.is_dir():
        raise ValueError("is not there: name records (.json), folders of them, or packs of records")
    elif (path / archive.SUMS).is_file() and (problems := archive.find_differences(path)):
        raise ValueError("is not as it was made:\n" + "\n".join(f"    {one}" for one in problems))
    merged.folders.append(root / OUTPUTS)
    root = root / RECORDS if (root / RECORDS).is_dir() else root
    files = {}
    for file in sorted([*root.rglob("*.json"), *root.rglob(operators.FILE)]):
        parts = file.relative_to(root).parts
        if not any(part.startswith(".") or part == "surfaces" for part in parts):
            files[f"{path}: {'/'.join(parts)}"] = (file, parts)
    return files


def _read(file: Path, source: str = "") -> Found:
    """Read a record. Raises one of :data:`~trtmatrix.records.operators.NO_RECORD`, also for a bare NaN."""
    if file.name == operators.FILE:
        run = operators.parse_record(read_file(file, operators.LARGEST))
        return Found(record=run, data=parse_object(operators.record_text(run)), file=file, source=source)
    data = parse_object(read_file(file), str(file))
    return Found(record=record_from(data, str(file)), data=data, file=file, source=source)


def _why_not(context: Context, found: Found, parts: tuple[str, ...]) -> str:
    """Return why a record was renamed, moved or edited, or is of nothing that is known here; or nothing.

    ``parts``: its path in its source; as many folders as there are must be those of a tree of results. Its
    cell must be of the GPU that its facts name; products other than TensorRT are run on the CPU.
    """
    record, wanted = found.record, found.place.parts
    if isinstance(record, Record):
        cell, gpu, version, facts = record.cell, record.cell.gpu, record.cell.version, record.gpu
    else:
        cell, gpu, version, facts = None, record.gpu, record.version, record.facts["gpu"]
    named = str(facts.get("name") or "")
    meant = CPU.slug if record.product is not Product.TENSORRT and not named else slug_of(named)
    seen = parts[-len(wanted) :]
    if gpu != meant or gpu in RESERVED or one_line(named) != named or seen != wanted[-len(seen) :]:
        return f"by its content it is {'/'.join([meant, *wanted[1:]])}: it was renamed, moved or edited"
    if (version, record.product) not in {(one.name, one.product) for one in context.matrix.versions}:
        return f"matrix.yaml has no version {version} of {record.product.value}: add it, then merge again"
    loaded = context.repros.get(cell.repro) if cell else None
    if cell is None or (loaded and cell.case in {case.id for case in loaded.repro.cases}):
        return ""
    if loaded is None and stored_repros(context.project.cache, cell.repro, cell.case):
        return ""
    return (
        f"there is no case {cell.repro}/{cell.case} here: of a model of your own, prepare it first "
        "(python -m trtmatrix upgrade --model FILE --no-run); else add its repro, then merge again"
    )


def _settle(results: Path, incoming: Sequence[Found], merged: Merged) -> None:
    """Write the record of one run where it is new; of operators also where its run is the newer one."""
    place = incoming[0].place
    here = [_read(file) for root in (results, results / "local") if (file := root / place).is_file()]
    newest, held = max(one.began for one in (*incoming, *here)), {one.digest for one in here}
    came = {one.digest: one for one in reversed(incoming) if one.began == newest}
    new = [one for digest, one in came.items() if digest not in held]
    if not came:
        fate = Fate.OLDER
    elif not new:
        fate = Fate.SAME
    elif len(new) == 1 and not any(one.began == newest for one in here):
        fate = Fate.NEW
        # What was measured here is read before what was published.
        with whole_file([results / place, *(one.file for one in here)][-1]) as out:
            out.write(read_file(new[0].file))
    else:
        fate = Fate.CONFLICT
        stays = f"{here[0].file} stays as it is" if here else "none of them is taken in"
        first, *others = [one.data for one in (*here, *new)]
        differences = next((found for each in others if (found := [*find_differences(first, each)])), [])
        merged.conflicts.extend(["", f"conflict: {place}: {stays}"])
        merged.conflicts.extend(f"  came: {each.source}" for each in came.values())
        merged.conflicts.extend(f"  {line}" for line in differences[:SHOWN])
    merged.fates[fate] += 1
    if fate in {Fate.NEW, Fate.SAME} and isinstance(record := incoming[0].record, Record):
        merged.outputs.extend(kept_digests(record))


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield each place at which two records differ, with both values."""
    for name in sorted({*first, *second}):
        one, other = first.get(name, "nothing"), second.get(name, "nothing")
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from find_differences(one, other, f"{where}{name}.")
        elif one != other or type(one) is not type(other):
            yield f"{where}{name}: {str(one)[:60]} | {str(other)[:60]}"


def _take_outputs(cache: Path, merged: Merged) -> None:
    """Copy the kept outputs of records that count into the cache; those that are not as named are refused."""
    wanted, taken = sorted(set(merged.outputs)), list[str]()
    for target in (kept_file(cache, digest) for digest in wanted):
        file = next((f for folder in merged.folders if (f := folder / target.name).is_file()), None)
        if file is None or target.is_file():
            continue
        try:
            with opened_npz(file, "output") as (stream, _):
                whole = digest_stream(stream) == target.stem
        except (OSError, BorderError):
            whole = False
        if not whole:
            merged.refused.append((f"outputs/{target.name}", "does not hold what its name says"))
            continue
        taken.append(target.stem)
        with opened(file, ARRAY) as (stream, _), whole_file(target, sync=False) as out:
            shutil.copyfileobj(stream, out, BLOCK)
    merged.outputs[:] = taken


def merge_text(merged: Merged) -> str:
    """Return what was done: sources, counts, conflicts, what is kept out, and what to type next.

    Nothing of a source's gets through that a terminal would act on.
    """
    fates = merged.fates
    lines = [f"{source}: {counted(number, 'record')}" for source, number in merged.sources.items()]
    lines.append(", ".join(f"{fates[fate]} {fate.value}" for fate in Fate if fates[fate]) or "no record")
    lines += [f"{counted(len(merged.outputs), 'kept output')} came along"] if merged.outputs else []
    lines += merged.conflicts
    lines += [""] if merged.refused else []
    lines += [f"kept out: {source}: {words}" for source, words in merged.refused]
    following = "mend what is kept out or in conflict as said above, then merge again"
    if not fates and not merged.refused:
        following = "python -m trtmatrix merge FILES, with packs of pack --records, or folders of records"
    elif fates.keys() - {Fate.CONFLICT}:
        following = "python -m trtmatrix table"
    return printable("\n".join([*lines, "", f"next: {following}"]))
