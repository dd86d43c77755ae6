"""Cells that harm their process on purpose, each followed by a right and a wrong one in what is left."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "what a cell does to its process",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "Cells that harm the process that they run in.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}

HARMS = (
    "results-become-zeros", "results-become-right", "a-session-remembers", "the-probe-measures-nothing",
    "numpy-is-rebound", "numpy-raises", "rounding", "environment", "folder", "a-thread", "a-child",
    "an-alarm", "no-output", "memory-limit", "raises", "faults", "kills-itself", "exits",
)  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    same = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime"], "seconds": 60}
    for harm in HARMS:
        yield {"id": harm, "params": {"does": harm}, **same}
        yield {"id": "right-after-" + harm, "params": {"does": "right", "after": harm}, **same}
        yield {
            "id": "wrong-after-" + harm, "params": {"does": "wrong", "after": harm}, "control": "negative",
            **same,
        }  # fmt: skip
    yield {"id": "dangerous", "params": {"does": "right", "after": "nothing"}, "dangerous": True, **same}
    yield {"id": "right-after-dangerous", "params": {"does": "right", "after": "dangerous"}, **same}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return a graph that adds 1, or where it is wrong 2, to inputs that are another case's nowhere else."""
    from trtmatrix.authoring.graph import Graph

    start = HARMS.index(params["after"]) if params.get("after") in HARMS else len(HARMS)
    x = np.arange(start, start + 8, dtype=np.float32) / 3
    graph, added = Graph(), 2 if params["does"] == "wrong" else 1
    graph.input("x", np.float32, x.shape)
    graph.node("Add", "x", graph.constant(np.full(1, added, np.float32)), out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": (x + np.float32(1)).astype(float)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Dict[str, Any]:
    outputs: Dict[str, Any] = trt.build(files.model).run(files.inputs)
    if params["does"] not in {"right", "wrong"}:
        harm(params["does"])
    return outputs


def harm(what: str) -> None:
    """Leave the process other than it was; what ends it comes last."""
    import onnxruntime

    session = onnxruntime.InferenceSession
    whole = session.run
    if what == "results-become-zeros":
        session.run = lambda *args, **more: [0 * array for array in whole(*args, **more)]
    elif what == "results-become-right":
        session.run = lambda *args: [args[2]["x"] + np.float32(1)]
    elif what == "a-session-remembers":
        kept: Dict[str, Any] = {}
        session.run = lambda *args, **more: kept.setdefault("outputs", whole(*args, **more))
    elif what == "the-probe-measures-nothing":
        vars(sys.modules["trtprobe.answer"])["measure_all"] = lambda *_: {"outputs": {}, "signatures": {}}
    elif what == "numpy-is-rebound":
        vars(np)["ascontiguousarray"] = np.zeros_like
    elif what == "numpy-raises":
        np.seterr(all="raise")
    elif what == "rounding":
        ctypes.CDLL("libm.so.6").fesetround(0x800)
    elif what == "environment":
        os.environ.update(OMP_NUM_THREADS="0", NVIDIA_TF32_OVERRIDE="1", LD_LIBRARY_PATH="/nowhere")
    elif what == "folder":
        os.chdir("/")
    elif what == "a-thread":
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    elif what == "a-child":
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
    elif what == "an-alarm":
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    else:
        break_off(what)


def break_off(what: str) -> None:
    """Do what no cell comes back from, or what hampers the next."""
    if what == "no-output":
        os.closerange(0, 3)
    elif what == "memory-limit":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    elif what == "raises":
        raise RuntimeError("on purpose")
    elif what == "faults":
        ctypes.string_at(8)
    elif what == "kills-itself":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "exits":
        os._exit(0)
