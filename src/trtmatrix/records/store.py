"""Records and kept outputs on disk: whole or not at all, never overwritten, damaged records set aside."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.common import border
from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import digest_stream, whole_file
from trtmatrix.common.text import to_json
from trtmatrix.judge.entry import Stored
from trtmatrix.judge.record import NewerRecordError, Pool, Record, RecordError, parse_object, parse_record
from trtmatrix.suite.model import CellId

if TYPE_CHECKING:
    from numpy.typing import NDArray


def record_path(root: Path, record: Record) -> Path:
    """Return ``<root>/<gpu>/<version>/<repro>/<case>/<run>.json``."""
    return root / record.cell.folder / f"{record.run}.json"


def write_record(root: Path, record: Record) -> Record:
    """Write a record, or return the one that is there: another client of the same run was sooner."""
    path = record_path(root, record)
    try:
        write_new(path, to_json(record.data).encode())
    except FileExistsError:
        return parse_record(border.read_file(path), str(path))
    return replace(record, file=str(path))


def write_new(path: Path, content: bytes) -> None:
    """Write a new file whole or not at all; ``FileExistsError`` where it is there.

    Whole for every process, killed or not. There is no fsync: it would wait for the outputs that
    cells write beside it, and what a power failure cuts short is set aside and measured again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".partial") as out:
        out.write(content)
        out.flush()
        os.fchmod(out.fileno(), 0o644)
        os.link(out.name, path)


def read_records(results: Path) -> list[Stored]:
    """Read all records, published ones and those measured here.

    A damaged record is set aside (renamed to ``<run>.json.damaged``), one of a newer trtmatrix stays
    where it is; all are looked at, and then a :class:`ConfigError` names each with line and remedy.
    Of two copies of one run the local is kept.
    """
    found: dict[tuple[CellId, str], Stored] = {}
    problems: list[str] = []
    pool = Pool(lambda file: parse_object(border.read_file(file), file))
    for file, local in _files(results):
        try:
            record = parse_record(border.read_file(file), file, pool)
        except (RecordError, OSError, border.BorderError) as error:
            told = str(error) if isinstance(error, RecordError) else f"{file}:1: {error}"
            if not isinstance(error, (NewerRecordError, OSError)):
                told += set_aside(Path(file))
            problems.append(told)
        else:
            if local or (record.cell, record.run) not in found:
                found[record.cell, record.run] = Stored(record=record, local=local)
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def set_aside(file: Path) -> str:
    """Rename a damaged record; returns what was done, and the remedy."""
    try:
        aside = file.rename(f"{file}.damaged").name
    except OSError as error:
        return f"\n  it could not be set aside ({error.strerror}); remedy: move or remove it"
    told = f"\n  set aside as {aside}; remedy: type the command again, and the cell is run anew"
    return f"{told} (or restore the file from git)"


def _files(results: Path) -> Iterator[tuple[str, bool]]:
    """Yield each record's file and whether it lies in the local part, by name."""
    for root, local in ((results, False), (results / "local", True)):
        pattern = f"{glob.escape(str(root))}/*/*/*/*/*.json"
        yield from ((file, local) for file in sorted(glob.iglob(pattern)))  # noqa: PTH207 - of 100,000


def find_recorded_versions(results: Path) -> set[str]:
    """Return the versions of which a cell has a record, by the names of folders: no record is read."""
    return {file.split("/")[-4] for file, _ in _files(results)}


def publish(results: Path, records: Iterable[Record]) -> list[Path]:
    """Copy local records' bytes to where git sees them; returns the new files."""
    new: list[Path] = []
    for record in records:
        target = record_path(results, record)
        if not target.exists():
            write_new(target, border.read_file(Path(record.file)))
            new.append(target)
    return new


def kept_digests(record: Record) -> Iterator[str]:
    """Yield the digests of the outputs that a record names as kept."""
    kept = record.data.get("kept", {}).values()  # their shape was checked as the record was read
    yield from (facts["sha256"] for facts in kept if "sha256" in facts)


def keep_outputs(cache: Path, folder: Path, kept: Iterable[str]) -> dict[str, Any]:
    """Copy a cell's outputs into the cache, compressed, by digest; returns what each is and where it went.

    ``kept``: their names; what they are is read from the files, in ``folder``, which is in a folder of ours.
    :class:`~trtmatrix.common.border.BorderError` where one is not there, or is no array.
    """
    from zipfile import ZIP_DEFLATED, ZipFile

    result: dict[str, Any] = {}
    for name in kept:
        file = folder / f"{border.check_name(name)}.npy"
        try:
            with border.opened(file, border.ARRAY) as (stream, size):
                dtype, shape, _ = border.read_head(stream, size)
                stream.seek(0)
                digest = digest_stream(stream)
                target = kept_file(cache, digest)
                if not target.exists():
                    stream.seek(0)
                    with (
                        whole_file(target, sync=False) as out,
                        ZipFile(out, "w", ZIP_DEFLATED, compresslevel=1) as archive,
                        archive.open("output.npy", "w", force_zip64=True) as packed,
                    ):  # as np.savez_compressed, but five times faster by zlib's level 1
                        shutil.copyfileobj(stream, packed, border.BLOCK)
        except (FileNotFoundError, border.BorderError) as error:
            words = "is not there" if isinstance(error, FileNotFoundError) else error
            raise border.BorderError(f"the output {name} {words}") from error
        result[name] = {"dtype": str(dtype), "shape": list(shape), "sha256": digest}
    return result


def kept_file(cache: Path, digest: str) -> Path:
    """Return the file of a kept output; see :func:`keep_outputs`."""
    return cache / "outputs" / f"{digest}.npz"


def read_kept(cache: Path, facts: Mapping[str, Any]) -> NDArray[Any]:
    """Return an output that was kept, whole; ``OSError`` or ``ValueError`` where it is gone or damaged."""
    with border.opened_npz(kept_file(cache, str(facts.get("sha256"))), "output") as (stream, size):
        return border.read_array(stream, size)
