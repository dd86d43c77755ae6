"""NVIDIA's bindings from PyPI: which releases there are, fetched once, read by their own Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from trtmatrix.core.api import Origin, Surface
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.surfacefile import numbers_of, parse_surface
from trtmatrix.effects.offline import need_network
from trtmatrix.effects.paths import probe_folder
from trtmatrix.effects.stubs import make_stubs
from trtmatrix.effects.wheel_fetch import Fetch, Target

PYTHON, GLIBC = "3.10", "2.28"
"""Every release from 8.5 to today has bindings for this Python, and for this glibc of 2018."""

FIXED = ("tensorrt==8.5.3.1", "tensorrt==8.6.0", "tensorrt-bindings==8.6.1")
"""Before 10 the bindings lay in packages of other names; 9.x and 10.0.0 never were on PyPI."""

PACKAGE, FIRST = "tensorrt-cu12-bindings", (10, 0, 1)
KEEP = re.compile(r"^(tensorrt|tensorrt_bindings)/(__init__\.py|tensorrt\.so)$")
"""Of a wheel: 8.5's and 8.6.0's hold the libraries too, more than 1 GB."""


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """The bindings of a wheel, unpacked: ``module`` imports from ``folder``."""

    folder: Path
    module: str
    wheel: str
    sha256: str


def find_releases() -> tuple[str, ...]:
    """Return the requirement of each release that PyPI has: of one packed again, the first."""
    need_network("reading which releases PyPI has")
    command = [sys.executable, "-m", "pip", "index", "versions", PACKAGE, "--disable-pip-version-check"]
    command += Target(python=PYTHON, glibc=GLIBC).options()[1:]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or line is None:
        raise MachineryError(
            f"pip could not say which releases of {PACKAGE} there are: {_errors(done.stderr)}\n"
            f"  is PyPI reached from here? Try: {sys.executable} -m pip index versions {PACKAGE}"
        )
    found: dict[tuple[int, ...], str] = {}
    for version in line[1].split(", "):  # newest first
        if numbers_of(version) >= FIRST:
            found[numbers_of(version)] = version
    return FIXED + tuple(f"{PACKAGE}=={found[numbers]}" for numbers in sorted(found))


def _errors(said: str) -> str:
    """Return the lines in which pip tells of errors, else the end of what it said."""
    return " ".join(line for line in said.splitlines() if line.startswith("ERROR")) or said.strip()[-300:]


def fetch_bindings(requirement: str, cache: Path) -> Bindings:
    """Return the bindings that a requirement such as ``tensorrt-bindings==8.6.1`` names, fetched once."""
    folder = cache / "bindings" / requirement.replace("==", "-")
    facts = folder / "wheel.json"
    if not facts.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            target = Target(python=PYTHON, glibc=GLIBC)
            fetch = Fetch(target=target, wheels=None, index="", folder=Path(scratch))
            _unpack(fetch.as_it_comes(requirement), folder)
    known = json.loads(facts.read_text(encoding="utf-8"))
    return Bindings(folder=folder, **known)


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack what is needed of a wheel; the file that tells of it is written last."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if KEEP.match(name)]
        archive.extractall(folder, names)
    if not any(name.endswith(".so") for name in names):
        raise MachineryError(f"{wheel.name} holds no bindings that this trtmatrix knows; nothing was read")
    with wheel.open("rb") as stream:
        digest = sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    known = {"module": names[0].partition("/")[0], "wheel": wheel.name, "sha256": digest.hexdigest()}
    (folder / "wheel.json").write_text(json.dumps(known), encoding="utf-8")


def find_python(note: Callable[[str], None]) -> Path:
    """Return an interpreter of :data:`PYTHON`: on PATH, of uv, of pyenv, else uv installs one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{PYTHON}")
    candidates = [sys.executable, *([on_path] if on_path else []), _uv("find")]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{PYTHON}*/bin/python"))]
    for python in candidates:
        if python and _is_right(python):
            return Path(python)
    note(f"uv installs Python {PYTHON}, which the bindings are for")
    _uv("install")
    python = _uv("find")
    if not python or not _is_right(python):
        raise MachineryError(
            f"there is no Python {PYTHON}, which the bindings are for, and uv could not install one\n"
            f"  try it by hand: uv python install {PYTHON}"
        )
    return Path(python)


def _uv(verb: str) -> str:
    command = [sys.executable, "-m", "uv", "python", verb, PYTHON]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _is_right(python: str) -> bool:
    """Whether an interpreter runs (a shim of pyenv's may not) and is of the right version."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == PYTHON


def read_bindings(bindings: Bindings, python: Path, scratch: Path) -> Surface:
    """Import bindings over stand-ins for NVIDIA's libraries, in their own process; return their surface."""
    version = re.search(r"-(\d+)\.", bindings.wheel)
    number = int(version[1]) if version else 0
    stubs = scratch / f"libraries-{number}"
    if not stubs.is_dir():
        stubs.mkdir(parents=True)
        make_stubs(stubs, number)
    file = scratch / "surface.json"
    command = [str(python), "-B", str(probe_folder()), "surface", bindings.module, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(bindings.folder), "LD_LIBRARY_PATH": str(stubs)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise MachineryError(
            f"the bindings in {bindings.wheel} could not be read: {done.stderr.strip()[-1000:]}\n"
            "  a function that is missing belongs into SYMBOLS of trtmatrix/effects/stubs.py"
        )
    surface = parse_surface(json.loads(file.read_text(encoding="utf-8")), str(file))
    origin = Origin(wheel=bindings.wheel, sha256=bindings.sha256, python=PYTHON)
    return replace(surface, origin=origin)
