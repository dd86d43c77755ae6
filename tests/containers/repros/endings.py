"""Ways in which a cell can end in a container, each followed by a cell that must find nothing left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "how a cell ends", "upstream": "example/example#1", "url": "https://example.com/1",
    "summary": "Cells that end in the ways that a container has part in.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip

WAYS = (
    "is-wrong", "eats-memory", "eats-memory-in-a-child", "fills-its-output", "fills-the-scratch",
    "fills-the-scratch-and-passes", "forks", "spoils-its-record", "kills-its-supervisor",
    "ends-its-supervisor",
)  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    passing = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime", "tensorrt-rtx"]}
    yield {"id": "passes", "params": {"does": "passes"}, **passing}
    for way in WAYS:
        yield {
            "id": way, "params": {"does": way}, "limits": {"max_abs": 0.0}, "products": ["onnxruntime"],
            "seconds": 60, "control": "negative" if way == "is-wrong" else None,
        }  # fmt: skip
        yield {
            "id": "after-" + way, "params": {"does": "looks-around", "after": way},
            "limits": {"max_abs": 0.0, "processes": 3, "scratch_bytes": 65536},
            "products": ["onnxruntime"],
        }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph({"x": x})
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs = trt.build(files.model).run(files.inputs)
    if params["does"] == "is-wrong":
        return {"y": outputs["y"] + 1}
    if params["does"] != "passes":
        globals()[params["does"].replace("-", "_")](trt)
    return outputs


def looks_around(trt: Any) -> None:
    """Count the processes (init, supervisor, this one) and what lies in the scratch folder."""
    trt.measure("processes", sum(entry.name.isdigit() for entry in Path("/proc").iterdir()))
    scratch = (path for path in Path(tempfile.gettempdir()).rglob("*") if path.is_file())
    trt.measure("scratch_bytes", sum(path.stat().st_size for path in scratch))


def eats_memory(trt: Any) -> None:
    held = []
    while True:
        held.append(b"x" * (1 << 24))


def eats_memory_in_a_child(trt: Any) -> None:
    code = "held = []\nwhile True: held.append(b'x' * (1 << 24))"
    trt.measure("child_code", subprocess.run([sys.executable, "-c", code], check=False).returncode)


def fills_its_output(trt: Any) -> None:
    with Path("big").open("wb") as stream:
        while True:
            stream.write(bytes(1 << 22))
            time.sleep(0.01)


def fills_the_scratch(trt: Any) -> None:
    with tempfile.NamedTemporaryFile(delete=False) as stream:
        while True:
            stream.write(bytes(1 << 22))


def fills_the_scratch_and_passes(trt: Any) -> None:
    Path(tempfile.gettempdir(), "kept").mkdir()
    for folder in (tempfile.gettempdir() + "/kept", os.environ["HOME"]):
        Path(folder, "left").write_bytes(bytes(300 << 20))


def forks(trt: Any) -> None:
    """Start processes until no more are allowed, and leave them."""
    count = 0
    try:
        while count < 5000:
            os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
            count += 1
    except BlockingIOError:
        trt.measure("refused", 1)
    trt.measure("forked", count)


def spoils_its_record(trt: Any) -> None:
    trt.scalars["verdict"] = "quite good"


def kills_its_supervisor(trt: Any) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def ends_its_supervisor(trt: Any) -> None:
    os.kill(1, signal.SIGTERM)
    time.sleep(600)
