"""A module of Torch-TensorRT, called inside a stream of the caller's own, returns zeros now and then.

First as reported, which is a race. Then with one stream kept busy for so long that the race is decided:
each missing wait is tried by itself. The repro `streams` takes such waits out without Torch-TensorRT.
"""

from __future__ import annotations

import inspect
import time
from functools import lru_cache
from typing import Any, Dict, Iterator, Tuple

import numpy as np

FACTS = {
    "title": "Torch-TensorRT called inside a stream of the caller's own",
    "upstream": "pytorch/TensorRT#2991",
    "url": "https://github.com/pytorch/TensorRT/issues/2991",
    # See also pytorch/TensorRT#2881, pytorch/TensorRT#3067
    "summary": "From #2881 to #3067 an engine runs on the stream that it took when it was made, whatever "
    "stream it is called on, and neither side waits. The C++ runtime also makes a half output by converting "
    "an empty float32 tensor on the caller's stream: where that comes last, it overwrites the result. "
    "If trials are independent, 0 wrong of 30 says that fewer than 9.5% are (with 95% confidence), and a "
    "rate of 1% would have shown itself in 688 with 99.9%.",
    "figure": {"measure": "wrong", "label": "wrong outputs"},
    "expectations": [
        {
            "cases": ["as-reported-cpp-half-*"],
            "versions": ">=10.3,<10.5",
            "verdict": "FAIL",
            "basis": "reported",
            "source": "https://github.com/pytorch/TensorRT/issues/2991",
            "on": "GeForce",
            "note": "zeros at random on Windows and in WSL 2, more at the large shape; no rate is given, and "
            "two maintainers saw none (RTX 3080 Ti; Titan V, 10000 calls): a pass says little",
        },
        {
            "cases": ["as-reported-*"],
            "versions": ">=10.3,<10.5",
            "verdict": "PASS",
            "basis": "reported",
            "source": "https://github.com/pytorch/TensorRT/issues/2991",
            "on": "GeForce",
            "note": "float32 and the Python runtime are fine: they have no conversion",
        },
        {
            "cases": ["late-buffer-cpp-half"],
            "versions": ">=10.3,<10.5",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/pytorch/TensorRT/pull/2881",
            "note": "the race of the report, decided: the conversion comes after the engine",
        },
        {
            "cases": ["late-input-*", "late-engine-*"],
            "versions": ">=10.3,<10.5",
            "verdict": "FAIL",
            "basis": "assumed",
            "source": "https://github.com/pytorch/TensorRT/pull/2881",
            "note": "read in the source, for both runtimes and types. The report's calls hide it: making the "
            "engine makes its stream the current one, and there they write the input and read the output",
        },
    ],
    "workarounds": [
        {
            "what": "call it outside any stream of your own: the current stream is the engine's then",
            "case": "current-stream-cpp-half",
        },
        {
            "what": "use_python_runtime=True: cures what was reported, but the waits are missing there too",
            "case": "as-reported-python-half-large",
            "source": "https://github.com/pytorch/TensorRT/issues/2991",
        },
        {"what": "any release of Torch-TensorRT: none has #2881 without #3067", "case": None},
    ],
}

PROCESSES = 3  # trials of one process share its luck
TRIALS = 10  # of a process, with one stream busy, which decides each
UNDECIDED = 230
DELAY = 50_000_000  # clock cycles that a stream is kept busy: 25 ms at 2 GHz; a call takes 1 ms or less
EARLY = 0.5  # in the input until it is written; relu(0.5) in the output: read too early
EMPTY = -1.0  # in the memory that torch will give the runtime for its output; ReLU never writes it
# NoWaits on an H200 with torch 2.11: 30 of 30 wrong in each busy call, none of 30 as reported. With the waits
# put in none anywhere, and without the conversion none in late-buffer.
SHAPES = {"small": (1, 3, 5), "large": (1, 3, 2160, 3840)}  # the report's two
BUSY = ("late-input", "late-buffer", "late-engine")  # Bench.call_busy says what each is


def cases() -> Iterator[Dict[str, Any]]:
    for kind in ("cpp-half", "cpp-float", "python-half", "python-float"):
        for size in SHAPES:
            yield make_case("as-reported", kind, size)
        for call in BUSY:  # decided in any shape: one will do
            yield make_case(call, kind)
    yield make_case("current-stream", "cpp-half")
    for call in BUSY:  # NoWaits in place of Torch-TensorRT
        known = make_case(call, "control-half")
        yield {**known, "id": f"control-{call}", "control": "negative", "needs": ["torch"]}


def make_case(call: str, kind: str, size: str = "") -> Dict[str, Any]:
    runtime, dtype = kind.split("-")
    return {
        "id": f"{call}-{kind}" + (f"-{size}" if size else ""),
        "params": {
            "call": call,
            "runtime": runtime,
            "dtype": dtype,
            "size": size or "large",
            "trials": TRIALS if call in BUSY else UNDECIDED,
        },
        "limits": {"wrong": 0},
        "processes": PROCESSES,
        "dangerous": True,  # making the engine changes torch's current stream, and it stays changed
        "products": ["tensorrt"],
        "needs": ["torch", "torch_tensorrt"],
    }


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    model, x, reference = drawn(params["size"], params["dtype"])
    return {"model": model, "inputs": {"x": x}, "reference": {"y": reference}}


