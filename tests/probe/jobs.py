"""Jobs as the host writes them, the supervisor as a process over them, and what both are given by tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bench.surfaces import compile_library, need_compiler
from onnx import helper
from onnxmodels import FLOAT, make_model, node, saved_outside
from projects import strict_json

from tests.waiting import wait_until
from trtmatrix.common.errors import MachineryError
from trtmatrix.run.worker import Intake
from trtprobe.files import write_json

HERE = Path(__file__).resolve().parent


def find_compiler() -> str | None:
    try:
        return need_compiler()
    except MachineryError:
        return None


def make_driver(folder: Path) -> Path:
    return compile_library(folder / "libcuda.so.1", (HERE / "standins" / "libcuda.c").read_text())


Text = Mapping[str, Any] | None  # what the stand-in reads


def relu_then(
    operator: str = "Relu", *, opset: int = 17, domain: str = "", standin: Text = None,
    shape: Sequence[int | str] = (2, 3),
) -> onnx.ModelProto:  # fmt: skip
    """Return a graph of two nodes, /net/first and /net/second, the second being of some operator."""
    nodes = [
        node("Relu", "x", "h", name="/net/first"),
        node(operator, "h", "y", name="/net/second", domain=domain),
    ]
    ends = {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}
    return _told(make_model(nodes, *ends, opset=opset, domains=[domain] if domain else []), standin)


def add_weights(folder: Path, *, standin: Text = None, seed: int = 0) -> Path:
    """Write ``model.onnx``, x + w, and its ``weights.bin`` beside it."""
    weights = {"w": np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)}
    ends = {"x": (FLOAT, (2, 3))}, {"y": (FLOAT, (2, 3))}
    model = make_model([node("Add", "x w", "y", name="/add")], *ends, weights)
    return saved_outside(_told(model, standin), folder / "model.onnx")


def _told(model: onnx.ModelProto, standin: Text) -> onnx.ModelProto:
    if standin is not None:  # metadata are a file's last field
        helper.set_model_props(model, {"standin": "\n" + json.dumps(standin)})
    return model


PROBE = HERE.parents[1] / "src" / "trtprobe"
STANDINS, REPROS = HERE / "standins", HERE / "repros"
GRAPH = {"inputs": {"x": ["float32", [2, 3]]}, "outputs": {"y": ["float32", [2, 3]]}}
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
OUTPUT_BYTES = 1 << 26


def write_case(
    folder: Path, params: Mapping[str, Any], graph: object = GRAPH, defects: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Write a case's folder for the stand-in: a JSON graph, an input, its ReLU as reference, defects of y.

    With ``inputs`` of its own a case has no reference. A graph may be a file's bytes, too.
    """
    arrays: dict[str, Any] = {"inputs/x": X, "reference/y": np.maximum(X, 0).astype(np.float16)}
    if inputs is not None:
        arrays = {f"inputs/{name}": array for name, array in inputs.items()}
    arrays |= {f"defects/{name}/y": np.asarray(d, np.float32) for name, d in (defects or {}).items()}
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(graph if isinstance(graph, bytes) else json.dumps(graph).encode())
    (folder / "case.json").write_text(json.dumps({"params": params}))
    return folder


@dataclass(frozen=True, kw_only=True)
class Step:
    """A cell to be: what its repro does, and what it is given."""

    does: str
    seconds: float = 30
    params: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[str] = ()
    graph: object = field(default_factory=lambda: GRAPH)
    defects: Mapping[str, object] = field(default_factory=dict)
    builds: int = 1
    processes: int = 1
    alone: bool = False
    inputs: Mapping[str, object] | None = None
    dangerous: bool = False
    repro: str = "behaviour"


class Probe(subprocess.Popen[bytes]):
    """The supervisor's process, and the host's thread that takes what it hands over."""

    def __init__(self, command: list[str], intake: Intake, **options: Any) -> None:
        self.over = threading.Event()
        self.host = threading.Thread(target=self._take, args=(intake,), daemon=True)
        super().__init__(command, **options)
        self.host.start()

    def _take(self, intake: Intake) -> None:
        while not self.over.wait(0.002):
            intake.take()
        intake.take()
        intake.close()

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self.over.set()
        self.host.join()
        return code


