"""Installs wheels into an environment: by uv, which is ten times faster, or by the user's own pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network

OWN_INDEX = re.compile(r"^\s*(?:index-url|no-index)\s*=", re.MULTILINE)
"""A setting by which pip is told where to look. uv does not read pip's files."""


def install_wheels(python: Path, wheels: tuple[str, ...], wheelhouse: Path | None = None) -> None:
    """Install exactly these wheels and what they need, no source builds, for one interpreter.

    Where pip has an index of its own (a mirror, say), or uv fails, pip does it. ``wheelhouse``: a folder that
    stands for every index; nothing is asked of a network then. Raises :class:`MachineryError` with pip's own
    words and the command to try.
    """
    if wheelhouse is None:
        need_network(f"installing {', '.join(wheels)}")
    source = [] if wheelhouse is None else ["--no-index", f"--find-links={wheelhouse}"]
    own = wheelhouse is None and pip_has_own_index(os.environ, pip_files(os.environ))
    if not own and _uv(python, [*source, *wheels]):
        return
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--no-compile"]
    command += ["--only-binary=:all:", *source, *wheels]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise MachineryError(
            f"pip could not install {', '.join(wheels)}: {' '.join(lines) or done.stderr[-500:]}\n"
            f"  try it by hand: {' '.join(command)}"
        )


def _uv(python: Path, words: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", f"--python={python}"]
    command += ["--only-binary=:all:", *(["--offline"] if "--no-index" in words else []), *words]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def pip_has_own_index(environment: Mapping[str, str], files: list[Path]) -> bool:
    """Whether pip is told, by its variables or files, to look elsewhere than its default index."""
    if {"PIP_INDEX_URL", "PIP_NO_INDEX"} & set(environment):
        return True
    return any(OWN_INDEX.search(file.read_text(errors="replace")) for file in files if file.is_file())


def pip_files(environment: Mapping[str, str]) -> list[Path]:
    """Return where pip keeps its settings. Source: https://pip.pypa.io/en/stable/topics/configuration/."""
    home = Path(environment.get("HOME", "/"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"), config / "pip" / "pip.conf"]
    files += [home / ".pip" / "pip.conf", Path(sys.prefix) / "pip.conf"]
    return files + [Path(environment[name]) for name in ("PIP_CONFIG_FILE",) if name in environment]
