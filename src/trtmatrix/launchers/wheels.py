"""Pythons of this host: environments of wheels, interpreters with TensorRT, and the launcher of both.

Also the wheelhouse that stands for every index, and locks: the SHA-256 of each wheel of an image.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from packaging.requirements import Requirement

from trtmatrix.common.errors import ConfigError, MachineryError
from trtmatrix.common.offline import is_offline, need_network
from trtmatrix.common.paths import hold, probe_folder, whole_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.launcher import Ended, Poll, Ready, gpu_variables, run_session
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.plan import Launch

UV = (sys.executable, "-m", "uv")
WHEELHOUSE = "wheelhouse"  # what the folder is called in a project; TRTMATRIX_WHEELHOUSE names another

WHEEL = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?==[^\s*,;]+", re.ASCII)
LINE = re.compile(r"(?P<wheel>\S+)\s+--hash=sha256:(?P<sha256>[0-9a-f]{64})")

INDEXES = {"index-url": "--default-index", "extra-index-url": "--index", "find-links": "--find-links"}
"""Settings of pip, and the options of uv that mean the same."""


def environment_digest(wheels: tuple[str, ...]) -> str:
    """Return what identifies an environment: its requirements and this Python's version."""
    return sha256(f"{sys.version_info[:3]} {sorted(wheels)}".encode()).hexdigest()[:16]


def environment_folder(cache: Path, name: str, wheels: tuple[str, ...]) -> Path:
    """Return where the environment of a version lies; the folder is there once it is made."""
    return cache / "envs" / f"{name}-{environment_digest(wheels)}"


def make_environment(
    folder: Path, wheels: Sequence[str], note: Callable[[str], None], *, wheelhouse: Path | None = None,
    python: Sequence[str] = ("--no-python-downloads", f"--python={sys.executable}"),
    pythons: Path | None = None,
) -> Path:  # fmt: skip
    """Return the Python of an environment with exactly these wheels, made now if it is not there.

    ``note`` is told of what takes long; ``python``: uv's options for which Python it has, ``pythons``: the
    folder of those that uv fetches. Raises :class:`MachineryError` where a wheel or the Python cannot be had.
    """
    with hold(folder.parent / f"{folder.name}.lock"):
        if not folder.is_dir():
            note(f"installing {', '.join(wheels)} into {folder} (once)")
            with whole_folder(folder, locked=True) as partial:
                place = {"UV_PYTHON_INSTALL_DIR": str(pythons)} if pythons else {}
                offline = ["--offline"] if is_offline() else []
                made = _uv(["venv", "--allow-existing", *python, *offline, str(partial)], place=place)
                if made.returncode:
                    raise MachineryError(f"uv makes no environment: {made.stderr.strip()[-300:]}")
                install_wheels(partial / "bin" / "python", tuple(wheels), wheelhouse)
    return folder / "bin" / "python"


