"""Finds the files of the suite that a pack takes along: what git tracks, the user's own matrix and repros."""

from __future__ import annotations

import fnmatch
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.core.errors import UsageError
from trtmatrix.effects.code import PACKAGES
from trtmatrix.effects.paths import Project
from trtmatrix.unpacker.pack_check import wrong_names

SKIPPED = frozenset({"__pycache__", "build", "dist", "wheelhouse", "venv", "env"})
"""Folders that hold nothing of the suite's own; those whose names start with a dot neither."""

READ = frozenset({".py", ".yaml", ".yml"})
"""Ends of names of files in a folder of repros that a run reads."""

TOP = frozenset(
    {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "matrix.schema.json",
        "matrix.yaml",
        "noxfile.py",
        "pyproject.toml",
    }
)
KNOWN = {
    "bench": READ,
    "docker": frozenset({".py", ".txt", ".md", ".sh", ".yaml"}),
    "docs": frozenset({".md", ".json", ".html", ".png", ".txt"}),
    "repros": READ,
    "results": frozenset({".json"}),
    "src": frozenset({".py", ".yaml", ".typed", ".c", ".html", ".css", ".js", ".json", ".md"}),
    "tests": frozenset({".py", ".txt", ".json", ".yaml", ".expect", ".c"}),
}
"""What the project consists of, by folder: these alone go along where git cannot say."""

NAMED = frozenset({"Dockerfile", "Makefile", "build", "engine"})
PRIVATE = (
    "id_*",
    "*.key",
    "*.pem",
    "*.p12",
    "*.pfx",
    ".env*",
    "*password*",
    "*passwd*",
    "*credential*",
    "*.kdbx",
)
"""Names of files that never go along where git cannot say."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The suite's files by the name that they get on the other side. ``commit``: empty without git.

    ``told``: what the user must know of what stays here.
    """

    files: dict[str, Path]
    commit: str
    changed: bool
    told: tuple[str, ...] = ()


def find_suite(project: Project) -> Suite:
    """Return the suite of this checkout, with the matrix, lock and repros that this call works with.

    What git does not track stays here: records measured on this host, caches, environments, keys.
    :class:`UsageError` where this program was installed without its checkout, or a name cannot be packed.
    """
    root = program_root()
    told: list[str] = []
    names = _tracked(root, told)
    known = names is not None
    files = _plain_files(root, names if names is not None else _known(root), told)
    elsewhere = project.repros.resolve() != root / "repros"
    if elsewhere:
        files = {name: file for name, file in files.items() if not name.startswith("repros/")}
    files |= _repros(project.repros, told)
    files.pop("matrix.lock", None)
    files |= {name: file for name, file in _own(project).items() if file.is_file()}
    if wrong := wrong_names(files):
        raise UsageError("the suite cannot be packed, rename these files first:\n  " + "\n  ".join(wrong))
    commit = (_git(root, "rev-parse", "HEAD")[0] or "").strip() if known else ""
    other = elsewhere or project.matrix.resolve() != root / "matrix.yaml"
    changed = bool(commit) and (other or _git(root, "status", "--porcelain", "--untracked-files=no")[0] != "")
    return Suite(files=files, commit=commit, changed=changed, told=tuple(told))


def _own(project: Project) -> dict[str, Path]:
    return {"matrix.yaml": project.matrix, "matrix.lock": project.lock}


def program_root() -> Path:
    """Return the checkout that this program runs from."""
    root = PACKAGES["trtmatrix"].resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "src" / "trtmatrix").is_dir():
        raise UsageError(
            f"the suite cannot be packed: {PACKAGES['trtmatrix']} was installed without its checkout\n"
            "  run this in a checkout: nox -s pack -- --to DIR"
        )
    return root


def _repros(folder: Path, told: list[str]) -> dict[str, Path]:
    """Return the repros: those that git tracks where they lie in a checkout, else what a run reads."""
    tracked = _tracked(folder, told) if _checkout(folder) else None
    there = {str(file.relative_to(folder)): file for file in _walk(folder)}
    read = [name for name, file in there.items() if file.suffix in READ and not _is_private(file.name)]
    names = tracked if tracked is not None else read
    if left := sorted(set(there if tracked is None else read) - set(names)):
        why = "a run does not read it" if tracked is None else "git does not track it: git add takes it along"
        told += [f"NOT PACKED: {folder / name!s}: {why}" for name in left]
    files = _plain_files(folder, names, told)
    if not any(name.endswith(".py") for name in files):
        raise UsageError(f"{folder}: no repro here that can be packed: git add those that are to go along")
    return {f"repros/{name}": file for name, file in files.items()}


def _plain_files(folder: Path, names: Iterable[str], told: list[str]) -> dict[str, Path]:
    """Return the files of these names; a link may lead anywhere, so it does not go along."""
    files = {name: folder / name for name in names}
    links = [name for name, file in files.items() if file.is_symlink()]
    told += [
        f"NOT PACKED: {folder / name!s}: a link"
        for name in links
        if f"NOT PACKED: {folder / name!s}: a link" not in told
    ]
    return {name: file for name, file in files.items() if file.is_file() and name not in links}


def _known(root: Path) -> Iterator[str]:
    """Yield the names of the project's own files, where git cannot say which these are."""
    yield from sorted(name for name in TOP if (root / name).is_file())
    for folder, suffixes in KNOWN.items():
        for file in _walk(root / folder) if (root / folder).is_dir() else ():
            if (file.suffix in suffixes or file.name in NAMED) and not _is_private(file.name):
                yield str(file.relative_to(root))


def _is_private(name: str) -> bool:
    return any(fnmatch.fnmatch(name.lower(), pattern) for pattern in PRIVATE)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, but for caches, environments, and records measured here."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if (
            path.is_dir()
            and path.name not in SKIPPED
            and not (path.name == "local" and folder.name == "results")
        ):
            if not path.name.endswith(".egg-info") and not (path / "pyvenv.cfg").exists():
                yield from _walk(path)
        elif path.is_file() and not path.name.endswith((".pyc", ".partial")):
            yield path


def _checkout(folder: Path) -> Path | None:
    """Return the checkout that a folder lies in."""
    return next(
        (path for path in (folder.resolve(), *folder.resolve().parents) if (path / ".git").exists()), None
    )


def _tracked(folder: Path, told: list[str]) -> list[str] | None:
    """Return the names of what git tracks below a folder; where it cannot say None, which is told."""
    found, why = _git(folder, "ls-files", "-z")
    if found is not None:
        return sorted({name for name in found.split("\0") if name})
    checkout = _checkout(folder)
    remedy = f"; git config --global --add safe.directory {shlex.quote(str(checkout))}" if checkout else ""
    line = (
        f"{folder}: GIT CANNOT SAY WHICH FILES ARE THE SUITE'S ({why}{remedy}): only those of known folders "
        "and kinds go along: look at the pack's manifest.json before it leaves this host"
    )
    told.append(line)
    return None


def _git(folder: Path, *words: str) -> tuple[str | None, str]:
    """Return what git says of a folder's checkout; None and why, where it is none, or git says nothing."""
    git = shutil.which("git")
    if git is None:
        return None, "git is not installed"
    if _checkout(folder) is None:
        return None, "this is no checkout"
    done = subprocess.run(
        [git, "-C", str(folder), *words], capture_output=True, check=False, env=_environment(os.environ),
        text=True, encoding="utf-8", errors="surrogateescape",
    )  # fmt: skip
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["git failed"])[0]
    return done.stdout, ""


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that name another checkout, as git sets them for its hooks."""
    return {
        name: value
        for name, value in variables.items()
        if name not in {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}
    }
