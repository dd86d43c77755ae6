"""What goes into a pack: the suite (what git tracks, the user's own matrix and repros), and its wheels."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.common.commands import run_to_end
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.images.unpacker import GLIBC, wrong_names
from trtmatrix.launchers.wheels import explain_refusal, target_options
from trtmatrix.suite.digest import PACKAGES
from trtmatrix.suite.matrix import Version, WheelsOrigin

EXTRAS = ("model", "minimise")
TOOLS = ("nox[uv]>=2025.2.9", "hatchling", "editables")
"""What the suite's sessions need beside the suite's own requirements: nox, and what installs the suite."""

PYTHON = re.compile(r"3\.\d+")
SECONDS = 1800
FULL = re.compile("No space left on device|Disk quota exceeded")

READ = frozenset({".py", ".yaml", ".yml"})
"""Ends of names of files in a folder of repros that a run reads."""

KNOWN = (
    "CHANGELOG.md", "LICENSE", "README.md", "matrix.schema.json", "matrix.yaml", "noxfile.py",
    "pyproject.toml", "src/*.xml",
    "bench/*.py", "docker/*Dockerfile", "docker/*/build", "docker/*.py", "docker/*.txt", "docker/*.md",
    "docs/*.md", "docs/*.json", "repros/*.py", "repros/*.yaml", "results/*.json", "src/*.py", "src/*.yaml",
    "src/*.typed", "src/*.c", "src/*.html", "src/*.css", "src/*.js", "src/*.json", "src/*.md", "tests/*.py",
    "tests/*.txt", "tests/*.json", "tests/*.yaml", "tests/*/engine",
)  # fmt: skip
"""What the project consists of: this alone goes along where git cannot say."""

SKIPPED = ("__pycache__", "build", "dist", "wheelhouse", "venv", "env", "local", ".*", "*.egg-info")
"""Folders that hold nothing of the suite's own."""

PRIVATE = (
    "id_*", "*.key", "*.pem", "*.p12", "*.pfx", ".*", "*password*", "*passwd*", "*credential*", "*.kdbx",
    "*.partial",
)  # fmt: skip
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
    root, told = program_root(), list[str]()
    names = _tracked(root, told)
    known = [name for name in _walk(root) if any(fnmatch.fnmatch(name, pattern) for pattern in KNOWN)]
    files = _plain_files(root, known if names is None else names, told)
    # The matrix and the repros are those of this call, which may lie elsewhere.
    elsewhere = project.repros.resolve() != root / "repros"
    if elsewhere:
        files = {name: file for name, file in files.items() if not name.startswith("repros/")}
    files |= _repros(project.repros, told)
    files.pop("matrix.lock", None)
    own = {"matrix.yaml": project.matrix, "matrix.lock": project.lock}
    files |= {name: file for name, file in own.items() if file.is_file()}
    if wrong := wrong_names(files):
        raise UsageError("the suite cannot be packed, rename these files first:\n  " + "\n  ".join(wrong))
    commit = (_git(root, "rev-parse", "HEAD")[0] or "").strip() if names is not None else ""
    other = elsewhere or project.matrix.resolve() != root / "matrix.yaml"
    changed = bool(commit) and (other or _git(root, "status", "--porcelain", "--untracked-files=no")[0] != "")
    return Suite(files=files, commit=commit, changed=changed, told=tuple(dict.fromkeys(told)))


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
    there = list(_walk(folder, private=True))
    read = [n for n in there if Path(n).suffix in READ and not _is_private(Path(n).name)]
    names = read if tracked is None else tracked
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
    told += [f"NOT PACKED: {file!s}: a link" for file in files.values() if file.is_symlink()]
    return {name: file for name, file in files.items() if file.is_file() and not file.is_symlink()}


def _walk(root: Path, *, private: bool = False) -> Iterator[str]:
    """Yield the names of the files below a folder, but for caches, environments, records measured here."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(
            name for name in inner
            if not any(fnmatch.fnmatch(name, pattern) for pattern in SKIPPED)
            and not Path(folder, name, "pyvenv.cfg").exists()
        )  # fmt: skip
        for name in sorted(names):
            if private or not _is_private(name):
                yield Path(folder, name).relative_to(root).as_posix()


def _is_private(name: str) -> bool:
    return any(fnmatch.fnmatch(name.lower(), pattern) for pattern in PRIVATE)


def _checkout(folder: Path) -> Path | None:
    """Return the checkout that a folder lies in."""
    places = (folder.resolve(), *folder.resolve().parents)
    return next((path for path in places if (path / ".git").exists()), None)


def _tracked(folder: Path, told: list[str]) -> list[str] | None:
    """Return the names of what git tracks below a folder; where it cannot say None, which is told."""
    found, why = _git(folder, "ls-files", "-z")
    if found is not None:
        return sorted({name for name in found.split("\0") if name})
    checkout = _checkout(folder)
    remedy = f"; git config --global --add safe.directory {shlex.quote(str(checkout))}" if checkout else ""
    told.append(
        f"{folder}: GIT CANNOT SAY WHICH FILES ARE THE SUITE'S ({why}{remedy}): only those of known folders "
        "and kinds go along: look at the pack's manifest.json before it leaves this host"
    )
    return None


def _git(folder: Path, *words: str) -> tuple[str | None, str]:
    """Return what git says of a folder's checkout; None and why, where it is none, or git says nothing."""
    git = shutil.which("git")
    if git is None or _checkout(folder) is None:
        return None, "git is not installed" if git is None else "this is no checkout"
    # Git's hooks name their own checkout by these variables.
    hooks = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}
    done = subprocess.run(
        [git, "-C", str(folder), *words], capture_output=True, check=False, text=True, encoding="utf-8",
        errors="surrogateescape",
        env={name: value for name, value in os.environ.items() if name not in hooks},
    )  # fmt: skip
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["git failed"])[0]
    return done.stdout, ""


