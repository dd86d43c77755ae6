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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtmatrix.core.errors import MachineryError
from trtmatrix.core.jsontext import to_json

PARTIAL = ".partial-"
"""What the name of everything begins with that is not whole; the id of its client follows."""


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all, over one that is there."""
    partial = path.with_name(f"{PARTIAL}{os.urandom(6).hex()}")
    try:
        with partial.open("w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        partial.chmod(mode)
        partial.replace(path)
    except OSError as error:
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


def plain_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path below a folder, and the facts, of each plain file in it; caches of Python are left out.

    Links are left out too: what a container wrote must not name a file of this host's.
    """
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            facts = os.lstat(os.path.join(root, name))  # noqa: PTH118 - a Path a file takes longer
            if stat.S_ISREG(facts.st_mode) and not name.endswith(".pyc"):
                yield os.path.relpath(os.path.join(root, name), folder), facts  # noqa: PTH118


class Copier:
    """Copies folders whole or not at all; a file with several names in what is copied is copied once."""

    def __init__(self, tag: str) -> None:
        """``tag`` marks what is not whole yet."""
        self.tag = tag
        self._copied: dict[tuple[int, int], Path] = {}

    def copy(self, sources: dict[str, Path], target: Path) -> None:
        """Make ``target`` hold each source under its name (``""``: at its top).

        What is there already stays, if it has the same files of the same sizes: others may be reading it. If
        not (sites remove old files from such folders), it is put aside and made anew.
        """
        wanted = {
            str(Path(name) / path): (source / path, facts)
            for name, source in sources.items()
            for path, facts in plain_files(source)
        }
        sizes = {path: facts.st_size for path, (_, facts) in wanted.items()}
        if has_files(target, sizes):
            self._know(wanted, target)
            return
        make_folder(target.parent)
        partial = target.with_name(f"{PARTIAL}{self.tag}-{os.urandom(4).hex()}")
        try:
            make_folder(partial)
            for path, (source, facts) in wanted.items():
                make_folder((partial / path).parent)
                self._copy_file(source, facts, partial / path)
            self._put(partial, target, sizes)
        except OSError as error:
            raise failure(target, error) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _know(self, wanted: dict[str, tuple[Path, os.stat_result]], target: Path) -> None:
        """Remember what is there already, so that others are linked to it; it is young again."""
        with contextlib.suppress(OSError):
            os.utime(target)
        for path, (_, facts) in wanted.items():
            if facts.st_nlink > 1:
                self._copied.setdefault((facts.st_dev, facts.st_ino), target / path)

    def _copy_file(self, source: Path, facts: os.stat_result, target: Path) -> None:
        """Copy a file, or link it to the copy of another name of it."""
        known = self._copied.get((facts.st_dev, facts.st_ino)) if facts.st_nlink > 1 else None
        if known is not None:
            try:
                os.link(known, target)
            except OSError:  # no links here, or another removed it
                pass
            else:
                return
        shutil.copyfile(source, target, follow_symlinks=False)
        target.chmod(0o644)
        self._copied[facts.st_dev, facts.st_ino] = target

    def _put(self, partial: Path, target: Path, sizes: dict[str, int]) -> None:
        """Give a folder its name. Another one that came first stays, if it is whole."""
        for _ in range(3):
            try:
                partial.rename(target)
            except OSError:
                if has_files(target, sizes):
                    return
                aside = target.with_name(f"{PARTIAL}old-{os.urandom(4).hex()}")
                target.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
            else:
                self._moved(partial, target)
                return
        raise OSError(errno.EBUSY, "another program makes it again and again")

    def _moved(self, partial: Path, target: Path) -> None:
        self._copied = {
            node: target / path.relative_to(partial) if path.is_relative_to(partial) else path
            for node, path in self._copied.items()
        }


def has_files(folder: Path, sizes: dict[str, int]) -> bool:
    """Whether a folder has these files, of these sizes in bytes."""
    if not folder.is_dir():
        return False
    try:
        return {path: facts.st_size for path, facts in plain_files(folder)} == sizes
    except OSError:  # another is making it anew
        return False


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
