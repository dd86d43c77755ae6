"""What goes into a pack beside images: the suite with the user's own matrix and repros, and wheels."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.wheels import download_wheels, index_options, target_options, without_passwords
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.matrix import Version, WheelsOrigin

EXTRAS = ("model", "minimise")
TOOLS = ("nox[uv]>=2025.2.9", "hatchling", "editables")
"""What the suite's sessions need beside the suite's own requirements: nox, and what installs the suite."""
GLIBC = "2.28"
"""What the other host is taken to have: any distribution since 2018, https://peps.python.org/pep-0600/."""
PYTHON = re.compile(r"3\.\d+")
SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The suite's files by the name that they get on the other side, and the commit that they are of.

    ``changed``: they are not those of that commit; ``left_out``: what of the user's own stays here, and why.
    """

    files: dict[str, Path]
    commit: str
    changed: bool
    left_out: tuple[str, ...] = ()


def find_suite(project: Project) -> Suite:
    """Return the suite of this checkout, with the matrix, lock and repros that this call works with.

    What git does not track stays here: records measured on this host, caches, environments, keys.
    :class:`UsageError` where git cannot say what that is, or a name cannot be packed.
    """
    root = program_root()
    # The matrix and the repros are those of this call, which may lie elsewhere.
    files = {name: root / name for name in tracked_files(root) if not name.startswith("repros/")}
    files |= {f"repros/{name}": project.repros / name for name in tracked_files(project.repros)}
    untracked = sorted({*project.repros.glob("*.py")} - set(files.values()))
    left_out = [f"{file}: git does not track it: git add takes it along" for file in untracked]
    left_out += [f"{file}: a link" for file in files.values() if file.is_symlink()]
    own = {"matrix.yaml": project.matrix.resolve(), "matrix.lock": project.lock.resolve()}
    files = {name: f for name, f in (files | own).items() if f.is_file() and not f.is_symlink()}
    if not any(re.fullmatch(r"repros/[^/]*\.py", name) for name in files):
        raise UsageError(f"{project.repros}: no repro that can be packed: git add those that are to go along")
    if wrong := [ascii(name) for name in files if not name.isprintable() or set("\\:") & set(name)]:
        raise UsageError("the suite cannot be packed, rename these files first:\n  " + "\n  ".join(wrong))
    ours = (project.repros.resolve(), own["matrix.yaml"]) == (root / "repros", root / "matrix.yaml")
    changed = not ours or bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    commit = _git(root, "rev-parse", "HEAD").strip()
    return Suite(files=files, commit=commit, changed=changed, left_out=tuple(left_out))


def program_root() -> Path:
    """Return the checkout that this program runs from."""
    root = PACKAGES["trtmatrix"].resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "src" / "trtmatrix").is_dir():
        raise UsageError(
            f"the suite cannot be packed: {PACKAGES['trtmatrix']} was installed without its checkout\n"
            "  run this in a checkout: nox -s pack -- --to DIR"
        )
    return root


def tracked_files(folder: Path) -> list[str]:
    """Return the names of what git tracks below a folder."""
    return sorted({name for name in _git(folder, "ls-files", "-z").split("\0") if name})


def _git(folder: Path, *words: str) -> str:
    """Return what git says of a folder's checkout; :class:`UsageError` where it says nothing."""
    git = shutil.which("git")
    # Git's hooks name their own checkout by these variables.
    hooks = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}
    done = subprocess.run(
        [git or "git", "-C", str(folder), *words], capture_output=True, check=False, text=True,
        encoding="utf-8", errors="surrogateescape",
        env={name: value for name, value in os.environ.items() if name not in hooks},
    ) if git else None  # fmt: skip
    if done is None or done.returncode:
        said = (done.stderr.strip().splitlines() or ["git failed"])[0] if done else "git is not installed"
        trust = f"git config --global --add safe.directory {shlex.quote(str(folder))}"
        raise UsageError(
            f"{folder}: git cannot say which files are the suite's: {said}\n"
            f"  pack from a checkout with a commit, as the user whose it is, or: {trust}"
        )
    return done.stdout


def wanted_pythons(named: Sequence[str]) -> tuple[str, ...]:
    """Return the Pythons that wheels are for; :class:`UsageError` where one is none."""
    for python in named:
        if not PYTHON.fullmatch(python) or int(python.split(".")[1]) < 10:
            raise UsageError(f"--for-python {python}: name one such as 3.12; the suite needs 3.10 or later")
    return tuple(dict.fromkeys(named)) or (f"{sys.version_info[0]}.{sys.version_info[1]}",)


def fetch_wheels(folder: Path, versions: Iterable[Version], pythons: Iterable[str]) -> dict[str, Path]:
    """Fetch the wheels of the suite, nox included, and of versions; returns them by their names in the pack.

    The suite's pins stay beside them as ``suite-X.Y.txt``.
    """
    wheels, scratch = folder / "wheels", folder / "requirements"
    wheels.mkdir(parents=True)
    scratch.mkdir()
    own = [version.origin.wheels for version in versions if isinstance(version.origin, WheelsOrigin)]
    suite = [*(f"--extra={extra}" for extra in EXTRAS), str(program_root() / "pyproject.toml")]
    for python in pythons:
        print(f"fetching the wheels for Python {python}", file=sys.stderr, flush=True)
        pins = _pin(suite, TOOLS, python, scratch)
        shutil.copyfile(pins, wheels / f"suite-{python}.txt")
        for file in [pins, *(_pin([], each, python, scratch) for each in own)]:
            what = ["--require-hashes", f"--requirement={file}"]
            download_wheels(what, target_options(python, GLIBC), wheels)
    return {f"wheelhouse/{file.name}": file for file in sorted(wheels.iterdir())}


def _pin(words: Sequence[str], requirements: Iterable[str], python: str, scratch: Path) -> Path:
    """Pin what is wanted, for a Python that need not be here; returns the file of pins with hashes."""
    number = len(list(scratch.iterdir()))
    wanted, pins = scratch / f"{number}.in", scratch / f"{number}.txt"
    wanted.write_text("".join(f"{one}\n" for one in requirements), encoding="utf-8")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += [f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28"]
    command += ["--only-binary=:all:", "--generate-hashes", *words, str(wanted), f"--output-file={pins}"]
    command += index_options()
    code, said = run_to_end(command, os.environ, SECONDS)
    if code:
        raise MachineryError(
            f"the wheels for Python {python} cannot be resolved: {without_passwords(said)[-1500:]}\n"
            f"  try it by hand: {without_passwords(shlex.join(command))}"
        )
    return pins
