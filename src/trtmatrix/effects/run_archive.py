"""Runs an unpacked archive as its reader would: ``sh reproduce.sh``, with nothing else of ours to be seen."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtmatrix.core.bundle.facts import RAN, RUN
from trtmatrix.effects.engine import open_client
from trtmatrix.effects.store import read_json

RESULT = "result.json"
PATIENCE_SECONDS = 20.0
"""How long the script may take to remove its container when it is ended."""

TAIL = 4000
"""Characters of what was said that are kept."""

KEPT_NAMES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "USER", "XDG_RUNTIME_DIR"})
"""Variables that the script and Docker's client need; what else is set here is not the reader's."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run of an archive ended. ``code``: the script's; ``said``: the end of what it printed.

    ``result``: what repro.py wrote, empty where it wrote nothing; ``image``: the id of the image
    that ran, as the script tells it; ``timed_out``: it was ended by us.
    """

    code: int
    said: str
    seconds: float
    image: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    timed_out: bool = False


def run_archive(folder: Path, out: Path, settings: Mapping[str, str], seconds: float) -> Ran:
    """Run ``reproduce.sh`` of a folder in a session of its own; it writes to ``out`` alone.

    ``settings``: variables that it reads (GPU_OPTIONS, PYTHON). However this ends, no process and no
    container is left behind.
    """
    kept = {n: v for n, v in os.environ.items() if n in KEPT_NAMES or n.startswith("DOCKER_")}
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["/bin/sh", str(folder / RUN), "--save-outputs"],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={**kept, **settings, "REPRODUCE_OUT": str(out)}, cwd=out, start_new_session=True,
        )  # fmt: skip
        timed_out = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    return Ran(
        code=process.returncode, said=text[-TAIL:], seconds=time.monotonic() - started,
        result=_written(out / RESULT), timed_out=timed_out, image=_image(out / RAN),
    )  # fmt: skip


def _written(file: Path) -> dict[str, Any]:
    """Return the result; one that was put there as a link leads into this host, and is none."""
    return {} if file.is_symlink() or not file.is_file() else read_json(file) or {}


def _image(file: Path) -> str:
    if file.is_symlink() or not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8", errors="replace").strip()
    found = re.fullmatch(r"(?:sha256:)?([0-9a-f]{64})", text)  # Podman prints the digits alone
    return f"sha256:{found[1]}" if found else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the script remove its container, then kill what is left of its session and the container itself."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
        _remove_containers(f"reproduce-{process.pid}-")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _remove_containers(start: str) -> None:
    """Remove the containers whose names start so: the script names its own after its process."""
    import docker.errors
    import requests.exceptions

    with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException):
        for container in open_client(60).containers.list(
            all=True, sparse=True, filters={"name": f"^/?{start}"}
        ):
            container.remove(force=True, v=True)
