"""NVIDIA's Multi-Process Service in a job's own container: its processes need not take turns on the GPU.

Without it the driver gives the GPU to one process at a time, and those that wait spin. Its two programs come
with the driver, as libcuda does: https://docs.nvidia.com/deploy/mps/. Daemon, server and clients are all
processes of this container, which gets nothing more for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL

CONTROL = "nvidia-cuda-mps-control"
DRIVER = "/usr/local/nvidia/bin"
"""Where its programs lie if a folder with the driver is mounted, and the image's PATH may not say so."""
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SECONDS = 20.0
"""What the daemon may take to answer, and the server to start."""
NONE = "/nonexistent"
"""A process that finds no daemon in the folder of pipes goes on without."""


class Mps:
    """The service: what is started while it ``runs`` uses it; ``why``: what keeps it from running."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self.runs, self.why = False, ""

    def start(self) -> bool:
        """Start the daemon and a server; False, with ``why``, where one of them does not run here."""
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), DRIVER))
        if shutil.which(CONTROL, path=path) is None:
            self.why = "the driver's %s is not in the container" % CONTROL
            return False
        folder = tempfile.mkdtemp(prefix="mps-")
        os.environ.update({PIPES: folder, LOGS: folder, "PATH": path})
        self.runs = True
        try:
            # The daemon keeps what it is given: a pipe would stay open.
            subprocess.run(
                [CONTROL, "-d"], check=True, timeout=SECONDS, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
            )
            self._say("start_server -uid %d" % os.getuid())
            late = time.monotonic() + SECONDS
            while not self._has_server() and time.monotonic() < late:
                time.sleep(0.1)
            if not self._has_server():
                self.end("no server after %g s; %s" % (SECONDS, self._last_words()))
        except (OSError, subprocess.SubprocessError) as error:
            self.end("%s; %s" % (error, self._last_words()))
        return self.runs

    def end(self, why: str = "") -> None:
        """End the service: who uses it loses the GPU, and what is started from now on does without it."""
        if self.runs:
            self.runs, self.why = False, why.strip("; ")
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                self._say("quit -t 1")
        os.environ[PIPES] = NONE

    def _has_server(self) -> bool:
        servers = self._say("get_server_list").split()
        return any(
            self._say("get_server_status %s" % pid).strip() == "ACTIVE" for pid in servers if pid.isdigit()
        )

    def _say(self, words: str) -> str:
        """Give the daemon a command; returns its answer."""
        done = subprocess.run(
            [CONTROL], input=words + "\n", check=True, timeout=SECONDS, capture_output=True, text=True
        )
        return done.stdout

    def _last_words(self) -> str:
        """Return the last lines of its logs."""
        texts = []
        for name in ("control.log", "server.log"):
            with contextlib.suppress(OSError):
                texts += Path(os.environ[LOGS], name).read_text(errors="replace").splitlines()[-3:]
        return " ".join(texts)