def wanted_pythons(named: Sequence[str]) -> tuple[str, ...]:
    """Return the Pythons that wheels are for; :class:`UsageError` where one is none."""
    for python in named:
        if not PYTHON.fullmatch(python) or int(python.split(".")[1]) < 10:
            raise UsageError(f"--for-python {python}: name one such as 3.12; the suite needs 3.10 or later")
    return tuple(dict.fromkeys(named)) or (f"{sys.version_info[0]}.{sys.version_info[1]}",)


class Wheelhouse:
    """Fills a folder with wheels; ``links``: take them from that folder alone."""

    def __init__(self, folder: Path, links: Path | None = None) -> None:
        """Make the folder."""
        self.folder, self.links = folder, links
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = folder.with_name(f"{folder.name}.requirements")
        self._scratch.mkdir()

    def fetch_suite(self, root: Path, python: str) -> None:
        """Fetch what the suite needs, nox included; the pins stay beside the wheels as ``suite-X.Y.txt``."""
        extras = [f"--extra={extra}" for extra in EXTRAS]
        pins = self._resolve([*extras, str(root / "pyproject.toml")], TOOLS, python)
        shutil.copyfile(pins, self.folder / f"suite-{python}.txt")
        self._download(pins, python)

    def fetch_versions(self, versions: Iterable[Version], python: str) -> None:
        """Fetch what the environments of versions need."""
        for version in versions:
            if isinstance(version.origin, WheelsOrigin):
                self._download(self._resolve([], version.origin.wheels, python), python)

    def _resolve(self, words: Sequence[str], requirements: Iterable[str], python: str) -> Path:
        """Pin what is wanted, for a Python that need not be here; returns the file of pins with hashes."""
        number = len(list(self._scratch.iterdir()))
        wanted, pins = self._scratch / f"{number}.in", self._scratch / f"{number}.txt"
        wanted.write_text("".join(f"{one}\n" for one in requirements), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        command += [f"--python-version={python}", "--python-platform=x86_64-manylinux_2_28"]
        command += ["--only-binary=:all:", "--generate-hashes", *words, str(wanted), f"--output-file={pins}"]
        command += ["--no-index", f"--find-links={self.links}"] if self.links else _own_index()
        code, said = _run(command, self.folder)
        if code:
            raise MachineryError(
                f"the wheels for Python {python} cannot be resolved: {without_passwords(said)[-1500:]}\n"
                f"  try it by hand: {without_passwords(shlex.join(command))}"
            )
        return pins

    def _download(self, pins: Path, python: str) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--require-hashes", f"--requirement={pins}", f"--dest={self.folder}"]
        command += target_options(python, GLIBC)
        command += ["--no-index", f"--find-links={self.links}"] if self.links else []
        code, said = _run(command, self.folder)
        if code:
            source = str(self.links or "the index that pip is set to")
            raise MachineryError(
                f"wheels for Python {python}: {explain_refusal(without_passwords(said), source)}"
            )

    def files(self) -> dict[str, Path]:
        """Return what was fetched, by the name that it gets on the other side."""
        return {f"wheelhouse/{file.name}": file for file in sorted(self.folder.iterdir())}


def _own_index() -> list[str]:
    """Return uv's options for the index that pip is set to, which uv does not read."""
    _, said = _run([sys.executable, "-m", "pip", "config", "list"], Path())
    settings = re.findall(r"^\S+\.([a-z-]+)='(.*)'$", said, re.MULTILINE)
    found = dict(settings)
    index = os.environ.get("PIP_INDEX_URL") or found.get("index-url", "")
    return [f"--default-index={index}"] if index else []


def without_passwords(text: str) -> str:
    """Return a text whose addresses name nobody: an index's may hold a user's name and password."""
    return re.sub(r"(\w://)[^/\s'\"]*@", r"\1***@", text)


def _run(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command that writes into a folder; :class:`MachineryError` where a disk is full."""
    code, said = run_to_end(command, os.environ, SECONDS)
    if code == 124:
        raise MachineryError(f"not done within {SECONDS} s: {without_passwords(shlex.join(command))}")
    if code and FULL.search(said):
        places = {folder.absolute(), Path(tempfile.gettempdir())}
        free = ", ".join(f"{shutil.disk_usage(p).free / 1e6:.0f} MB are free in {p}" for p in sorted(places))
        raise MachineryError(
            f"a disk is full, so that the wheels cannot be fetched: {free}: make room there, or "
            "name other folders by --to and TMPDIR"
        )
    return code, said
