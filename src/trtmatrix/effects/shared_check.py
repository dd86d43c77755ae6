"""Whether a folder can be the shared one: there, ours, writable; it locks across processes, and renames."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.core.errors import ConfigError, MachineryError
from trtmatrix.effects.shared_files import PARTIAL, failure
from trtmatrix.effects.shared_lock import close, hold

REFUSED = re.compile(r"[\x00-\x1f\x7f:,%\\\"']")
"""What no path of the shared folder may have: runtimes and sbatch give these marks a meaning of their own."""

TRY = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(3)
"""
"""Another process's attempt at a lock: 3 where it is held."""

LOCAL_LOCKS = {
    "nfs": {"nolock", "local_lock=all", "local_lock=posix"},
    "nfs4": {"local_lock=all", "local_lock=posix"},
    "lustre": {"localflock", "noflock"},
}
"""Options of mounts with which a lock is not seen on other hosts. From memory: nfs(5), mount.lustre(8)."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """What a folder lies on: the kind of its file system, and the options of its mount."""

    point: str
    kind: str
    options: frozenset[str] = frozenset()


def check_folder(root: Path) -> None:
    """Raise :class:`ConfigError` where a folder cannot be the shared one, else :class:`MachineryError`."""
    _check_name(root)
    facts = _facts(root)
    if facts.st_mode & stat.S_IWOTH:
        raise ConfigError(
            [f"shared: {root}: everybody may write there, and change what your jobs run; chmod o-w {root}"]
        )
    probe = root / f"{PARTIAL}check-{os.urandom(6).hex()}"
    try:
        probe.mkdir()
        _check_owner(root, facts, probe.stat())
        _check_files(probe)
        _check_locks(probe)
    except OSError as error:
        raise failure(root, error) from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)
        shutil.rmtree(f"{probe}-renamed", ignore_errors=True)


def _check_name(root: Path) -> None:
    if not root.is_absolute():
        raise ConfigError(
            [f"shared: {root}: an absolute path is expected, the same on this host and all nodes"]
        )
    if bad := REFUSED.search(str(root)):
        raise ConfigError(
            [f"shared: {root}: {bad.group()!r} in its name means something to sbatch or to containers: "
             "name a folder without it"]
        )  # fmt: skip


def _facts(root: Path) -> os.stat_result:
    try:
        facts = root.stat()
    except FileNotFoundError as error:
        raise ConfigError(
            [f"shared: {root} is not there; mkdir -p {root} (on a file system that the nodes mount, too)"]
        ) from error
    except OSError as error:
        raise failure(root, error) from error
    if not stat.S_ISDIR(facts.st_mode):
        raise ConfigError([f"shared: {root} is no folder"])
    return facts


def _check_owner(root: Path, folder: os.stat_result, made: os.stat_result) -> None:
    """What another user made there could not be changed by this one: each user has a folder of their own."""
    if folder.st_uid != made.st_uid:
        raise ConfigError(
            [f"shared: {root} belongs to another user (uid {folder.st_uid}); name one of your own: "
             f"mkdir {root}/$USER"]
        )  # fmt: skip


def _check_files(probe: Path) -> None:
    """Write, link and rename as the scripts do; ``OSError`` where that fails."""
    (probe / "file").write_text("x", encoding="utf-8")
    (probe / "link").symlink_to("file")
    renamed = Path(f"{probe}-renamed")
    probe.rename(renamed)
    renamed.rename(probe)
    if sorted(os.listdir(probe)) != ["file", "link"]:  # noqa: PTH208 - names
        raise MachineryError(f"{probe.parent}: a folder that was renamed does not show what is in it")


def _check_locks(probe: Path) -> None:
    """See that what this process locks another cannot lock, and that the mount tells other hosts."""
    file = probe / "lock"
    with hold(file, lambda _: None):
        held = _try(file)
    free = _try(file)
    close(file)
    if (held, free) != (3, 0):
        raise MachineryError(
            f"{probe.parent}: a lock does not keep another process out (exit codes {held}, {free} instead of "
            "3, 0); two runs at once would disturb each other. Name a folder on another file system"
        )
    mount = mount_of(probe)
    if local := LOCAL_LOCKS.get(mount.kind, set()) & mount.options:
        raise MachineryError(
            f"{probe.parent}: {mount.point} is mounted with {', '.join(sorted(local))}: locks are not seen "
            "by other hosts, and runs on two of them would disturb each other. Ask who runs it for a mount "
            "with locks, or name a folder on another file system"
        )


def _try(file: Path) -> int:
    command = [sys.executable, "-I", "-S", "-c", TRY, str(file)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=60).returncode


def mount_of(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> Mount:
    """Return what a folder lies on. Source: proc(5), ``/proc/[pid]/mountinfo``."""
    real = os.path.realpath(folder)
    best = Mount(point="/", kind="unknown")
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return best
    for line in lines:
        before, _, after = line.partition(" - ")
        words, rest = before.split(), after.split()
        if len(words) < 6 or not rest:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
        inside = point == "/" or real == point or real.startswith(f"{point}/")
        if inside and len(point) >= len(best.point):
            options = frozenset(",".join([words[5], *rest[2:3]]).split(","))
            best = Mount(point=point, kind=rest[0], options=options)
    return best
