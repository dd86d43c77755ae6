"""Writes merged records into the tree of results: new files alone, one merge at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtmatrix.core.merge import APART, Held, Incoming, Settled, content_digest, mark_of
from trtmatrix.core.record import Record, parse_record
from trtmatrix.effects.archive import digest_stream
from trtmatrix.effects.kept_outputs import kept_file, unpack_kept
from trtmatrix.effects.store import record_path, write_new


@contextlib.contextmanager
def one_at_a_time(results: Path) -> Iterator[None]:
    """Let no other merge into the same results run until the end of the block."""
    results.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(results, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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


def take_output(cache: Path, outputs: Path, digest: str) -> None:
    """Copy a pack's kept output into the cache, whole or not at all."""
    target = kept_file(cache, digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out, (outputs / target.name).open("rb") as stream:
            shutil.copyfileobj(stream, out, 1 << 20)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
