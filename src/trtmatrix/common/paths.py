"""Where things lie: the project's files, the user's cache, the probe."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import trtprobe
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import UsageError
from trtmatrix.common.owner import is_dead, own_identity


@dataclass(frozen=True, kw_only=True)
class Project:
    """The user's files and the cache."""

    matrix: Path
    repros: Path
    results: Path
    cache: Path

    @property
    def folder(self) -> Path:
        """Where matrix.yaml lies, and what belongs to it."""
        return self.matrix.resolve().parent

    @property
    def local(self) -> Path:
        """Records that were measured on this host; ignored by git."""
        return self.results / "local"

    @property
    def log(self) -> Path:
        """Every line of the last run, then every row of its tables."""
        return self.local / "last-run.txt"

    @property
    def page(self) -> Path:
        """The last run as a page."""
        return self.local / "report.html"

    @property
    def lock(self) -> Path:
        """The digests of matrix.yaml's images, beside it."""
        return self.matrix.with_suffix(".lock")

    @property
    def image_builder(self) -> Path | None:
        """The script that makes images from wheels, where the project has it beside matrix.yaml."""
        script = self.folder / "docker" / "wheels" / "build"
        return script if script.is_file() else None


def default_cache() -> Path:
    """Return TRTMATRIX_CACHE, or ``trtmatrix`` in the user's cache folder."""
    if named := os.environ.get("TRTMATRIX_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trtmatrix"


def probe_folder() -> Path:
    """Return the folder of the package that is mounted into containers."""
    return Path(trtprobe.__file__).parent


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Make a folder on this host's own disk, not in a cache that may be shared; those of dead owners go."""
    base = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    for owner in base.glob("trtmatrix-scratch.*/owner"):
        with contextlib.suppress(OSError):  # another user's
            if is_dead(owner.read_text()):
                remove_tree(owner.parent)
    folder = Path(tempfile.mkdtemp(prefix="trtmatrix-scratch.", dir=base))
    try:
        (folder / "owner").write_text(own_identity())
        (folder / "scratch").mkdir()
        yield str(folder / "scratch")
    finally:
        remove_tree(folder)


def make_job_folder(cache: Path, name: str) -> Path:
    """Make a folder for one launch, marked with its owner; leftovers of dead owners are removed.

    ``job`` is what the probe is told, ``out`` what it hands over, written by this host alone; in ``work``
    cells may write where their container has no file system of its own. No other user can enter it.

    It lies below TRTMATRIX_SCRATCH where that is set: a cache that hosts share is not on their own disks.
    """
    jobs = Path(os.environ.get("TRTMATRIX_SCRATCH") or cache) / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    for old in jobs.iterdir():
        with contextlib.suppress(OSError):  # another run may be removing its own folder just now
            if is_dead((old / "owner").read_text()):
                remove_tree(old)
    folder = jobs / name
    folder.mkdir(mode=0o700)
    (folder / "owner").write_text(own_identity())
    for part in ("job", "out", "work"):
        (folder / part).mkdir()
    return folder


@contextlib.contextmanager
def whole_file(target: Path, mode: int | None = 0o644) -> Iterator[IO[bytes]]:
    """Open a file that takes the target's place at the end, and is gone where it does not come to that.

    ``mode``: its rights, None for those that the user's umask leaves.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}-{os.urandom(6).hex()}.partial")
    try:
        with partial.open("x+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if mode is not None:
            partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Write a file whole or leave it as it was; a device or a pipe is just written to. ``OSError``."""
    target = file.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    target.parent.stat()  # it is named, so it is there, or the name is wrong
    with whole_file(target, mode=None) as out:
        out.write(text.encode())


def write_output(file: Path, text: str) -> None:
    """Write what ``--output`` names; ``UsageError`` where that cannot be."""
    try:
        write_whole(file, text)
    except OSError as error:
        raise UsageError(
            f"--output {file}: cannot be written: {error.strerror}; name another file"
        ) from error


def check_writable(folders: Mapping[str, Path]) -> None:
    """Make folders, by the options that name them; ``UsageError`` tells of all that cannot be written to."""
    problems = []
    for option, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                why = ""
        except PermissionError:
            why = "no permission"
        except OSError as error:  # a full disk is trouble of the host, which what writes there tells of
            why = "" if error.errno in {errno.ENOSPC, errno.EDQUOT} else error.strerror or str(error)
        if why:
            problems.append(f"{folder}: nothing can be written there: {why}; name another folder by {option}")
    if problems:
        raise UsageError("\n".join(problems))


def publish_folder(partial: Path, target: Path) -> None:
    """Give a folder that was made beside it its name; where somebody else was sooner, theirs is as good."""
    partial.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:
        remove_tree(partial)
        if not target.is_dir():
            raise
