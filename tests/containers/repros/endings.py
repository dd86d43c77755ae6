"""Every way in which a cell can end, each followed by a cell that must find nothing left of it."""

from __future__ import annotations

import ctypes
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
    "title": "how a cell ends",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "Cells that end in every way there is.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}

WAYS = (
    "is-wrong", "faults", "raises-odd-text", "hangs", "leaves-a-daemon", "eats-memory",
    "eats-memory-in-a-child", "prints-much", "fills-its-output", "fills-the-scratch",
    "fills-the-scratch-and-passes", "forks", "spoils-its-record", "kills-its-supervisor",
    "ends-its-supervisor",
)  # fmt: skip
SECONDS = {"hangs": 3}


def cases() -> Iterator[Dict[str, Any]]:
    passing = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime", "tensorrt-rtx"]}
    yield {"id": "passes", "params": {"does": "passes"}, **passing}
    for way in WAYS:
        yield {
            "id": way, "params": {"does": way}, "limits": {"max_abs": 0.0}, "products": ["onnxruntime"],
            "seconds": SECONDS.get(way, 60), "control": "negative" if way == "is-wrong" else None,
        }  # fmt: skip
        yield {
            "id": "after-" + way, "params": {"does": "looks-around", "after": way},
            "limits": {"max_abs": 0.0, "processes": 3, "scratch_bytes": 65536},
            "products": ["onnxruntime"],
        }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs = trt.build(files.model).run(files.inputs)
    return globals()[params["does"].replace("-", "_")](outputs, trt) or outputs


def passes(outputs: Any, trt: Any) -> None:
    pass


def looks_around(outputs: Any, trt: Any) -> None:
    """Count the processes (init, supervisor, this one) and what lies in the scratch folder."""
    trt.measure("processes", sum(entry.name.isdigit() for entry in Path("/proc").iterdir()))
    scratch = (path for path in Path(tempfile.gettempdir()).rglob("*") if path.is_file())
    trt.measure("scratch_bytes", sum(path.stat().st_size for path in scratch))


def is_wrong(outputs: Any, trt: Any) -> Any:
    return {"y": outputs["y"] + 1}


def faults(outputs: Any, trt: Any) -> None:
    print("before the fault", flush=True)
    ctypes.string_at(0)


def raises_odd_text(outputs: Any, trt: Any) -> None:
    raise ValueError("no UTF-8: \udcff \x00 \x1b[31m")


def hangs(outputs: Any, trt: Any) -> None:
    """Hang, deaf to SIGTERM, with a child in a session of its own that has one in another."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    inner = [sys.executable, "-c", "import time; time.sleep(600)"]
    code = f"import subprocess, time; subprocess.Popen({inner}, start_new_session=True); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    time.sleep(600)


def leaves_a_daemon(outputs: Any, trt: Any) -> None:
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code], check=True)


def eats_memory(outputs: Any, trt: Any) -> None:
    held = []
    while True:
        held.append(b"x" * (1 << 24))


def eats_memory_in_a_child(outputs: Any, trt: Any) -> None:
    code = "held = []\nwhile True: held.append(b'x' * (1 << 24))"
    trt.measure("child_code", subprocess.run([sys.executable, "-c", code], check=False).returncode)


def prints_much(outputs: Any, trt: Any) -> None:
    line = b"x" * ((1 << 20) - 1) + b"\n"
    for _ in range(256):
        os.write(1, line)
    os.write(2, b"this is the end\n")


def fills_its_output(outputs: Any, trt: Any) -> None:
    with Path("big").open("wb") as stream:
        while True:
            stream.write(bytes(1 << 22))
            time.sleep(0.01)


def fills_the_scratch(outputs: Any, trt: Any) -> None:
    with tempfile.NamedTemporaryFile(delete=False) as stream:
        while True:
            stream.write(bytes(1 << 22))


def fills_the_scratch_and_passes(outputs: Any, trt: Any) -> None:
    Path(tempfile.gettempdir(), "kept").mkdir()
    for folder in (tempfile.gettempdir() + "/kept", os.environ["HOME"]):
        Path(folder, "left").write_bytes(bytes(300 << 20))


def forks(outputs: Any, trt: Any) -> None:
    """Start processes until no more are allowed, and leave them."""
    count = 0
    try:
        while count < 5000:
            os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
            count += 1
    except BlockingIOError:
        trt.measure("refused", 1)
    trt.measure("forked", count)


def spoils_its_record(outputs: Any, trt: Any) -> None:
    trt.scalars["verdict"] = "quite good"


def kills_its_supervisor(outputs: Any, trt: Any) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def ends_its_supervisor(outputs: Any, trt: Any) -> None:
    os.kill(1, signal.SIGTERM)
    time.sleep(600)
