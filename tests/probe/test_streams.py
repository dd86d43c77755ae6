"""The logic of the streams repro, over a driver that does each thing as late as it is allowed to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.probe.jobs import HERE
from trtprobe.cell import load_repro

REPRO = load_repro(HERE.parents[1] / "repros" / "streams.py")
X = np.array([[1, -2, 3, -4]], np.float16)
Array = NDArray[Any]


class LateCuda:
    """Work put on a stream waits until someone waits for it; a long memset alone takes time."""

    def __init__(self) -> None:
        self.streams: list[LateStream] = []

    def alloc(self, size: int) -> LateMemory:
        return LateMemory(min(size, 1 << 16))

    def stream(self) -> LateStream:
        self.streams.append(LateStream())
        return self.streams[-1]

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()


class LateStream:
    """Does its work when it is waited for, or at once while nothing long is ahead of it."""

    def __init__(self) -> None:
        self.todo: list[Callable[[], object]] = []
        self.done = 0

    def put(self, work: Callable[[], object], *, long: bool = False) -> None:
        self.todo.append(work)
        if not long and len(self.todo) == 1:
            self.synchronize()

    def synchronize(self) -> None:
        self.reach(self.done + len(self.todo))

    def reach(self, count: int) -> None:
        while self.done < count:
            self.todo[0]()
            self.todo.pop(0)
            self.done += 1

    def record(self) -> LateEvent:
        return LateEvent(self, self.done + len(self.todo))

    def wait(self, event: LateEvent) -> None:
        self.put(event.reach, long=bool(event.stream.todo))


class LateEvent:
    """Reached when that many things of its stream are done."""

    def __init__(self, stream: LateStream, count: int) -> None:
        self.stream, self.count = stream, count

    def reach(self) -> None:
        self.stream.reach(self.count)

    def milliseconds_since(self, earlier: LateEvent) -> float:
        earlier.reach()
        self.reach()
        return 1.0


class LateMemory:
    """Bytes; copies in order on a stream."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)

    def put(self, array: Array) -> None:
        self.bytes[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def get(self, array: Array) -> Array:
        array.reshape(-1).view(np.uint8)[:] = self.bytes[: array.nbytes]
        return array

    def copy_from(self, other: LateMemory, size: int, stream: LateStream) -> None:
        stream.put(lambda: np.copyto(self.bytes[:size], other.bytes[:size]))

    def fill(self, byte: int, stream: LateStream | None = None) -> None:
        if stream is None:
            self.bytes[:] = byte
        else:
            stream.put(lambda: self.bytes.fill(byte), long=True)


class LateRelu:
    """An engine whose run is put on the stream that it is given."""

    def __init__(self) -> None:
        self.memory = {"x": LateMemory(X.nbytes), "y": LateMemory(X.nbytes)}

    def bind(self, inputs: dict[str, Array]) -> dict[str, LateMemory]:
        self.memory["x"].put(inputs["x"])
        return self.memory

    def enqueue(self, stream: LateStream) -> None:
        stream.put(
            lambda: self.memory["y"].put(np.maximum(self.memory["x"].get(np.empty_like(X)), np.float16(0)))
        )


def counts_of(params: dict[str, Any], cuda: LateCuda | None = None) -> dict[str, int]:
    counts: dict[str, int] = {}
    measured: dict[str, float] = {}
    trt = SimpleNamespace(
        has_streams=True, cuda=cuda or LateCuda(), measure=measured.__setitem__, count=counts.__setitem__,
        build=lambda *_, **__: LateRelu(),
    )  # fmt: skip
    files = SimpleNamespace(model=Path("-"), inputs={"x": X})
    assert REPRO.run(params, files, trt) == {}
    assert list(measured) == ["delay_ms"]
    return counts


CASES = {case["id"]: case for case in REPRO.cases()}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_missing_wait_behind_the_delay_is_always_seen_and_each_cure_works(case: dict[str, Any]) -> None:
    counts = counts_of(case["params"])
    broken = case.get("control") == "negative"
    assert counts["wrong"] == (counts["trials"] if broken else 0)
    assert (counts["wrong"] > case["limits"]["wrong"]) is broken


def test_sentinels_tell_which_wait_is_missing() -> None:
    trials = REPRO.TRIALS
    producer = counts_of(CASES["producer-no-wait"]["params"])
    assert (producer["read_too_early"], producer["never_written"]) == (trials, 0)
    consumer = counts_of(CASES["consumer-no-wait"]["params"])
    assert (consumer["read_too_early"], consumer["never_written"]) == (0, trials)
