"""Finds the files of the suite that a pack takes along: what git knows, the user's own matrix and repros."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.core.errors import UsageError
from trtmatrix.effects.code import PACKAGES
from trtmatrix.effects.paths import Project

SKIPPED = frozenset({"__pycache__", "build", "dist", "wheelhouse"})
"""Folders that hold nothing of the suite's own; those whose names start with a dot neither."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The suite's files by the name that they get on the other side. ``commit``: empty without git."""

    files: dict[str, Path]
    commit: str
    changed: bool


def find_suite(project: Project) -> Suite:
    """Return the suite of this checkout, with the matrix, lock and repros that this call works with.

    What git ignores stays here: records measured on this host, caches, environments. :class:`UsageError`
    where this program was installed without its checkout.
    """
    root = program_root()
    known = _git(root, "ls-files", "-z")
    names = known.split("\0") if known is not None else [str(f.relative_to(root)) for f in _walk(root)]
    files = {name: root / name for name in names if name and (root / name).is_file()}
    if project.repros.resolve() != root / "repros":
        files = {name: file for name, file in files.items() if not name.startswith("repros/")}
    files |= {f"repros/{file.relative_to(project.repros)}": file for file in _walk(project.repros)}
    files.pop("matrix.lock", None)
    files |= {name: file for name, file in _own(project).items() if file.is_file()}
    commit = (_git(root, "rev-parse", "HEAD") or "").strip() if known is not None else ""
    return Suite(files=files, commit=commit, changed=bool(_git(root, "status", "--porcelain")))


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


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, but for caches, environments, and records measured here."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_dir() and not (path.name == "local" and folder.name == "results"):
            if not path.name.endswith(".egg-info"):
                yield from _walk(path)
        elif path.is_file() and not path.name.endswith((".pyc", ".partial")):
            yield path


def _git(root: Path, *words: str) -> str | None:
    """Return what git says of the checkout; None where it is none, or there is no git."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None
    done = subprocess.run([git, "-C", str(root), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None