class Job:
    """A job's folder, and the supervisor that runs it; its cells may have names."""

    def __init__(
        self, folder: Path, steps: Sequence[Step] | Mapping[str, Step], isolation: str = "worker", **more: Any
    ) -> None:
        self.folder, self.out, self.work = folder, folder / "out", folder / "work"
        named = steps if isinstance(steps, Mapping) else dict(enumerate(steps))
        self.cells: list[Any] = list(named)
        self.steps = list(named.values())
        self.heartbeat = folder / "job" / "heartbeat"
        for part in ("job", "out", "work", "cases"):
            (folder / part).mkdir()
        self.heartbeat.touch()
        job = {"product": "tensorrt", "output_bytes": OUTPUT_BYTES, "isolation": isolation, **more}
        (folder / "job" / "job.json").write_text(json.dumps(job))
        for index, step in enumerate(self.steps):
            self.add(index, step)
        self.end()

    def add(self, index: int, step: Step) -> None:
        write_json(self.folder / "job" / f"{index}.cell.json", self._cell(index, step))

    def end(self) -> None:
        (self.folder / "job" / "end").touch()

    def _cell(self, index: int, step: Step) -> dict[str, Any]:
        params = {"does": step.does, "marks": str(self.folder), **step.params}
        write_case(self.folder / "cases" / str(index), params, step.graph, step.defects, step.inputs)
        cell = {"repro": step.repro, "case": step.does, "version": "10.7.0", "gpu": "none"}
        return {
            "cell": cell, "run": "20250101t000000-00000000", "repro_file": "behaviour.py",
            "params": params, "seconds": step.seconds, "files": str(index), "needs": list(step.needs),
            "builds": step.builds, "processes": step.processes, "alone": step.alone,
            "dangerous": step.dangerous,
        }  # fmt: skip

    def start(self, python: Path, driver: Path, **environment: str) -> Probe:
        command = [str(python), str(PROBE), "supervise", f"--job={self.folder / 'job'}"]
        command += [f"--cases={self.folder / 'cases'}", f"--repros={REPROS}", f"--out={self.work}"]
        with (self.folder / "log").open("wb") as log:
            return Probe(
                command, Intake(self.folder, OUTPUT_BYTES), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, cwd=self.folder,
                env={**os.environ, **stand_in(driver), "HOME": str(self.folder / "home"), **environment},
            )  # fmt: skip

    def run(self, python: Path, driver: Path, **environment: str) -> int:
        process = self.start(python, driver, **environment)
        try:
            while process.poll() is None:
                self.heartbeat.touch()
                time.sleep(0.05)
        finally:
            process.kill()
        return process.wait()

    def record(self, cell: int | str = 0) -> dict[str, Any]:
        """Return the record of a cell, by its name or number; a bare NaN or Infinity in it is an error."""
        data: dict[str, Any] = strict_json(self.kept(cell).with_suffix(".record.json").read_text())
        return data

    def kept(self, cell: int | str) -> Path:
        """Return where a cell's outputs are, if it has any."""
        return self.out / str(self.cells.index(cell) if isinstance(cell, str) else cell)

    def ends(self) -> dict[Any, tuple[str, str]]:
        """Return how each cell ended, in a word and in detail."""
        records = {cell: self.record(cell) for cell in self.cells}
        return {cell: (record["ended"], record["detail"]) for cell, record in records.items()}

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def wait_for(self, name: str, seconds: float = 20) -> str:
        path = self.folder / name
        wait_until(lambda: path.exists() and path.read_text(), seconds, name, self.log)
        return path.read_text()


def stand_in(driver: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(STANDINS), "LD_LIBRARY_PATH": str(driver), "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "",
    }  # fmt: skip


def gone(pids: Sequence[int], seconds: float = 5) -> bool:
    """Whether all these processes end (or are zombies) within some seconds; fails where they do not."""
    wait_until(lambda: not any(map(_alive, pids)), seconds, f"the end of {pids}")
    return True


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


MAIN = Path(sys.executable)  # the interpreter that runs the tests, for what is the same under each