def _uv(
    words: Sequence[str], *, said: str = "", place: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run uv to its end; ``said``: what it reads, ``place``: variables that it is given."""
    environment = {**os.environ, **(place or {})}
    command = [*UV, *words, "--quiet"]
    return subprocess.run(command, input=said, env=environment, capture_output=True, text=True, check=False)


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
    """Have uv install exactly these wheels and what they need, no source builds, for one interpreter.

    ``wheelhouse``: a folder that stands for every index; nothing is asked of a network then. Raises
    :class:`MachineryError` with uv's own words and the command to try.
    """
    if wheelhouse is None:
        need_network(f"installing {', '.join(wheels)}")
        source = index_options()
    else:
        source = ["--offline", "--no-index", f"--find-links={wheelhouse}"]
    command = ["pip", "install", f"--python={python}", "--only-binary=:all:", *source, *wheels]
    done = _uv(command)
    if done.returncode:
        said = f"uv could not install {', '.join(wheels)}: {' '.join(done.stderr.split())[-500:]}"
        by_hand = shlex.join([*UV, *command])
        raise MachineryError(without_passwords(f"{said}\n  try it by hand: {by_hand}"))


def index_options() -> list[str]:
    """Return uv's options for the indexes that pip is set to by its files and variables, which uv ignores.

    Source: https://pip.pypa.io/en/stable/cli/pip_config/.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^(\S+)\.([a-z-]+)='(.*)'$", said, re.MULTILINE)
    found.sort(key=lambda line: line[0] == ":env:")  # pip lists by name, and its variables count before files
    settings = {name: text for _, name, text in found}
    options = [
        f"{option}={value}"
        for name, option in INDEXES.items()
        for value in settings.get(name, "").replace("\\n", " ").split()
    ]
    if "extra-index-url" in settings:
        options.append("--index-strategy=unsafe-best-match")  # the best of all of them, as pip takes it
    return options


def without_passwords(text: str) -> str:
    """Return a text whose addresses name nobody: an index's may hold a user's name and password."""
    return re.sub(r"(\w://)[^/\s'\"]*@", r"\1***@", text)


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
    command = ["pip", "compile", "--no-header", "--offline", "--no-index", "--only-binary=:all:"]
    command += [f"--find-links={wheelhouse}", f"--python={sys.executable}", "-"]
    done = _uv(command, said="\n".join(wheels))
    if done.returncode == 0:
        return ""
    said = " ".join(done.stderr.split())
    why = re.search(r"Because (.+?),? we can conclude", said)
    return f"{', '.join(wheels)}: not installed, and not in {wheelhouse}: {why[1] if why else said[-200:]}"


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
        elif match is None or match["wheel"] not in wheels or match["wheel"] in locked:
            write = "write NAME==VERSION --hash=sha256:… once for wheels of matrix.yaml"
            problems.append(f"{file}:{number}: {write} (found {line[:80]!r})")
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
    options = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    return [*options, *(f"--platform={tag}_x86_64" for tag in tags)]


def download_wheels(
    what: Sequence[str], target: Sequence[str], folder: Path, *, wheels: Path | None = None, index: str = ""
) -> None:
    """Have pip download ``what`` into a folder: from the folder ``wheels``, else an index, else its own.

    ``target``: see :func:`target_options`. :class:`MachineryError` says why it did not.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", *target, f"--dest={folder}", *what]
    environment = dict(os.environ)
    if wheels or index:
        # This folder or index and no other: PyPI has packages without libraries under the same names.
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
            environment.pop(name, None)
        environment["PIP_CONFIG_FILE"] = os.devnull
        command += ["--no-index", f"--find-links={wheels}"] if wheels else [f"--index-url={index}"]
    code, said = run_to_end(command, environment)
    if code == 0:
        return
    source = wheels or index or "the index that pip is set to"
    if "DO NOT MATCH THE HASHES" in said:
        raise MachineryError(
            f"{source} gives other bytes than the lock allows; nothing is built\n{said.strip()[-1500:]}\n"
            "  find out which is right before changing the lock: the wheels of a release do not change"
        )
    raise MachineryError(
        f"pip could not download from {source}: {without_passwords(said.strip())[-1500:]}\n"
        "  check network and proxy (HTTPS_PROXY, NO_PROXY), or take the wheels from a folder;\n"
        "  wheels alone are taken: where a package is an sdist, name in matrix.yaml what it installs"
    )


class InterpreterLauncher:
    """Runs the probe as a process in a session of its own; ``wheelhouse`` stands for every index."""

    def __init__(
        self, cache: Path, repros: Path, note: Callable[[str], None], wheelhouse: Path | None = None
    ) -> None:
        self.cache, self.repros, self.note, self.wheelhouse = cache, repros, note, wheelhouse

    def make_ready(self, launch: Launch) -> Ready:
        """Make the environment of wheels, or take the interpreter that the plan names."""
        name, origin = launch.version.name, launch.version.origin
        if launch.python is None and isinstance(origin, WheelsOrigin):
            python = make_environment(
                environment_folder(self.cache, name, origin.wheels), origin.wheels,
                lambda text: self.note(f"{name}: {text}"), wheelhouse=self.wheelhouse,
            )  # fmt: skip
            digest = environment_digest(origin.wheels)
        else:
            python = Path(launch.python or sys.executable)
            code, said = run_to_end([str(python), "-VV"], os.environ)
            if code:
                raise MachineryError(f"{python} does not run: {said.strip()[-300:]}")
            digest = sha256(f"{python} {said.strip()}".encode()).hexdigest()
        runtime = "host" if launch.python else launch.version.runtime
        return Ready(launch=launch, digests={"image": digest, "runtime": runtime}, handle=python)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the supervisor; its whole session is killed however this ends."""
        command = [
            str(ready.handle), str(probe_folder()), "supervise", f"--job={folder / 'job'}",
            f"--cases={self.cache / 'cases'}", f"--repros={self.repros}", f"--out={folder / 'work'}",
        ]  # fmt: skip
        own = {"ORT_DISABLE_TELEMETRY": "1", "PYTHONPYCACHEPREFIX": str(self.cache / "pycache")}
        environment = {**os.environ, **own, **gpu_variables(ready.launch.gpu)}
        return run_session(command, environment, folder, poll)


def find_tensorrt(pythons: Sequence[str]) -> dict[str, str]:
    """Return the TensorRT version of each interpreter that can import it: version → interpreter."""
    found: dict[str, str] = {}
    for python in pythons:
        command = [python, "-c", "import tensorrt; print(tensorrt.__version__)"]
        code, said = run_to_end(command, os.environ, seconds=60)
        if code == 0 and said.strip():
            found[said.split()[-1]] = python
    return found
