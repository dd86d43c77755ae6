"""Fetches the wheels that a host without a network needs: resolved by uv for its Python, fetched by pip."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from trtmatrix.core.config import Version, WheelsOrigin
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.effects.wheel_fetch import Target, explain_refusal
from trtmatrix.unpacker.pack_check import GLIBC
from trtmatrix.unpacker.unpack_pack import run_alone

EXTRAS = ("model", "minimise")
TOOLS = ("nox[uv]>=2025.2.9", "hatchling", "editables")
"""What the suite's sessions need beside the suite's own requirements: nox, and what installs the suite."""

PYTHON = re.compile(r"3\.\d+")
SECONDS = 1800
FULL = re.compile("No space left on device|Disk quota exceeded")


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
        command += Target(python=python, glibc=GLIBC).options()
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
    try:
        code, said = run_alone(command, SECONDS)
    except subprocess.TimeoutExpired as error:
        raise MachineryError(
            f"not done within {SECONDS} s: {without_passwords(shlex.join(command))}"
        ) from error
    if code and FULL.search(said):
        places = {folder.absolute(), Path(tempfile.gettempdir())}
        free = ", ".join(f"{shutil.disk_usage(p).free / 1e6:.0f} MB are free in {p}" for p in sorted(places))
        raise MachineryError(
            f"a disk is full, so that the wheels cannot be fetched: {free}: make room there, or "
            "name other folders by --to and TMPDIR"
        )
    return code, said
