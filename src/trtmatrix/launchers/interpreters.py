"""Launches without containers: an environment of wheels that we make, or an interpreter of the host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.paths import probe_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.launcher import Ended, Poll, Ready, gpu_variables, run_session
from trtmatrix.launchers.wheels import environment_digest, environment_folder, make_environment
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.plan import Launch


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
        with contextlib.suppress(OSError, subprocess.SubprocessError, LookupError):
            said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
            found[said.decode("utf-8", "replace").split()[-1]] = python
    return found
