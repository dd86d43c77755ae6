"""What a model of one's own is timed for beyond its latency, and that no trouble of it reaches the cell."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, Job, Step, X
from tests.probe.test_own_model import DYNAMIC, EXPANDS, FINDS, PROFILE, SIZES, own

ONE = ["copy in", "run", "copy out"]
SPOILT = "no CUDA graph: execute_async_v3 failed: the run waits for the host"
ILLEGAL = "no throughput: cuStreamSynchronize: CUDA error 700 (illegal address)"
LARGE = "no throughput: inputs of the profile's largest shapes are 12.0 GiB"
NO_MEMORY = "no throughput: cuMemAlloc_v2: CUDA error 2 (out of memory)"
GROWS = "the shape of found depends on the data"


def test_end_to_end_is_copies_and_run_in_one_cuda_graph(python: Path, driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [own(GRAPH), own(GRAPH)])
    calls = tmp_path / "calls"
    assert job.run(python, driver, STANDIN_CALLS=str(calls)) == 0, job.log()
    engine = job.record()["engine"]
    assert "not_timed" not in engine
    assert engine["end_to_end"]["runs"] == engine["end_to_end_graph"]["runs"] == 50
    assert 0 < engine["end_to_end"]["low_ms"] <= engine["end_to_end"]["median_ms"]
    assert engine["throughput"]["batch"] == 2
    text = [word for word, _ in groupby(calls.read_text().splitlines())]
    begin = text.index("begin capture")
    assert text[begin : begin + 7] == ["begin capture", *ONE, "end capture", "launch", "destroy"]
    assert text[begin - 3 : begin] == ONE, "it has run before it is captured"
    assert not job.record()["worker"]["ended"], "the process serves the next cell"


N = {"x": X[:, :1], "n": np.array([2, 3])}
BATCHES = [
    (own(GRAPH), 2),
    (own(DYNAMIC, {"x": X[:1]}, profile=PROFILE), 4),
    (own(DYNAMIC, {"x": X}, profile={"x": [[1, 3], [1, 3], [7, 3]]}), 7),
    (own(EXPANDS, N, profile=SIZES), 2),
]


def test_throughput_is_measured_at_the_largest_shapes_of_the_profile(driver: Path, tmp_path: Path) -> None:
    job = Job(tmp_path, [step for step, _ in BATCHES])
    assert job.run(MAIN, driver) == 0, job.log()
    for index, (_, batch) in enumerate(BATCHES):
        throughput = job.record(index)["engine"]["throughput"]
        assert throughput["batch"] == batch
        assert throughput["median_ms"] == pytest.approx(1.5 * 10 / throughput["runs"])  # ten windows


FAULTS = own({**DYNAMIC, "faults_at": [4]}, profile=PROFILE)
CANNOT: dict[str, list[tuple[Step, dict[str, str]]]] = {
    "capture fails": [(own({**GRAPH, "waits": True}), {"end_to_end_graph": SPOILT})],
    "others": [
        (own(FINDS), {"end_to_end": f"not timed end to end: {GROWS}",
                      "end_to_end_graph": f"no CUDA graph: {GROWS}"}),
        (own(EXPANDS, N, profile=SIZES),
         {"end_to_end_graph": "no CUDA graph: the host reads or writes n in each run"}),
        (FAULTS, {"throughput": ILLEGAL, "end_to_end_graph": ILLEGAL}),
        (own(DYNAMIC, profile={"x": [[1, 3], [2, 3], [1 << 30, 3]]}), {"throughput": LARGE}),
        (own(DYNAMIC, profile={"x": [[1, 3], [2, 3], [1 << 20, 3]]}), {"throughput": NO_MEMORY}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("which", CANNOT)
def test_what_cannot_be_timed_has_its_reason_and_no_more(driver: Path, tmp_path: Path, which: str) -> None:
    cells = CANNOT[which]
    job = Job(tmp_path, [step for cell, _ in cells for step in (cell, own(GRAPH))])
    calls = tmp_path / "calls"
    assert job.run(MAIN, driver, STANDIN_CALLS=str(calls), STANDIN_DEVICE_BYTES="4000000") == 0, job.log()
    for index, (_, not_timed) in enumerate(cells):
        record, after = job.record(2 * index), job.record(2 * index + 1)
        assert (record["ended"], record["detail"]) == ("ran", "")
        assert record["engine"]["not_timed"] == not_timed
        is_spoilt = bool({SPOILT, ILLEGAL} & set(not_timed.values()))
        assert record["worker"]["ended"] == "the cell changed or left: the backend.trouble" * is_spoilt
        assert (after["ended"], "not_timed" in after["engine"]) == ("ran", False)
    told = calls.read_text()
    assert told.count("begin capture") == told.count("end capture")
    if which == "capture fails":
        again = told.split("end capture\n")[1]
        assert "copy in\nrun\ncopy out\n" in again, "it runs once more without a graph"
