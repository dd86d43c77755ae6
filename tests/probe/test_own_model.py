"""A user's own model over the stand-ins: profiles, samples, dtypes, no references; what it is timed for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, Job, Step, X, add_weights, stand_in
from tests.probe.pythons import environment_of

OLD, NEW = "8.6.1", "10.7.0"
RELEASES = {  # under the Python that its image has, or the one that runs the tests
    "8.5.3.1": "3.8", OLD: "3.8", "9.2.0.post12.dev5": "", "10.0.1": "", NEW: "", "11.1.0": "",
}  # fmt: skip
DYNAMIC: dict[str, Any] = {"inputs": {"x": ["float32", [-1, 3]]}, "outputs": {"y": ["float32", [-1, 3]]}}
TWO = {"inputs": {**DYNAMIC["inputs"], "z": ["float32", [-1, 3]]}, "outputs": DYNAMIC["outputs"]}
PROFILE = {"x": [[1, 3], [2, 3], [4, 3]]}
HOST = {**DYNAMIC, "inputs": {**DYNAMIC["inputs"], "n": ["int64", [2]]}, "host": ["n"]}
EXPANDS: dict[str, Any] = {
    "inputs": {"x": ["float32", [2, 1]], "n": ["int64", [2]]}, "outputs": {"y": ["float32", [-1, -1]]},
    "host": ["n"], "expands": {"y": "n"},
}  # fmt: skip
SIZES = {"n": [[2, 1], [2, 3], [2, 5]]}
FINDS = {"inputs": GRAPH["inputs"], "outputs": {"y": ["float32", [2, 3]], "found": ["float32", [-1]]}}
SCALAR = {"inputs": {"x": ["float32", []]}, "outputs": {"y": ["float32", []]}}
NAN = np.array([[np.nan, -1, np.inf], [-2, 0, 5]], np.float32)
MANY = [f".s{k:03}" for k in range(300)]
BIG = np.array([[1 << 31, 0, 0]] * 2)
BITS = np.array([[0, 1, 1]] * 2, np.uint8)


class Cell(NamedTuple):
    """What is run at some releases, how it ends, and what outputs it gives."""

    step: Step
    releases: tuple[str, ...] = (NEW,)
    ended: str = "ran"
    detail: str = ""
    gives: Mapping[str, Any] = {}


def own(graph: Any, inputs: Any = None, **params: Any) -> Step:
    return Step(does="own-model", graph=graph, params=params, inputs={"x": X} if inputs is None else inputs)


def cast(dtype: str, x: Any, releases: tuple[str, ...], ended: str = "ran", detail: str = "") -> Cell:
    graph = {"inputs": {"x": [dtype, [2, 3]]}, "outputs": {"y": [dtype, [2, 3]]}}
    gives = {"y": np.maximum(x, 0)} if ended == "ran" else {}
    return Cell(own(graph, {"x": x}), releases, ended, detail, gives)


def refused(detail: str, profile: Any) -> Cell:
    ended = "crashed" if "ValueError" in detail or "engine" in detail else "build failed"
    return Cell(own(DYNAMIC, profile=profile), (NEW,), ended, detail)


MISFIT = "the inputs' shapes do not fit each other or the profile: "
DYNAMIC_INPUT = "dynamic inputs without shapes in the profile: x [-1, 3]"
UNSUPPORTED = "unsupported by this version"
ALL, BESIDE = tuple(RELEASES), "weights beside it"
CELLS = {
    "samples of several shapes": Cell(
        own(DYNAMIC, {"x.s0": X, "x.s1": X[:1], "x.s2": np.repeat(X, 2, axis=0)}, profile=PROFILE,
            samples=[".s0", ".s1", ".s2"]),
        ALL, gives={"y.s0": np.maximum(X, 0), "y.s1": np.maximum(X[:1], 0),
                    "y.s2": np.maximum(np.repeat(X, 2, axis=0), 0)},
    ),
    "no profile": refused(DYNAMIC_INPUT, None),
    "a profile for others": refused(
        "input x: the engine does not take the shape [2, 3]; it was built for [3, 3]; [3, 3]; [4, 3]",
        {"x": [[3, 3], [3, 3], [4, 3]]},
    ),
    "static": Cell(own(GRAPH, profile={"x": [[2, 3]] * 3})),
    "static, another shape": Cell(
        own(GRAPH, {"x": X[:1]}), (NEW,), "crashed",
        "input x: the engine does not take the shape [1, 3]; it was built for [2, 3]",
    ),
    "inputs that do not fit": Cell(
        own(TWO, {"x": X, "z": X[:1]}, profile=dict.fromkeys("xz", PROFILE["x"])), (NEW,), "crashed",
        MISFIT + "x [2, 3], z [1, 3]: broadcast: dimensions differ",
    ),
    "an input is not given": Cell(
        own(TWO, profile=dict.fromkeys("xz", PROFILE["x"])), (NEW,), "crashed",
        "the engine has an input z, which is not given; given are: x",
    ),
    "a shape tensor": Cell(
        own(HOST, {"x": X, "n": np.array([2, 3])}, profile={**PROFILE, "n": [[1, 1], [2, 3], [9, 9]]}),
        (OLD, NEW), gives={"y": np.maximum(X, 0)},
    ),
    "a shape tensor decides": Cell(
        own(EXPANDS, {"x.s0": X[:, :1], "x.s1": X[:, :1], "n.s0": np.array([2, 3]), "n.s1": np.array([2, 5])},
            profile=SIZES, samples=[".s0", ".s1"]),
        ALL, gives={"y.s0": np.maximum(X[:, [0] * 3], 0), "y.s1": np.maximum(X[:, [0] * 5], 0)},
    ),
    "values outside of the profile": Cell(
        own(EXPANDS, {"x": X[:, :1], "n": np.array([2, 9])}, profile=SIZES), (NEW,), "crashed",
        MISFIT + "x [2, 1], n = [2, 9]: n: the values are outside of the profile",
    ),
    "a scalar": Cell(own(SCALAR, {"x": np.array(2, np.float32)}), (OLD, NEW), gives={"y": np.float32(2)}),
    "int64 in 8": cast("int64", X.astype(np.int64), (OLD,)),
    "a large int64 in 8": cast(
        "int64", BIG, (OLD,), UNSUPPORTED,
        "input x holds 2147483648, and the engine takes int32 (-2147483648 to 2147483647)",
    ),
    "a large int64": cast("int64", BIG, (NEW,)),
    "bool of bytes": cast("bool", BITS, (NEW,)),
    "bytes of bool": cast("uint8", BITS.astype(bool), (NEW,)),
    "bool of numbers": cast(
        "bool", 2 * BITS, (NEW,), "crashed", "raised ValueError: x: engine wants bool, got uint8"
    ),
    "float64": cast(
        "float32", X.astype(np.float64), (NEW,), UNSUPPORTED,
        "input x is float64 and the engine takes float32: TensorRT has no float64; export the model in "
        "float32 and give its inputs so",
    ),
    "integers for floats": cast(
        "float32", X.astype(np.int64), (NEW,), "crashed",
        "raised ValueError: x: engine wants float32, got int64",
    ),
    "an output as long as the data say": Cell(own(FINDS), ALL, gives={"found": X[X > 0]}),
    "an output of nothing": Cell(own(FINDS, {"x": -np.abs(X)}), ALL, gives={"found": np.zeros(0)}),
    BESIDE: Cell(own({}), ("8.5.3.1", NEW, "11.1.0")),
    "nan": Cell(own(GRAPH, {"x": NAN}), (OLD, NEW), gives={"y": np.maximum(NAN, 0)}),
    "hundreds of samples": Cell(
        own(GRAPH, {"x" + k: X + n for n, k in enumerate(MANY)}, samples=MANY), (OLD, NEW),
        gives={"y.s001": np.maximum(X + 1, 0)},  # timing the first disturbs no output
    ),
    "half": Cell(own({**GRAPH, "outputs": {"y": ["float16", [2, 3]]}}), ALL, gives={"y": np.maximum(X, 0)}),
    "bfloat16": Cell(
        own({**GRAPH, "outputs": {"y": ["bfloat16", [2, 3]]}}), (NEW,), UNSUPPORTED,
        "y is BF16, which NumPy does not have",
    ),
    "a run that fails": Cell(
        own({**GRAPH, "run_says": "illegal address"}), (NEW,), "crashed",
        "execute_async_v3 failed: illegal address",
    ),
    "a run without memory": Cell(
        own({**GRAPH, "run_says": "out of memory"}), (NEW,), "out of GPU memory",
        "execute_async_v3 failed: out of memory",
    ),
    # where types are weak, the builder refuses a quantized graph without its flag
    "INT8": Cell(own({**GRAPH, "quantized": ["INT8"]}, quantized=["int8"]), ALL),
    "FP8": Cell(own({**GRAPH, "quantized": ["FP8"]}, quantized=["fp8"]), ALL[1:]),
    "no FP8": Cell(
        own(GRAPH, quantized=["fp8"]), ALL[:1], UNSUPPORTED,
        "8.5.3.1 cannot run a graph quantized to FP8: it has no such flag",
    ),
    "after them": Cell(own(GRAPH), ALL),
}  # fmt: skip


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def job(release: str, driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("job")
    job = Job(folder, {name: cell.step for name, cell in CELLS.items() if release in cell.releases})
    if BESIDE in job.cells:
        add_weights(folder / "cases" / job.kept(BESIDE).name, standin={**GRAPH, "weights": "weights.bin"})
    python = environment_of(RELEASES[release]) if RELEASES[release] else MAIN
    assert job.run(python, driver, STANDIN_TENSORRT=release) == 0, job.log()
    return job


def test_each_ends_as_it_must_and_gives_what_it_must(job: Job) -> None:
    assert job.ends() == {name: (CELLS[name].ended, CELLS[name].detail) for name in job.cells}
    for name in job.cells:
        for output, wanted in CELLS[name].gives.items():
            given = np.load(job.kept(name) / f"{output}.npy")
            assert given.shape == np.shape(wanted) == tuple(job.record(name)["kept"][output]["shape"]), name
            assert np.array_equal(given, wanted, equal_nan=given.dtype.kind == "f"), name


def test_a_case_without_references_is_looked_at_alone_and_kept(job: Job) -> None:
    assert job.record("an output of nothing")["measurements"]["outputs"]["found"]["count"] == 0
    if "nan" in job.cells:
        record = job.record("nan")
        measured = {"count": 6, "nan": 1, "inf": 1, "zeros": 3, "share_zeros": 0.5}
        assert record["measurements"]["outputs"] == {"y": measured}
        assert record["kept"] == {"y": {"dtype": "float32", "shape": [2, 3]}}


def test_hundreds_of_samples_hold_no_files_open_and_the_first_run_is_timed(job: Job, release: str) -> None:
    engine = job.record("after them")["engine"]
    assert set(engine["layers"][0].split()).isdisjoint({"INT8", "FP8"}), "a flag is for graphs that need it"
    sizes = {"8.6.1": 4096, "10.0.1": 4096, "11.1.0": 8192}
    assert engine["device_memory_bytes"] == sizes.get(release, engine["device_memory_bytes"])
    if "hundreds of samples" not in job.cells:
        return
    record = job.record("hundreds of samples")
    assert len(record["kept"]) == 300
    assert record["measurements"]["scalars"]["open_files"] < 64
    assert not record["worker"]["ended"], "the next cell has its process"
    engine = record["engine"]
    assert engine["latency"] == {"median_ms": 1.5, "low_ms": 1.5, "high_ms": 1.5, "runs": 50}
    assert (engine["run_ms"], engine["clocks"]) == (1.5, {}), "the stand-in has no NVML"


def test_no_memory_for_an_output_of_unknown_size_is_told_as_that(driver: Path, tmp_path: Path) -> None:
    graph = {"inputs": {"x": ["float16", [64, 64]]}, "outputs": {"found": ["float32", [-1]]}}
    job = Job(tmp_path, [own(graph, {"x": np.ones((64, 64), np.float16)})])
    assert job.run(MAIN, driver, STANDIN_DEVICE_BYTES="16383") == 0
    assert job.record()["ended"] == "out of GPU memory"


SCRIPT = """
import json, sys
from zipfile import ZipFile
from trtprobe.backends import open_backend
from trtprobe.operators import run_task

class Host:
    def hand(self, message, write):
        print("output %d" % message["output"])

backend = open_backend("tensorrt")
backend.warm_up()
with ZipFile("suite.zip") as members:
    for task in json.loads(sys.argv[1]):
        done = run_task(task, backend, members, Host())
        print(done["ended"], done["detail"], flush=True)
"""


def test_a_model_that_builds_is_run_and_its_outputs_are_handed_over(tmp_path: Path, driver: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    with ZipFile(tmp_path / "suite.zip", "w") as suite:
        suite.writestr("model", json.dumps(GRAPH))
        suite.write(tmp_path / "x.npy", "x.npy")
    task = {"model": "model", "inputs": {"x": "x.npy"}, "outputs": ["y"], "profile": None}
    other = {**task, "outputs": ["z"]}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([task, task, other])], cwd=tmp_path,
        env={**os.environ, **stand_in(driver), "STANDIN_TENSORRT": "8.6.1"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["output", "0", "ran", "output", "0", "ran", "ran"], (
        done.stdout + done.stderr
    )


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
