"""Polygraphy's reducer of nodes, with our own check: it asks over a socket, and is answered by who called.

It cuts a graph by halving or node by node, and calls a command for each graph, whose exit code says whether
it still fails. Source: https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy/polygraphy/tools/debug.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.subject import Subject, Values

NEEDED = ("polygraphy", "onnx_graphsurgeon")
GRAPH = "polygraphy_debug.onnx"
"""Where Polygraphy writes the graph that is to be checked, in its working folder."""

FAILS, WELL = b"1", b"0"
POLL_SECONDS = 0.1
MAIN = "import sys; from polygraphy.tools import main; sys.exit(main())"
FAIL_CODE = 3
"""Python's own exit code 1, of an asker that broke, is no failure of a graph."""

ASK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    f"sys.exit({FAIL_CODE} if s.recv(1) == {FAILS!r} else 0)"
)
LOADER = """\
import glob

import numpy as np


def load_data():
    for file in sorted(glob.glob("sample-*.npz")):
        with np.load(file) as arrays:
            yield dict(arrays)
"""


def why_not(subject: Subject) -> str:
    """Return why Polygraphy cannot reduce a model here; nothing where it can."""
    from trtmatrix.onnxmodel.simpler import is_dynamic

    lacking = [name.replace("_", "-") for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} not installed here: pip install {' '.join(lacking)}"
    if subject.files:
        return "the model is too large to be copied for each of its steps"
    if is_dynamic(subject):
        return "the model needs its dynamic shapes to fail, which its reducer would fix"
    return ""


def reduce_nodes(
    subject: Subject, mode: str, check: Callable[[Subject], bool], goes_on: Callable[[], bool], scratch: Path
) -> str:
    """Reduce a model's nodes; returns why it ended before its end, if it did.

    ``mode``: bisect or linear. ``check`` is called for each graph with what it is fed with, and says whether
    it fails; it keeps what it likes. ``goes_on``: False ends it. An interrupt goes through; nothing is left.
    """
    import numpy as np

    from trtmatrix.onnxmodel.subject import Values, write_model

    with tempfile.TemporaryDirectory(prefix="trtmatrix-", dir=None) as name:
        folder = Path(name)  # in the system's own: the path of a socket is 107 bytes at most
        write_model(subject, folder / "model.onnx")
        for number, sample in enumerate(subject.samples):
            np.savez(folder / f"sample-{number:04}.npz", **dict(sample))  # type: ignore[arg-type] # arrays alone
        (folder / "load.py").write_text(LOADER, encoding="utf-8")
        values = Values(subject, scratch)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "ask"))
            listener.listen()
            listener.settimeout(POLL_SECONDS)
            return _converse(
                _command(mode), folder, listener, lambda: _answer(folder, subject, values, check), goes_on
            )


def _command(mode: str) -> list[str]:
    asked = [sys.executable, "-c", ASK, "ask"]
    options = [
        "--mode",
        mode,
        "--data-loader-script",
        "load.py",
        "-o",
        "reduced.onnx",
        "--fail-code",
        str(FAIL_CODE),
    ]
    return [sys.executable, "-c", MAIN, "debug", "reduce", "model.onnx", *options, "--check", *asked]


def _converse(
    command: Sequence[str], folder: Path, listener: socket.socket, answer: Callable[[], bytes],
    goes_on: Callable[[], bool],
) -> str:  # fmt: skip
    """Run Polygraphy and answer what it asks, until it ends."""
    with (folder / "log").open("w+b") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while process.poll() is None:
                if not goes_on():
                    return "the budget is spent"
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(answer())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not process.returncode:
            return ""
        log.seek(0)
        lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return f"exit code {process.returncode}: {lines[-1].strip()[:200] if lines else 'no word'}"


def _answer(folder: Path, subject: Subject, values: Values, check: Callable[[Subject], bool]) -> bytes:
    """Return whether the graph that Polygraphy has written fails."""
    from trtmatrix.onnxmodel.sessions import NotComputedError
    from trtmatrix.onnxmodel.subject import CannotShrinkError

    try:
        candidate = _read(folder / GRAPH, subject, values)
    except (NotComputedError, CannotShrinkError, ValueError, KeyError):
        return WELL
    return FAILS if check(candidate) else WELL


def _read(file: Path, subject: Subject, values: Values) -> Subject:
    """Return Polygraphy's graph with what the whole model has at its inputs."""
    from dataclasses import replace

    import onnx

    model = onnx.load(str(file))
    entering = replace(subject, model=model).inputs
    samples = tuple({name: known[name] for name in entering} for known in values.of(entering))
    return replace(subject, model=model, samples=samples, profile={}).with_model(model)
