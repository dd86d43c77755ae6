"""Polygraphy's own tools: its reducer of nodes, asked by a socket whether a graph fails; its folding.

``polygraphy debug reduce`` cuts a graph by halving or node by node and calls a command for each graph, whose
exit code says whether it still fails. That command is a few lines that ask this process.
Source: https://github.com/NVIDIA/TensorRT/tree/main/tools/Polygraphy/polygraphy/tools/debug.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from trtmatrix.bugs.trials import FailingModel, compute
from trtmatrix.common.errors import UsageError
from trtmatrix.onnxmodel.sessions import NotComputedError

NEEDED = {"polygraphy": "polygraphy", "onnx_graphsurgeon": "onnx-graphsurgeon"}
GRAPH = "polygraphy_debug.onnx"
"""Where Polygraphy writes the graph that is to be checked, in its working folder."""

FAILS, WELL = b"1", b"0"
FAIL_CODE = 3
"""Python's own exit code 1, of an asker that broke, is no failure of a graph."""

POLL_SECONDS = 0.1
POLYGRAPHY = [sys.executable, "-c", "import sys; from polygraphy.tools import main; sys.exit(main())"]
ASK = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    f"sys.exit({FAIL_CODE} if s.recv(1) == {FAILS!r} else 0)"
)
LOADER = """\
import numpy as np


def load_data():
    with np.load("sample.npz") as arrays:
        yield dict(arrays)
"""
"""What branches that are cut off are frozen to comes from the sample."""


def check_installed() -> None:
    """Raise :class:`UsageError` where Polygraphy, or what it edits graphs with, is not installed."""
    lacking = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} not installed: minimise reduces graphs by NVIDIA's Polygraphy\n"
            f"  pip install {' '.join(NEEDED.values())}, or run nox -s minimise, which installs them"
        )


def fold_to_static(failing: FailingModel) -> FailingModel:
    """Return the model for the shapes of its one sample alone, with what depends on shapes computed.

    :class:`NotComputedError` where Polygraphy cannot do it.
    """
    shapes = [f"{name}:[{','.join(map(str, array.shape))}]" for name, array in failing.samples[0].items()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(failing.model, str(folder / "model.onnx"))
        words = ["surgeon", "sanitize", "model.onnx", "-o", "folded.onnx", "--fold-constants"]
        done = subprocess.run(
            [*POLYGRAPHY, *words, "--override-input-shapes", *shapes], cwd=folder, capture_output=True,
            text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise NotComputedError(f"polygraphy surgeon sanitize: {_last_line(done.stdout + done.stderr)}")
        model = onnx.load(str(folder / "folded.onnx"))
    folded = failing.fed_with(model, failing.samples)
    return FailingModel(model=model, samples=folded.samples)


def reduce_nodes(
    failing: FailingModel, mode: str, fails: Callable[[FailingModel], bool], goes_on: Callable[[], bool]
) -> str:
    """Reduce the nodes of a model of one sample; returns why it ended before its end, if it did.

    ``mode``: bisect or linear. ``fails`` is asked of each graph, fed with what the whole model has there; it
    keeps what it likes. ``goes_on``: False ends it. An interrupt goes through; nothing is left running.
    """
    known = dict(failing.samples[0])

    def answer(folder: Path) -> bytes:
        try:
            model = onnx.load(str(folder / GRAPH))
            weights = {tensor.name for tensor in model.graph.initializer}
            if missing := {info.name for info in model.graph.input} - weights - set(known):
                whole = onnx.ModelProto()
                whole.CopyFrom(failing.model)
                del whole.graph.output[:]
                whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(missing))
                known.update(compute(whole, failing.samples[0]))
            candidate = failing.fed_with(model, [known])
        except (NotComputedError, ValueError, KeyError):
            return WELL
        return FAILS if candidate.inputs and fails(candidate) else WELL

    with tempfile.TemporaryDirectory(prefix="trtmatrix-") as name:
        folder = Path(name)  # in the system's own: the path of a socket is 107 bytes at most
        onnx.save(failing.model, str(folder / "model.onnx"))
        np.savez(folder / "sample.npz", **dict(failing.samples[0]))  # type: ignore[arg-type] # arrays alone
        (folder / "load.py").write_text(LOADER, encoding="utf-8")
        words = ["debug", "reduce", "model.onnx", "-o", "reduced.onnx", "--mode", mode]
        words += ["--data-loader-script", "load.py", "--fail-code", str(FAIL_CODE)]
        words += ["--check", sys.executable, "-S", "-c", ASK, "ask"]
        with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("w+b") as log:
            listener.bind(str(folder / "ask"))
            listener.listen()
            listener.settimeout(POLL_SECONDS)
            process = subprocess.Popen(
                [*POLYGRAPHY, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            try:
                while process.poll() is None:
                    if not goes_on():
                        return "the budget is spent"
                    with contextlib.suppress(TimeoutError):
                        connection, _ = listener.accept()
                        with connection:
                            connection.sendall(answer(folder))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.seek(0)
            said = _last_line(log.read().decode(errors="replace"))
            return f"exit code {process.returncode}: {said}" if process.returncode else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no word"
