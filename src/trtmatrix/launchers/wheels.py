"""Environments of wheels, each made once, and the wheelhouse that stands for every index offline."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from packaging.requirements import Requirement

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.file_lock import hold
from trtmatrix.common.offline import is_offline, need_network

UV = (sys.executable, "-m", "uv")
WHEELHOUSE = "wheelhouse"
"""What the folder is called in a project; TRTMATRIX_WHEELHOUSE names another."""
DEFAULT_INDEX = "https://pypi.org/simple/"
"""Source: https://pip.pypa.io/en/stable/cli/pip_install/#cmdoption-i."""
PIP_SETTINGS = ("index-url", "no-index", "extra-index-url", "find-links", "proxy")
"""By these pip looks elsewhere, or in another way. uv does not read pip's files."""


def environment_digest(wheels: tuple[str, ...]) -> str:
    """Return what identifies an environment: its requirements and this Python's version."""
    return sha256(f"{sys.version_info[:3]} {sorted(wheels)}".encode()).hexdigest()[:16]


def environment_folder(cache: Path, name: str, wheels: tuple[str, ...]) -> Path:
    """Return where the environment of a version lies, made or not."""
    return cache / "envs" / f"{name}-{environment_digest(wheels)}"


def is_installed(cache: Path, name: str, wheels: tuple[str, ...]) -> bool:
    """Whether the environment of a version is there, whole."""
    return (environment_folder(cache, name, wheels) / "complete").exists()


def make_environment(
    folder: Path, wheels: Sequence[str], note: Callable[[str], None], *, wheelhouse: Path | None = None,
    python: Sequence[str] = ("--no-python-downloads", f"--python={sys.executable}"),
    pythons: Path | None = None,
) -> Path:  # fmt: skip
    """Return the Python of an environment with exactly these wheels, made now if it is not there.

    ``note`` is told of what takes long; ``python``: uv's options for which Python it has, ``pythons``: the
    folder of those that uv fetches. Raises :class:`MachineryError` where a wheel or the Python cannot be had.
    """
    with hold(folder.parent / f"{folder.name}.lock", note):
        if not (folder / "complete").exists():
            note(f"installing {', '.join(wheels)} into {folder} (once)")
            for old in (folder, *folder.parent.glob(f"{folder.name}.partial-*")):
                shutil.rmtree(old, ignore_errors=True)
            # The uv of a run that was interrupted may still be writing: never where this one does.
            partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
            place = {**os.environ, **({"UV_PYTHON_INSTALL_DIR": str(pythons)} if pythons else {})}
            command = [*UV, "venv", "--quiet", "--allow-existing", *python, str(partial)]
            command += ["--offline"] if is_offline() else []
            made = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
            new = [str(partial / "bin" / "python"), "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
            if made.returncode or subprocess.run(new, check=False).returncode:
                said = made.stderr.strip()[-300:]
                raise MachineryError(f"uv makes no environment of Python 3.10 or later: {said}")
            install_wheels(partial / "bin" / "python", tuple(wheels), wheelhouse)
            (partial / "complete").touch()
            partial.rename(folder)
    return folder / "bin" / "python"


def make_own_environment(root: Path, named: str | None, note: Callable[[str], None]) -> Path:
    """Return a Python below ``root`` with all that this program needs, but for the program; made once.

    ``named``: a Python 3.10 or later; without one uv fetches its own into ``root``. Raises
    :class:`MachineryError` where there is none.
    """
    needed = [Requirement(text) for text in importlib.metadata.requires("trtmatrix") or ()]
    plain = sorted(str(one) for one in needed if not (one.marker and "extra" in str(one.marker)))
    python = ["--managed-python", "--python=3.12"]
    if named:
        python = ["--no-python-downloads", f"--python={named}"]
    key = sha256("\n".join([*python, *plain]).encode()).hexdigest()[:16]
    return make_environment(root / "env" / key, plain, note, python=python, pythons=root / "python")


def install_wheels(python: Path, wheels: tuple[str, ...], wheelhouse: Path | None = None) -> None:
    """Install exactly these wheels and what they need, no source builds, for one interpreter.

    uv does it, which is ten times faster; pip where it has an index of its own (a mirror, say), or uv fails.
    ``wheelhouse``: a folder that stands for every index; nothing is asked of a network then. Raises
    :class:`MachineryError` with pip's own words and the command to try.
    """
    if wheelhouse is None:
        need_network(f"installing {', '.join(wheels)}")
    source = [] if wheelhouse is None else ["--no-index", f"--find-links={wheelhouse}"]
    words = ["--quiet", "--only-binary=:all:", *source, *wheels]
    if wheelhouse is not None or not {"index-url", "no-index"} & set(pip_settings(os.environ)):
        offline = [] if wheelhouse is None else ["--offline"]
        command = [*UV, "pip", "install", f"--python={python}", *offline, *words]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
    command = [sys.executable, "-m", "pip", f"--python={python}", "install"]
    command += ["--disable-pip-version-check", "--no-input", "--no-compile", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise MachineryError(
            f"pip could not install {', '.join(wheels)}: {' '.join(lines) or done.stderr[-500:]}\n"
            f"  try it by hand: {' '.join(command)}"
        )


def pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return how pip is told to look elsewhere, by its files and variables.

    Source: https://pip.pypa.io/en/stable/topics/configuration/.
    """
    home = Path(environment.get("HOME", "/"))
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    folders = (Path("/etc"), Path("/etc/xdg/pip"), own, home / ".pip", Path(sys.prefix))
    settings: dict[str, str] = {}
    for file in [*(folder / "pip.conf" for folder in folders), Path(environment.get("PIP_CONFIG_FILE", ""))]:
        if file.is_file():
            text = file.read_text(errors="replace")
            pattern = rf"^\s*({'|'.join(PIP_SETTINGS)})\s*=\s*(.*?)\s*$"
            settings |= dict(re.findall(pattern, text, re.MULTILINE))
    for name in PIP_SETTINGS:
        if value := environment.get(f"PIP_{name.upper().replace('-', '_')}"):
            settings[name] = value
    return settings


def pip_index(environment: Mapping[str, str]) -> str:
    """Return the only index that pip would ask; nothing where it has other sources or a proxy of its own."""
    settings = pip_settings(environment)
    index = settings.pop("index-url", DEFAULT_INDEX)
    return "" if settings else index


def find_wheelhouse(folder: Path) -> Path | None:
    """Return the folder that TRTMATRIX_WHEELHOUSE names, else ``wheelhouse`` in the project, or None."""
    named = os.environ.get("TRTMATRIX_WHEELHOUSE")
    found = Path(named) if named else folder.resolve() / WHEELHOUSE
    return found if found.is_dir() else None


def find_lacking(wheelhouse: Path | None, wheels: Sequence[str]) -> str:
    """Return why wheels cannot be installed for this Python from the folder alone; nothing: they can.

    uv looks, without installing anything: what the wheels need themselves must be there too.
    """
    if wheelhouse is None:
        return f"{', '.join(wheels)}: not installed, and there is no {WHEELHOUSE}"
    command = [
        *UV,
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--offline",
        "--no-index",
        "--only-binary=:all:",
    ]
    command += [f"--find-links={wheelhouse}", f"--python={sys.executable}", "-"]
    done = subprocess.run(command, input="\n".join(wheels), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = " ".join(done.stderr.split())
    why = re.search(r"Because (.+?),? we can conclude", said)
    return f"{', '.join(wheels)}: not installed, and not in {wheelhouse}: {why[1] if why else said[-200:]}"
