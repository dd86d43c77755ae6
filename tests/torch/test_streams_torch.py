"""The logic of the repro streams-torch: torch's tensors on the CPU, stand-ins for all that needs a GPU.

LateCuda stands in for torch.cuda: what is put on a busy stream is done when someone waits for it. Runtime
stands in for a module that Torch-TensorRT compiled, with the streams and waits of one of its releases.
TorchTensorRT stands in for the package. What real releases do on a GPU is not tried here.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.probe.test_streams import LateStream
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import torch
from torch import Tensor
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "streams_torch.py")
CASES = {case["id"]: case for case in REPRO.cases()}
X = torch.tensor([[[1.0, -2.0, 3.0, -4.0, 5.0]]])
BROKEN, FIXED, BEFORE = "broken", "fixed", "before"


class LateTorchStream(LateStream):
    """Does its work without what watches torch's operators."""

    def put(self, work: Callable[[], object], *, long: bool = False) -> None:
        def unwatched() -> None:
            with _disable_current_modes():
                work()

        super().put(unwatched, long=long)

    def wait_stream(self, other: LateTorchStream) -> None:
        self.wait(other.record())


class LateCuda(TorchDispatchMode):  # type: ignore[misc]  # no torch where the types are checked
    """torch.cuda's streams, on the CPU: operators that write go onto the current one."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = [LateTorchStream()]
        self.now = self.streams[0]

    def Stream(self) -> LateTorchStream:  # noqa: N802 - torch's name
        self.streams.append(LateTorchStream())
        return self.streams[-1]

    def current_stream(self) -> LateTorchStream:
        return self.now

    def set_stream(self, stream: LateTorchStream) -> None:
        self.now = stream

    @contextmanager
    def stream(self, stream: LateTorchStream) -> Iterator[None]:
        before, self.now = self.now, stream
        yield
        self.now = before

    def _sleep(self, cycles: int) -> None:
        self.now.put(lambda: cycles, long=True)

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.now.todo or func is torch.ops.aten.empty.memory_format:
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            self.now.put(lambda: func(*args, **kwargs))
            return args[0]
        result = func(*args, **kwargs)  # memory for it; what is in there now is too early to be right
        self.now.put(lambda: result.copy_(func(*args, **kwargs)))
        return result


class Runtime:
    """What Torch-TensorRT runs on which stream, as read in its sources and in its releases' libraries.

    before: before #2881 the engine is enqueued on the caller's stream. broken: from #2881 to #3067 on the one
    that was current when it was made; in place of the default stream on a new one, which is made current.
    fixed: since #3067 on its own, which waits for the caller's, and the caller's for it. Throughout, the C++
    runtime makes its outputs by at::empty(…).to(type), the Python runtime in their own type.
    https://github.com/pytorch/TensorRT/blob/v2.4.0/core/runtime/execute_engine.cpp (before)
    https://github.com/pytorch/TensorRT/pull/2881, https://github.com/pytorch/TensorRT/pull/3067
    https://github.com/pytorch/TensorRT/blob/v2.5.0/core/runtime/execute_engine.cpp (fixed)
    """

    def __init__(self, cuda: Any, runtime: str, form: str) -> None:
        self.cuda, self.runtime, self.form = cuda, runtime, form
        self.own = cuda.Stream()
        if form == BROKEN:
            cuda.set_stream(self.own)

    def __call__(self, x: Tensor) -> Tensor | tuple[Tensor]:
        caller = self.cuda.current_stream()
        own = caller if self.form == BEFORE else self.own
        y = torch.empty(x.shape, dtype=torch.float32 if self.runtime == "cpp" else x.dtype, device=x.device)
        y = y.to(x.dtype)
        if self.form == FIXED:
            own.wait_stream(caller)
        with self.cuda.stream(own):
            y.copy_(x.relu())
        if self.form == FIXED:
            caller.wait_stream(own)
        return (y,) if self.form == BEFORE else y  # 2.2's graph_module, as seen on a GPU


def counted(case: dict[str, Any], form: str) -> dict[str, int]:
    params, cuda = case["params"], LateCuda()
    dtype = getattr(torch, params["dtype"])
    with cuda:
        bench = REPRO.Bench(cuda, Runtime(cuda, params["runtime"], form), X.to(dtype))
        counts: dict[str, int] = bench.count(params["call"], params["trials"])
    return counts


def expected_at(case_id: str) -> str:
    """Return the verdict that FACTS expects in the images of 10.3 and 10.4."""
    found = (
        entry["verdict"]
        for entry in REPRO.FACTS["expectations"]
        if any(fnmatch.fnmatchcase(case_id, pattern) for pattern in entry["cases"])
    )
    return next(found, "PASS")


REAL = [name for name, case in CASES.items() if "torch_tensorrt" in case["needs"]]


@pytest.mark.parametrize("name", REAL)
def test_the_broken_form_gives_the_expected_verdict_and_the_other_forms_pass(name: str) -> None:
    case = CASES[name]
    counts = {form: counted(case, form) for form in (BEFORE, FIXED, BROKEN)}
    assert {count["trials"] for count in counts.values()} == {case["params"]["trials"]}
    assert counts[BEFORE]["wrong"] == counts[FIXED]["wrong"] == 0
    if not name.startswith("as-reported"):  # which depends on the hardware
        wrong = case["params"]["trials"] if expected_at(name) == "FAIL" else 0
        assert counts[BROKEN]["wrong"] == wrong


@pytest.mark.parametrize("call", REPRO.BUSY)
def test_each_control_always_fails(call: str) -> None:
    cuda = LateCuda()
    assert CASES[f"control-{call}"]["control"] == "negative"
    with cuda:
        counts = REPRO.Bench(cuda, REPRO.NoWaits(cuda), X.half()).count(call)
    assert counts["wrong"] == counts["trials"] == REPRO.TRIALS
