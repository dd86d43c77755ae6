"""Locks of wheels: requirements files that give each wheel of an image its SHA-256; pip fetches by them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.common.errors import ConfigError, MachineryError

WHEEL = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?==[^\s*,;]+", re.ASCII)
LINE = re.compile(r"(?P<wheel>\S+)\s+--hash=sha256:(?P<sha256>[0-9a-f]{64})")

OWN_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
"""Variables by which pip would look elsewhere too."""
CUT = ("Retry(total=0", "Max retries exceeded", "Could not fetch URL")
"""What pip prints of a network that fails to the last try; its errors only say that nothing matches."""


@dataclass(frozen=True, kw_only=True)
class LockedWheel:
    """A wheel as matrix.yaml names it; ``sha256`` is empty where the lock has none.

    ``source`` is the comment above the lock's line: how the hash is known.
    """

    wheel: str
    sha256: str = ""
    source: str = ""

    @property
    def line(self) -> str:
        """The wheel as pip reads it."""
        return f"{self.wheel} --hash=sha256:{self.sha256}" if self.sha256 else self.wheel


def parse_lock(text: str, wheels: Sequence[str], file: str) -> tuple[LockedWheel, ...]:
    """Return each wheel of matrix.yaml, with the lock's hash where it has one.

    matrix.yaml decides what is wanted. :class:`ConfigError` lists what the lock has besides, what cannot
    be read, and wheels that name no single version.
    """
    problems = [
        f"matrix.yaml: {wheel}: write NAME==VERSION" for wheel in wheels if not WHEEL.fullmatch(wheel)
    ]
    locked: dict[str, LockedWheel] = {}
    comment: list[str] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        match = LINE.fullmatch(line)
        if not line:
            comment = []
        elif line.startswith("#"):
            comment.append(line.lstrip("# "))
        elif match is None:
            problems.append(f"{file}:{number}: write NAME==VERSION --hash=sha256:… (found {line[:80]!r})")
        elif match["wheel"] not in wheels:
            problems.append(f"{file}:{number}: {match['wheel']} is not in matrix.yaml: remove this line")
        elif match["wheel"] in locked:
            problems.append(f"{file}:{number}: {match['wheel']} stands twice: remove one")
        else:
            source = " ".join(comment)
            locked[match["wheel"]] = LockedWheel(wheel=match["wheel"], sha256=match["sha256"], source=source)
    if problems:
        raise ConfigError(problems)
    return tuple(locked.get(wheel, LockedWheel(wheel=wheel)) for wheel in wheels)


def target_options(python: str, glibc: str) -> list[str]:
    """Return pip's options for another Python such as ``"3.10"`` on x86-64, with a glibc such as ``"2.36"``.

    pip is told every platform tag that this glibc can load.
    """
    tags = ["manylinux1", "manylinux2010", "manylinux2014"]
    tags += [f"manylinux_2_{minor}" for minor in range(5, int(glibc.split(".")[1]) + 1)]
    platforms = [f"--platform={tag}_x86_64" for tag in tags]
    return [
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={python}",
        *platforms,
    ]


def download_wheels(
    what: Sequence[str], target: Sequence[str], folder: Path, *, wheels: Path | None = None, index: str = ""
) -> None:
    """Have pip download ``what`` into a folder: from the folder ``wheels``, else an index, else its own.

    ``target``: see :func:`target_options`. :class:`MachineryError` says why it did not.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", *target, f"--dest={folder}"]
    environment = dict(os.environ)
    if wheels or index:
        # This folder or index and no other: PyPI has packages without libraries under the same names.
        environment = {name: environment[name] for name in environment if name not in OWN_SETTINGS}
        environment["PIP_CONFIG_FILE"] = os.devnull
    if wheels:
        command += ["--no-index", f"--find-links={wheels}"]
    elif index:
        command.append(f"--index-url={index}")
    done = subprocess.run([*command, *what], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        source = str(wheels or index or "the index that pip is set to")
        raise MachineryError(explain_refusal(done.stderr, source))


def explain_refusal(said: str, source: str) -> str:
    """Return why pip downloaded nothing, from what it printed."""
    lines = [line.strip() for line in said.splitlines()]
    mismatch = next((i for i, line in enumerate(lines) if "DO NOT MATCH THE HASHES" in line), None)
    if mismatch is not None:
        facts = "\n  ".join(line for line in lines[mismatch + 1 :] if line)
        return (
            f"{source} gives other bytes than the lock allows; nothing is built\n  {facts}\n"
            "  find out which is right before changing the lock: the wheels of a release do not change"
        )
    if (cut := next((line for line in lines if any(mark in line for mark in CUT)), None)) is not None:
        return (
            f"{source} cannot be reached: {cut[:300]}\n"
            "  check network and proxy (HTTPS_PROXY, NO_PROXY), or take the wheels from a folder"
        )
    errors = " ".join(line for line in lines if line.startswith("ERROR"))
    return (
        f"pip could not download from {source}: {errors or said.strip()[-1500:]}\n"
        "  wheels alone are taken: where a package is an sdist, name in matrix.yaml what it installs"
    )
