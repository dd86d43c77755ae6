"""An engine on a stream of its own that waits for nothing: it reads too early, or is read too early.

Torch-TensorRT's C++ runtime once did both. Here TensorRT alone does it on purpose, behind a long
memset that makes the race certain, with each of the waits that cure it, and without the memset.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "engine and caller on streams that do not wait",
    "upstream": "pytorch/TensorRT#2991",
    "url": "https://github.com/pytorch/TensorRT/issues/2991",
    # See also pytorch/TensorRT#2881, pytorch/TensorRT#3067
    "summary": "A half ReLU called inside a fresh torch.cuda.Stream returns zeros now and then: the "
    "runtime ran the engine on a stream of its own with no wait on either side. No stable release "
    "has it; of the NGC images only 24.08 and 24.09. Here both missing waits are put in by hand. If "
    "trials are independent, 0 wrong of 30 says that fewer than 9.5% are (with 95% confidence), and a rate "
    "of 1% would have shown itself in 688 with 99.9%.",
    "figure": {"measure": "wrong", "label": "wrong outputs"},
    "expectations": [
        {
            "cases": ["*-no-wait"],
            "versions": "",
            "product": "onnxruntime",
            "verdict": "PASS",
            "basis": "assumed",
            "note": "there are no streams on the CPU: only the graph is checked",
        },
        {
            "cases": ["undelayed-no-wait"],
            "versions": "==8.6.0",
            "verdict": "PASS",
            "basis": "measured",
            "on": "NVIDIA H200",
            "note": "by luck: both waits are missing, and with 8.6.0 549 of 690 trials were wrong while the "
            "device was crowded, none of 690 while it was quiet. A PASS is no proof that it is safe",
        },
        {
            "cases": ["undelayed-no-wait"],
            "versions": "",
            "verdict": "PASS",
            "basis": "assumed",
            "note": "by luck, as with 8.6.0 on a quiet H200. A PASS is no proof that it is safe",
        },
    ],
    "exclusive": ["undelayed-no-wait"],
    "workarounds": [
        {
            "what": "let the engine's stream wait for an event of the caller's, and the caller for "
            "one of the engine's",
            "case": "producer-event",
            "source": "https://github.com/pytorch/TensorRT/pull/3067",
        },
        {"what": "synchronize the caller's stream before the call", "case": "producer-synchronize"},
        {"what": "run the engine on the caller's own stream", "case": "same-stream"},
    ],
}

PROCESSES = 3  # trials of one process share its luck
TRIALS = 10  # of a process, behind the delay, which decides each
UNDELAYED = 230
DELAY = 4 << 30  # bytes that a memset writes ahead of the producer: 1 ms on an H200, 14 ms on an L4
EARLY = np.float16(0.5)  # in the input until the producer writes; relu(0.5) in the output: read too early
STALE = 0xBC  # the byte in the output until the engine writes: -1.18, which ReLU never gives


def cases() -> Iterator[Dict[str, Any]]:
    yield make_case("same-stream", "none", "same")
    for side in ("producer", "consumer"):
        for wait in ("no-wait", "event", "synchronize"):
            yield make_case(f"{side}-{wait}", side, wait, control="negative" if wait == "no-wait" else None)
    for wait in ("no-wait", "event"):
        yield make_case(f"undelayed-{wait}", "both", wait, trials=UNDELAYED, delay=0)


def make_case(
    name: str, side: str, wait: str, trials: int = TRIALS, delay: int = DELAY, control: Any = None
) -> Dict[str, Any]:
    return {
        "id": name,
        "params": {"side": side, "wait": wait, "trials": trials, "delay": delay},
        "limits": {"wrong": 0},
        "processes": PROCESSES,
        "control": control,
    }


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    model, x, reference = drawn()
    return {"model": model, "inputs": {"x": x}, "reference": {"y": reference}}


@lru_cache(maxsize=1)
def drawn() -> Any:
    from trtmatrix.authoring.graph import Graph

    x = np.random.default_rng(0).standard_normal((1, 3, 2160, 3840), np.float32).astype(np.float16)
    graph = Graph()
    graph.input("x", np.float16, x.shape)
    graph.node("Relu", "x", out="y")
    graph.output("y", np.float16, x.shape)
    return graph.model(), x, np.maximum(x, 0).astype(np.float64)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    engine = trt.build(files.model, precision="fp16")
    right = np.maximum(files.inputs["x"], np.float16(0))
    if not trt.has_streams:
        outputs = engine.run(files.inputs)
        trt.count("wrong", int(not np.array_equal(outputs["y"], right)))
        return outputs
    bench = Bench(trt.cuda, engine, np.ascontiguousarray(files.inputs["x"]), params["delay"])
    counts = {"trials": params["trials"], "wrong": 0, "read_too_early": 0, "never_written": 0}
    for _ in range(params["trials"]):
        y = bench.trial(params["side"], params["wait"])
        if same(y, right):
            continue
        counts["wrong"] += 1
        counts["read_too_early"] += int((y == EARLY).all())
        counts["never_written"] += int((y.view(np.uint8) == STALE).all())
    for name, number in counts.items():
        trt.count(name, number)
    trt.measure("delay_ms", bench.delay_ms)
    return {}


def same(y: np.ndarray, right: np.ndarray) -> bool:
    """Whether all are equal; their bits first, as NumPy compares float16 ten times more slowly."""
    return np.array_equal(y.view(np.uint16), right.view(np.uint16)) or np.array_equal(y, right)


class Bench:
    """The engine's memory, a second buffer on either side, and the two streams."""

    def __init__(self, cuda: Any, engine: Any, x: np.ndarray, delay: int) -> None:
        self.cuda, self.engine = cuda, engine
        self.bound, self.size = engine.bind({"x": x}), x.nbytes
        self.data, self.early, self.result = (cuda.alloc(x.nbytes) for _ in range(3))
        self.data.put(x)
        self.early.put(np.full_like(x, EARLY))
        self.y = np.empty_like(x)
        self.long = cuda.alloc(delay) if delay else None
        self.caller, self.own = cuda.stream(), cuda.stream()
        engine.enqueue(self.own)  # the first run loads kernels, which may wait by itself
        before = self.own.record()
        self.keep_busy(self.own)
        self.delay_ms = self.own.record().milliseconds_since(before)

    def keep_busy(self, stream: Any) -> None:
        if self.long:
            self.long.fill(0, stream)

    def trial(self, side: str, wait: str) -> np.ndarray:
        """Produce on the caller's stream, run on the engine's own, consume on the caller's."""
        own = self.caller if wait == "same" else self.own
        before = self.data if side == "consumer" else self.early
        self.bound["x"].copy_from(before, self.size, self.caller)
        self.bound["y"].fill(STALE)
        self.result.fill(STALE)
        self.cuda.synchronize()
        if side != "consumer":
            self.keep_busy(self.caller)
            self.bound["x"].copy_from(self.data, self.size, self.caller)
            self.between(self.caller, own, wait)
        else:
            self.keep_busy(own)
        self.engine.enqueue(own)
        if side == "producer":
            own.synchronize()  # the consumer waits in any case: only the producer's side is tried
        else:
            self.between(own, self.caller, wait)
        self.result.copy_from(self.bound["y"], self.size, self.caller)
        self.caller.synchronize()
        self.result.get(self.y)
        self.cuda.synchronize()
        return self.y

    def between(self, first: Any, second: Any, wait: str) -> None:
        if wait == "event":
            second.wait(first.record())
        elif wait == "synchronize":
            first.synchronize()


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
