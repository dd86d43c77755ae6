"""Fetches wheels for another Python than this one, by their locked hashes, with pip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.launchers.wheel_locks import FIRST_USE, Pin, locked_text

OWN_SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
"""Variables by which pip would look elsewhere too."""

CUT = ("Retry(total=0", "Max retries exceeded", "Could not fetch URL")
"""What pip prints of a network that fails to the last try; its errors only say that nothing matches."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the wheels are for: a Python such as ``"3.10"`` on x86-64, a glibc such as ``"2.36"``."""

    python: str
    glibc: str

    def options(self) -> list[str]:
        """Return pip's options; it is told every platform tag that this glibc can load."""
        tags = ["manylinux1", "manylinux2010", "manylinux2014"]
        tags += [f"manylinux_2_{minor}" for minor in range(5, int(self.glibc.split(".")[1]) + 1)]
        platforms = [f"--platform={tag}_x86_64" for tag in tags]
        python = ["--implementation=cp", f"--python-version={self.python}"]
        return ["--no-deps", "--only-binary=:all:", *python, *platforms]


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Where wheels come from (a folder, else an index, else what pip is set to) and the folder they go to."""

    target: Target
    wheels: Path | None
    index: str
    folder: Path

    @property
    def source(self) -> str:
        """The folder or index, in words."""
        return str(self.wheels or self.index or "the index that pip is set to")

    def locked(self, pins: Sequence[Pin]) -> None:
        """Fetch the wheels; one whose hash differs is refused."""
        requirements = self.folder.parent / "requirements.txt"
        requirements.write_text("".join(f"{pin.line}\n" for pin in pins), encoding="utf-8")
        self._download("--require-hashes", f"--requirement={requirements}")

    def first_use(self, pin: Pin, lock: Path) -> Pin:
        """Fetch a wheel as it comes and write its hash into the lock; returns the pin with it."""
        file = self.as_it_comes(pin.wheel)
        day = datetime.now(timezone.utc).date().isoformat()
        digest = sha256(file.read_bytes()).hexdigest()
        found = replace(pin, sha256=digest, source=f"{FIRST_USE}: {file.name} from {self.source}, {day}")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a", encoding="utf-8") as stream:
            stream.write(locked_text(found))
        return found

    def as_it_comes(self, wheel: str) -> Path:
        """Fetch a wheel whose hash is not known; returns its file."""
        before = set(self.folder.glob("*"))
        self._download(wheel)
        (file,) = set(self.folder.glob("*")) - before
        return file

    def _download(self, *what: str) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", *self.target.options(), f"--dest={self.folder}"]
        environment = dict(os.environ)
        if self.wheels or self.index:
            # This folder or index and no other: PyPI has packages without libraries under the same names.
            environment = {name: environment[name] for name in environment if name not in OWN_SETTINGS}
            environment["PIP_CONFIG_FILE"] = os.devnull
        if self.wheels:
            command += ["--no-index", f"--find-links={self.wheels}"]
        elif self.index:
            command.append(f"--index-url={self.index}")
        done = subprocess.run([*command, *what], capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise MachineryError(explain_refusal(done.stderr, self.source))


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
