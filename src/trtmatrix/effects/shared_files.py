"""Files on a folder that several hosts see: whole or not at all, found by opening, copied as plain files.

Over NFS a file or folder that is opened is asked for at the server, one that is only looked at (``stat``) may
be up to a minute old; so folders are listed and files opened here, and nothing is watched. What a rename gave
its name is seen whole. From memory: nfs(5), "Data and metadata coherence".
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.jsontext import to_json

PARTIAL = ".partial-"
"""What the name of everything begins with that is not whole; something of its own follows."""

Node = tuple[int, int]
"""A file, whatever its names: its device and its number there."""
Wanted = dict[str, tuple[Path, os.stat_result]]
"""By its path in a copy, the file that is copied, and its facts."""


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all, over one that is there."""
    partial = _partial(path)
    try:
        with partial.open("w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        partial.chmod(mode)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise failure(path, error) from error


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write an object as strict JSON, whole or not at all."""
    write_text(path, to_json(data))


def read_text(path: Path, most: int = -1) -> str | None:
    """Return a file's text, at most its last ``most`` bytes; None where it is not there.

    A file that was replaced while it was read is read again (ESTALE).
    """
    for attempt in range(3):
        try:
            with path.open("rb") as stream:
                if most >= 0:
                    stream.seek(max(0, os.fstat(stream.fileno()).st_size - most))
                return stream.read().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == 2:
                raise failure(path, error) from error
    return None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, sorted, without hidden ones; nothing where it is not there."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - names
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ESTALE:
            return []
        raise failure(folder, error) from error


def make_folder(folder: Path) -> None:
    """Make a folder that every user of a node can read, with those above it."""
    try:
        for missing in reversed([folder, *folder.parents]):
            if not missing.is_dir():
                missing.mkdir(exist_ok=True)
                missing.chmod(0o755)
    except OSError as error:
        raise failure(folder, error) from error


def plain_files(folder: Path, *, hidden: bool = True) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path below a folder, and the facts, of each plain file in it; hidden ones where they count.

    Caches of Python and what is not whole are left out; links too: what a container wrote must not name a
    file of this host's.
    """
    left_out = PARTIAL if hidden else "."
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name != "__pycache__" and not name.startswith(left_out)
        )
        for name in sorted(files):
            if name.startswith(left_out) or name.endswith(".pyc"):
                continue
            facts = os.lstat(os.path.join(root, name))  # noqa: PTH118 - a Path a file takes longer
            if stat.S_ISREG(facts.st_mode):
                yield os.path.relpath(os.path.join(root, name), folder), facts  # noqa: PTH118


class Copier:
    """Copies folders whole or not at all; a file with several names in what is copied is copied once."""

    def __init__(self) -> None:
        """Nothing is copied yet."""
        self._copied: dict[Node, Path] = {}

    def copy(self, sources: Mapping[str, Path], target: Path, *, hidden: bool = True) -> None:
        """Make ``target`` hold each source under its name (``""``: at its top), or all but hidden files.

        A folder that is there stays: jobs may have it mounted. It gets what it lacks (sites remove old files
        from such folders), and no more: what differs from its source has the same key, as comments differ.
        """
        try:
            wanted = {
                str(Path(name) / path): (source / path, facts)
                for name, source in sources.items()
                for path, facts in plain_files(source, hidden=hidden)
            }
            if names_in(target) or not self._make(wanted, target):
                self._fill(wanted, target)
        except OSError as error:
            raise failure(target, error) from error
        self._know(wanted, target)

    def _make(self, wanted: Wanted, target: Path) -> bool:
        """Make a folder; False where another made it meanwhile."""
        make_folder(target.parent)
        partial = _partial(target)
        copied = ChainMap({}, self._copied)  # what lies in the partial folder has no lasting name yet
        try:
            make_folder(partial)
            for path, (source, facts) in wanted.items():
                make_folder((partial / path).parent)
                _copy_file(source, facts, partial / path, copied)
            try:
                partial.rename(target)
            except OSError:
                if not names_in(target):
                    raise
                return False
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return True

    def _fill(self, wanted: Wanted, target: Path) -> None:
        """Write what a folder lacks, each file whole or not at all."""
        sizes = {path: facts.st_size for path, facts in plain_files(target)}
        for path, (source, facts) in wanted.items():
            file = target / path
            if path in sizes and (sizes[path] >= facts.st_size or not _is_cut_off(file, source)):
                continue
            make_folder(file.parent)
            partial = _partial(file)
            try:
                _copy_file(source, facts, partial, ChainMap({}, self._copied))
                partial.replace(file)
            finally:
                with contextlib.suppress(OSError):
                    partial.unlink(missing_ok=True)

    def _know(self, wanted: Wanted, target: Path) -> None:
        """Remember what is there, so that others are linked to it; it is young again."""
        with contextlib.suppress(OSError):
            os.utime(target)
        for path, (_, facts) in wanted.items():
            if facts.st_nlink > 1:
                self._copied[facts.st_dev, facts.st_ino] = target / path


def _partial(target: Path) -> Path:
    return target.with_name(f"{PARTIAL}{os.urandom(6).hex()}")


def _copy_file(source: Path, facts: os.stat_result, target: Path, copied: MutableMapping[Node, Path]) -> None:
    """Copy a file, or link it to the copy of another name of it."""
    node = (facts.st_dev, facts.st_ino)
    if facts.st_nlink > 1 and (known := copied.get(node)):
        with contextlib.suppress(OSError):  # no links here, or another removed it
            if known.stat().st_size == facts.st_size:
                os.link(known, target)
                return
    shutil.copyfile(source, target, follow_symlinks=False)
    target.chmod(0o644)
    copied[node] = target


def _is_cut_off(file: Path, source: Path) -> bool:
    """Whether a shorter file is how its source begins: else they differ, mostly in a comment."""
    with file.open("rb") as there, source.open("rb") as whole:
        while data := there.read(1 << 20):
            if data != whole.read(len(data)):
                return False
    return True


def failure(path: Path, error: OSError) -> MachineryError:
    """Return what a file system's error means for who runs this."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    remedy = (
        "the disk or your quota is full: make room (df -h, quota), or name another shared folder"
        if full
        else "is the shared folder of the site's file mounted here and writable? "
        "`python -m trtmatrix doctor --executor slurm` looks"
    )
    return MachineryError(f"{path}: {error.strerror or error}; {remedy}")
