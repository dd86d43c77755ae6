"""Where things lie, who owns and who holds them: the project's files, the user's cache, the probe."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TypeVar, cast

import trtprobe
from trtmatrix.common.border import remove_tree
from trtmatrix.common.errors import UsageError


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
    """Make a folder on this host's own disk, not in a cache that may be shared; it goes with its block."""
    folder = tempfile.mkdtemp(prefix="trtmatrix-scratch.", dir=os.environ.get("SLURM_TMPDIR"))
    try:
        yield folder
    finally:
        remove_tree(Path(folder))


def make_job_folder(cache: Path, name: str) -> Path:
    """Make a folder for one launch, marked with its owner; leftovers of dead owners are removed.

    ``job`` is what the probe is told, ``out`` what it hands over, written by this host alone; in ``work``
    cells may write where their container has no file system of its own. No other user can enter it.

    It lies below TRTMATRIX_SCRATCH where that is set: a cache that hosts share is not on their own disks.
    """
    jobs = Path(os.environ.get("TRTMATRIX_SCRATCH") or cache) / "jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    for owner in jobs.glob("*/owner"):
        with contextlib.suppress(OSError):  # another user's, or its own run is removing it just now
            if is_dead(owner.read_text()):
                remove_tree(owner.parent)
    folder = jobs / name
    folder.mkdir(mode=0o700)
    try:
        (folder / "owner").write_text(own_identity())
        for part in ("job", "out", "work"):
            (folder / part).mkdir()
    except OSError:  # on a full disk: whose it is would never be known
        remove_tree(folder)
        raise
    return folder


@contextlib.contextmanager
def whole_file(target: Path, mode: int | None = 0o644, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that takes the target's place at the end, and is gone where it does not come to that.

    ``mode``: its rights, None: what the umask leaves. ``sync``: wait for the disk, against power failures.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}-{os.urandom(6).hex()}.partial")
    try:
        with partial.open("x+b") as out:
            yield out
            out.flush()
            if sync:
                os.fsync(out.fileno())
        if mode is not None:
            partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def check_outputs(files: Iterable[Path], suffixes: Iterable[str]) -> None:
    """Refuse an ``--output`` that could not be written in the end, before anything else: ``UsageError``."""
    for file in files:
        if file.suffix not in suffixes:
            raise UsageError(f"--output {file}: the suffix must be one of {', '.join(suffixes)}")
        if file.is_dir() or not file.resolve().parent.is_dir():
            raise UsageError(f"--output {file}: name a file in a folder that is there")
        check_writable({"--output": file.resolve().parent})


def write_output(file: Path, text: str) -> None:
    """Write what ``--output`` names, whole; ``UsageError`` where that cannot be."""
    try:
        with whole_file(file.resolve(), mode=None) as out:
            out.write(text.encode())
    except OSError as error:
        words = f"cannot be written: {error.strerror}; name another file"
        raise UsageError(f"--output {file}: {words}") from error


def check_writable(folders: Mapping[str, Path]) -> None:
    """Make folders, by the options that name them; ``UsageError`` names those that cannot be written to."""
    problems = []
    for option, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:  # a full disk is told by what writes there
                why = f"nothing can be written there: {error.strerror}; name another folder by {option}"
                problems.append(f"{folder}: {why}")
    if problems:
        raise UsageError("\n".join(problems))


@contextlib.contextmanager
def whole_folder(target: Path, *, locked: bool = False) -> Iterator[Path]:
    """Make a folder that takes its name at the end, and is gone where it does not come to that.

    ``locked``: nobody else makes it now, so that what a killed process has left of it is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".partial-{target.name}-"
    for left in target.parent.glob(f"{prefix}*") if locked else ():
        remove_tree(left)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield partial
        publish_folder(partial, target)
    finally:
        remove_tree(partial)


def publish_folder(partial: Path, target: Path) -> None:
    """Give a folder that was made beside it its name; where somebody else was sooner, theirs is as good."""
    partial.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:
        remove_tree(partial)
        if not target.is_dir():
            raise


def digest_stream(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what is left of a stream (hexadecimal)."""
    total = sha256()
    while block := stream.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def own_identity() -> str:
    """Return ``boot:namespace:pid:start``, which no other process ever has."""
    return _identity(os.getpid())


def is_dead(identity: str) -> bool:
    """Whether an owner is known to be gone; an owner that cannot be seen from here counts as alive."""
    parts = identity.split(":")
    if len(parts) != 4 or not parts[2].isdecimal():
        return False
    boot, namespace, _, start = _identity(int(parts[2])).split(":")
    return parts[0] != boot or (parts[1] == namespace and parts[3] != start)


def _identity(pid: int) -> str:
    boot, start = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), ""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        start = "" if fields[0] == "Z" else fields[19]  # in clock ticks since boot
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}:{pid}:{start}"


_TURNS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""POSIX locks are a process's: its own threads take turns."""


@contextlib.contextmanager
def hold(file: Path) -> Iterator[None]:
    """Hold a POSIX lock, once it is free; ``OSError`` where the file system has none.

    They pass between hosts on NFS 4, Lustre mounted with flock, GPFS and BeeGFS.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _TURNS[str(file)], file.open("a") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a folder itself against other processes of this host, which leaves no file behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


T = TypeVar("T", str, list[str], dict[str, str])


def recall(cache: Path, kind: str, content: str, compute: Callable[[], T]) -> T:
    """Return what ``compute`` gives for a content, computed only where ``<cache>/recalled`` does not have it.

    What ``compute`` raises is raised each time. A folder that cannot be written is no error.
    """
    path = cache / "recalled" / f"{kind}-{sha256(content.encode()).hexdigest()[:40]}.json"
    with contextlib.suppress(OSError, ValueError):
        return cast("T", json.loads(path.read_bytes()))
    value = compute()
    with contextlib.suppress(OSError), whole_file(path) as out:
        out.write(json.dumps(value).encode())
    return value