@lru_cache(maxsize=4)
def drawn(size: str, dtype: str) -> Any:
    from trtmatrix.authoring.graph import Graph

    kind = {"half": np.float16, "float": np.float32}[dtype]
    x = np.random.default_rng(0).standard_normal(SHAPES[size], np.float32).astype(kind)
    graph = Graph()
    graph.input("x", kind, x.shape)
    graph.node("Relu", "x", out="y")
    graph.output("y", kind, x.shape)
    return graph.model(), x, np.maximum(x, 0).astype(np.float64)


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    import torch

    cuda, x = torch.cuda, torch.from_numpy(np.array(files.inputs["x"])).cuda()
    control = params["runtime"] == "control"
    module = NoWaits(cuda) if control else compiled(params["runtime"], params["dtype"], tuple(x.shape))
    for name, number in Bench(cuda, module, x).count(params["call"], params["trials"]).items():
        trt.count(name, number)
    started = time.perf_counter()
    cuda._sleep(DELAY)  # noqa: SLF001 - torch's own tests keep streams busy with it
    cuda.synchronize()
    trt.measure("delay_ms", 1000 * (time.perf_counter() - started))
    return {}


def compiled(runtime: str, dtype_name: str, shape: Tuple[int, ...]) -> Any:
    """Compile the report's module as the report does: Torch-TensorRT 2.2 to 2.6 take these arguments."""
    import torch_tensorrt

    import torch

    class Relu(torch.nn.Module):  # type: ignore[misc]  # no torch where the types are checked
        def __init__(self) -> None:
            super().__init__()
            self.relu = torch.nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(x)

    dtype = getattr(torch, dtype_name)
    settings: Dict[str, Any] = {"use_python_runtime": runtime == "python"}
    if "output_format" in inspect.signature(torch_tensorrt.dynamo.compile).parameters:
        settings["output_format"] = "graph_module"  # 2.2, whose default cannot hold the Python runtime
    module = torch_tensorrt.compile(
        Relu().eval(),
        ir="dynamo",
        inputs=[torch_tensorrt.Input(shape=shape, dtype=dtype)],
        enabled_precisions={dtype},
        min_block_size=1,
        device=torch.device("cuda", 0),
        **settings,
    )
    wanted = {"cpp": "TorchTensorRTModule", "python": "PythonTorchTensorRTModule"}[runtime]
    if wanted not in {type(part).__name__ for part in module.modules()}:
        raise ImportError(f"compiled without a {wanted}: this runtime is not there", name="torch_tensorrt")
    return module


class NoWaits:
    """What the C++ runtime ran on which stream between #2881 and #3067, with torch's kernels."""

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.own = cuda, cuda.Stream()
        cuda.set_stream(self.own)

    def __call__(self, x: Any) -> Any:
        import torch

        y = torch.empty(x.shape, device=x.device).to(x.dtype)
        with self.cuda.stream(self.own):
            y.copy_(x.relu())
        return y


class Bench:
    """A module, its input x, a stream to call it on, and y, what is read of its output."""

    def __init__(self, cuda: Any, module: Any, x: Any) -> None:
        self.cuda, self.module, self.caller = cuda, module, cuda.Stream()
        self.x, self.y = x.clone(), x.clone()
        self.turns = [(data, data.clamp(min=0)) for data in (x, -x)]  # so that the previous output is wrong

    def count(self, call: str, trials: int = TRIALS) -> Dict[str, int]:
        counts = {"trials": trials, "wrong": 0, "zeros": 0, "read_too_early": 0, "empty": 0, "stale": 0}
        for trial in range(-2, trials):
            data, right = self.turns[trial % 2]
            if call in BUSY:
                self.call_busy(call, data)
            else:
                self.call_as_reported(call, data)
            self.cuda.synchronize()
            if trial < 0 or self.y.equal(right):  # two to begin with load kernels and allocate memory
                continue
            counts["wrong"] += 1
            counts["zeros"] += int(not self.y.any())
            counts["read_too_early"] += int((self.y == EARLY).all())
            counts["empty"] += int((self.y == EMPTY).all())
            counts["stale"] += int(self.y.equal(self.turns[1 - trial % 2][1]))
        return counts

    def output(self) -> Any:
        result = self.module(self.x)
        return result[0] if isinstance(result, tuple) else result  # 2.2's graph_module gives a tuple of one

    def call_as_reported(self, call: str, data: Any) -> None:
        current = self.cuda.current_stream()
        caller = self.cuda.Stream() if call == "as-reported" else current
        self.x.copy_(data)
        caller.wait_stream(current)
        with self.cuda.stream(caller):
            y = self.output()
        current.wait_stream(caller)
        self.y.copy_(y)

    def call_busy(self, call: str, data: Any) -> None:
        """Call the module with one stream busy and all else done.

        late-input: the caller's, before it writes the input. An engine that does not wait for it reads too
        early. late-buffer: the caller's, with the input written. What the runtime does to the output there
        comes after an engine that does not wait. late-engine: the current one, the engine's own if making it
        did that. A caller that does not wait for the engine reads too early.
        """
        import torch

        self.x.copy_(data)
        if call == "late-input":
            self.x.fill_(EARLY)
        with self.cuda.stream(self.caller):
            kept = [torch.full_like(self.x, EMPTY, dtype=kind) for kind in (torch.float32, torch.float16)]
        del kept  # which frees what the runtime's next tensors on this stream will be made of
        self.cuda.synchronize()
        busy = self.cuda.current_stream() if call == "late-engine" else self.caller
        with self.cuda.stream(busy):
            self.cuda._sleep(DELAY)  # noqa: SLF001
        with self.cuda.stream(self.caller):
            if call == "late-input":
                self.x.copy_(data)
            self.y.copy_(self.output())


if __name__ == "__main__":
    from trtprobe import by_hand

    by_hand.main(__file__)
