"""Launchers without containers: an environment of wheels that we make, an interpreter of the host."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import probe_folder
from trtmatrix.launchers.environments import has_environment, have_environment
from trtmatrix.launchers.launcher import POLL_SECONDS, Ended, Heartbeat, Poll, Ready
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.plan import Launch


class InterpreterLauncher:
    """Runs the probe as a process in a session of its own."""

    def __init__(
        self, cache: Path, repros: Path, note: Callable[[str], None], wheelhouse: Path | None = None
    ) -> None:
        """Keep the folders; ``note`` is told of long work; ``wheelhouse`` stands for every index."""
        self.cache, self.repros, self.note, self.wheelhouse = cache, repros, note, wheelhouse

    def make_ready(self, launch: Launch) -> Ready:
        """Make the environment of wheels, or take the interpreter that the plan names."""
        origin = launch.version.origin
        if launch.python is None and isinstance(origin, WheelsOrigin):
            folder = self._environment(launch.version.name, origin.wheels)
            python, digest = folder / "bin" / "python", folder.name.rsplit("-", 1)[-1]
        else:
            python = Path(launch.python or sys.executable)
            digest = sha256(f"{python} {_python_version(python)}".encode()).hexdigest()
        runtime = "host" if launch.python else launch.version.runtime
        return Ready(launch=launch, digests={"image": digest, "runtime": runtime}, handle=python)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        """Run the supervisor; its whole session is killed however this ends."""
        command = [
            str(ready.handle), str(probe_folder()), "supervise", f"--job={folder / 'job'}",
            f"--cases={self.cache / 'cases'}", f"--repros={self.repros}", f"--out={folder / 'out'}",
        ]  # fmt: skip
        environment = {
            **os.environ, "ORT_DISABLE_TELEMETRY": "1",
            "PYTHONPYCACHEPREFIX": str(self.cache / "pycache"), **_only(ready.launch.gpu),
        }  # fmt: skip
        log = folder / "supervisor.log"
        return Ended(code=run_session(command, environment, log, folder, poll), log=tail(log))

    def _environment(self, name: str, wheels: tuple[str, ...]) -> Path:
        """Return an environment with exactly these wheels, made now if it is not there."""
        import venv

        def create(folder: Path) -> None:
            venv.create(folder, with_pip=False, symlinks=True)

        folder = environment_folder(self.cache, name, wheels)
        have_environment(folder, wheels, create, lambda text: self.note(f"{name}: {text}"), self.wheelhouse)
        return folder


def _only(gpu: Gpu) -> dict[str, str]:
    """Return the variables by which a process sees this GPU and no other."""
    if gpu.index is None:
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.uuid or str(gpu.index)}


def environment_digest(wheels: tuple[str, ...]) -> str:
    """Return what identifies an environment: its requirements and this Python's version."""
    return sha256(f"{sys.version_info[:3]} {sorted(wheels)}".encode()).hexdigest()[:16]


def environment_folder(cache: Path, name: str, wheels: tuple[str, ...]) -> Path:
    """Return where the environment of a version lies, made or not."""
    return cache / "envs" / f"{name}-{environment_digest(wheels)}"


def is_installed(cache: Path, name: str, wheels: tuple[str, ...]) -> bool:
    """Whether the environment of a version is there, whole."""
    return has_environment(environment_folder(cache, name, wheels))


def _python_version(python: Path) -> str:
    try:
        done = subprocess.run([str(python), "-VV"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise MachineryError(f"{python} does not run: {error.strerror}") from error
    if done.returncode:
        raise MachineryError(f"{python} does not run: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def find_tensorrt(pythons: list[str]) -> dict[str, str]:
    """Return the TensorRT version of each interpreter that can import it: version → interpreter."""
    found: dict[str, str] = {}
    code = "import tensorrt; print(tensorrt.__version__)"
    for python in pythons:
        try:
            done = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            found[done.stdout.split()[-1]] = python
    return found


def run_session(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path, poll: Poll,
    largest: int | None = None,
) -> int:  # fmt: skip
    """Run a command over a job's ``folder`` in a session of its own, all of which is killed at the end.

    What it says goes to ``log``; ``largest``: bytes of a file that it may write. Returns what ``Popen`` does.
    """
    with log.open("wb") as stream, Heartbeat(folder / "job" / "heartbeat"):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            if largest is not None:
                _limit_files(process.pid, largest)
            while process.poll() is None:
                poll()
                time.sleep(POLL_SECONDS)
        finally:
            _end(process)
    poll()
    return process.returncode


def tail(log: Path) -> str:
    """Return the end of a log, at most 4000 letters."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 16000))
        return stream.read().decode("utf-8", "replace")[-4000:]


def _limit_files(pid: int, most: int) -> None:
    """Limit the size of a file that a process and its children write, where the limit is not lower."""
    with contextlib.suppress(ProcessLookupError):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (least, least))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the supervisor to end its cell, then kill whatever is left of its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
