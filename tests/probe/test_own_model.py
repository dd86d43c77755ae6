"""A user's own model over the stand-ins: profiles, samples, dtypes, weights beside it, no references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.graphs import add_weights
from tests.probe.jobs import GRAPH, MAIN, Job, Step, X

RELEASES = ("8.5.3.1", "8.6.1", "9.2.0.post12.dev5", "10.0.1", "10.7.0", "11.1.0")
DYNAMIC: dict[str, Any] = {"inputs": {"x": ["float32", [-1, 3]]}, "outputs": {"y": ["float32", [-1, 3]]}}
PROFILE = {"x": [[1, 3], [2, 3], [4, 3]]}
TWO = {"inputs": {**DYNAMIC["inputs"], "z": ["float32", [-1, 3]]}, "outputs": DYNAMIC["outputs"]}


def own(graph: Any, inputs: Any = None, **params: Any) -> Step:
    return Step(does="own-model", graph=graph, params=params, inputs={"x": X} if inputs is None else inputs)


def ran(folder: Path, driver: Path, step: Step, python: Path = MAIN, release: str = "10.7.0") -> Any:
    """Run one step and return its record and the arrays that it kept."""
    job = Job(folder, [step])
    assert job.run(python, driver, STANDIN_TENSORRT=release) == 0, job.log()
    kept = {path.stem: np.load(path) for path in (job.out / "0").glob("*.npy")}
    return job.record(), kept


def ended(folder: Path, driver: Path, step: Step, release: str = "10.7.0") -> tuple[str, str]:
    record, _ = ran(folder, driver, step, release=release)
    return record["ended"], record["detail"]


@pytest.mark.parametrize("release", RELEASES)
def test_samples_of_several_shapes_run_in_one_engine(driver: Path, release: str, tmp_path: Path) -> None:
    inputs = {"x.s0": X, "x.s1": X[:1], "x.s2": np.repeat(X, 2, axis=0)}
    step = own(DYNAMIC, inputs, profile=PROFILE, samples=[".s0", ".s1", ".s2"])
    record, kept = ran(tmp_path, driver, step, release=release)
    assert (record["ended"], record["detail"]) == ("ran", "")
    assert sorted(kept) == ["y.s0", "y.s1", "y.s2"]
    for name, x in inputs.items():
        assert np.array_equal(kept["y" + name[1:]], np.maximum(x, 0))


PROFILES = [
    (None, "build failed", "dynamic inputs without shapes in the profile: x [-1, 3]"),
    ({}, "build failed", "dynamic inputs without shapes in the profile: x [-1, 3]"),
    ({**PROFILE, "w": [[1], [1], [1]]}, "build failed", "the profile names w; the network's inputs are x"),
    ({"x": [[1, 4], [2, 4], [4, 4]]}, "build failed",
     "the profile of x is refused: [1, 4] is no shape of the input, which is [-1, 3]"),
    ({"x": [[1, 3], [1, 3]]}, "crashed",
     "raised ValueError: profile of x: 2 shapes, not the least, the best and the largest"),
    ({"x": [[2, 3], [1, 3], [4, 3]]}, "crashed",
     "raised ValueError: profile of x: (2, 3), (1, 3), (4, 3): three shapes of one length are wanted, none "
     "larger than the next"),
    ({"x": [[3, 3], [3, 3], [4, 3]]}, "crashed",
     "input x: the engine does not take the shape [2, 3]; it was built for [3, 3]; [3, 3]; [4, 3]"),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "how", "detail"), PROFILES)
def test_a_profile_that_does_not_fit_names_the_input(
    driver: Path, profile: Any, how: str, detail: str, tmp_path: Path
) -> None:
    assert ended(tmp_path, driver, own(DYNAMIC, profile=profile)) == (how, detail)


def test_a_static_graph_ignores_its_profile_and_names_a_wrong_shape(driver: Path, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.mkdir()
    wrong.mkdir()
    assert ended(right, driver, own(GRAPH, profile={"x": [[2, 3]] * 3})) == ("ran", "")
    detail = "input x: the engine does not take the shape [1, 3]; it was built for [2, 3]"
    assert ended(wrong, driver, own(GRAPH, {"x": X[:1]})) == ("crashed", detail)


def test_shapes_that_do_not_fit_each_other_are_told_with_their_inputs(driver: Path, tmp_path: Path) -> None:
    profile = dict.fromkeys("xz", PROFILE["x"])
    how, detail = ended(tmp_path, driver, own(TWO, {"x": X, "z": X[:1]}, profile=profile))
    assert how == "crashed"
    assert detail == (
        "the inputs' shapes do not fit each other or the profile: x [2, 3], z [1, 3]: "
        "broadcast: dimensions differ"
    )


def test_an_input_that_is_not_given_is_named(driver: Path, tmp_path: Path) -> None:
    profile = dict.fromkeys("xz", PROFILE["x"])
    how, detail = ended(tmp_path, driver, own(TWO, {"x": X}, profile=profile))
    assert (how, detail) == ("crashed", "the engine has an input z, which is not given; given are: x")


@pytest.mark.parametrize("release", ["8.6.1", "10.7.0"])
def test_a_shape_tensor_lies_on_the_host_and_has_values_in_the_profile(
    driver: Path, release: str, tmp_path: Path
) -> None:
    graph = {**DYNAMIC, "inputs": {**DYNAMIC["inputs"], "n": ["int64", [2]]}, "host": ["n"]}
    values = {**PROFILE, "n": [[1, 1], [2, 3], [9, 9]]}
    inputs = {"x": X, "n": np.array([2, 3], np.int64)}
    record, kept = ran(tmp_path, driver, own(graph, inputs, profile=values), release=release)
    assert record["ended"] == "ran", record["detail"]
    assert np.array_equal(kept["y"], np.maximum(X, 0))


EXPANDS: dict[str, Any] = {
    "inputs": {"x": ["float32", [2, 1]], "n": ["int64", [2]]}, "outputs": {"y": ["float32", [-1, -1]]},
    "host": ["n"], "expands": {"y": "n"},
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_the_values_of_a_shape_tensor_decide_an_outputs_shape(
    driver: Path, release: str, tmp_path: Path
) -> None:
    inputs = {f"x.s{k}": X[:, :1] for k in range(2)}
    inputs |= {"n.s0": np.array([2, 3], np.int64), "n.s1": np.array([2, 5], np.int64)}
    step = own(EXPANDS, inputs, profile={"n": [[2, 1], [2, 3], [2, 5]]}, samples=[".s0", ".s1"])
    record, kept = ran(tmp_path, driver, step, release=release)
    assert (record["ended"], record["detail"]) == ("ran", "")
    for name, size in (("y.s0", 3), ("y.s1", 5)):
        assert np.array_equal(kept[name], np.broadcast_to(np.maximum(X[:, :1], 0), (2, size)))


def test_values_outside_of_the_profile_are_told_with_the_input(driver: Path, tmp_path: Path) -> None:
    inputs = {"x": X[:, :1], "n": np.array([2, 9], np.int64)}
    how, detail = ended(tmp_path, driver, own(EXPANDS, inputs, profile={"n": [[2, 1], [2, 3], [2, 5]]}))
    assert how == "crashed"
    assert detail == (
        "the inputs' shapes do not fit each other or the profile: x [2, 1], n = [2, 9]: "
        "n: the values are outside of the profile"
    )


def test_a_scalar_stays_one(python: Path, driver: Path, tmp_path: Path) -> None:
    graph = {"inputs": {"x": ["float32", []]}, "outputs": {"y": ["float32", []]}}
    record, kept = ran(tmp_path, driver, own(graph, {"x": np.array(2, np.float32)}), python)
    assert record["ended"] == "ran", record["detail"]
    assert (kept["y"].shape, record["kept"]["y"]["shape"]) == ((), [])


DTYPES = [
    ("8.6.1", "int64", np.array([[1, -2, 3], [4, 5, -6]], np.int64), "ran", ""),
    ("8.6.1", "int64", np.array([[1 << 31, 0, 0]] * 2), "unsupported by this version",
     "input x holds 2147483648, and the engine takes int32 (-2147483648 to 2147483647)"),
    ("10.7.0", "int64", np.array([[1 << 31, 0, 0]] * 2), "ran", ""),
    ("10.7.0", "bool", np.array([[0, 1, 1]] * 2, np.uint8), "ran", ""),
    ("10.7.0", "uint8", np.array([[False, True, True]] * 2), "ran", ""),
    ("10.7.0", "bool", np.array([[0, 1, 2]] * 2, np.uint8), "crashed",
     "raised ValueError: x: engine wants bool, got uint8"),
    ("10.7.0", "float32", X.astype(np.float64), "unsupported by this version",
     "input x is float64 and the engine takes float32: TensorRT has no float64; export the model in float32 "
     "and give its inputs so"),
    ("10.7.0", "float32", X.astype(np.int64), "crashed",
     "raised ValueError: x: engine wants float32, got int64"),
]  # fmt: skip


@pytest.mark.parametrize(("release", "dtype", "x", "how", "detail"), DTYPES)
def test_inputs_are_cast_where_no_value_changes(
    driver: Path, release: str, dtype: str, x: Any, how: str, detail: str, tmp_path: Path
) -> None:
    graph = {"inputs": {"x": [dtype, [2, 3]]}, "outputs": {"y": [dtype, [2, 3]]}}
    record, kept = ran(tmp_path, driver, own(graph, {"x": x}), release=release)
    assert (record["ended"], record["detail"]) == (how, detail)
    if how == "ran":
        assert kept["y"].tolist() == np.maximum(x, 0).astype(kept["y"].dtype).tolist()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("positive", [True, False])
def test_an_output_may_be_as_long_as_the_data_say(
    driver: Path, release: str, positive: bool, tmp_path: Path
) -> None:
    graph = {"inputs": GRAPH["inputs"], "outputs": {"y": ["float32", [2, 3]], "found": ["float32", [-1]]}}
    x = X if positive else -np.abs(X)
    record, kept = ran(tmp_path, driver, own(graph, {"x": x}), release=release)
    assert record["ended"] == "ran", record["detail"]
    assert kept["found"].tolist() == x[x > 0].tolist()
    assert record["measurements"]["outputs"]["found"]["count"] == (x > 0).sum()


def test_no_memory_for_such_an_output_is_told_as_that(driver: Path, tmp_path: Path) -> None:
    graph = {"inputs": {"x": ["float16", [64, 64]]}, "outputs": {"found": ["float32", [-1]]}}
    job = Job(tmp_path, [own(graph, {"x": np.ones((64, 64), np.float16)})])
    assert job.run(MAIN, driver, STANDIN_DEVICE_BYTES="16383") == 0
    assert job.record()["ended"] == "out of GPU memory"


QUANTIZED = {  # release: flags that a graph with Q/DQ gets for int8 and for fp8; None: it has none
    "8.5.3.1": ("INT8", None), "8.6.1": ("INT8", "FP8"), "9.2.0.post12.dev5": ("INT8", "FP8"),
    "10.7.0": ("INT8", "FP8"), "11.1.0": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize("release", QUANTIZED)
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_quantized_graph_gets_its_flag_where_types_are_weak(
    driver: Path, release: str, kind: str, tmp_path: Path
) -> None:
    flag = QUANTIZED[release][kind == "fp8"]
    graph = {**GRAPH, "quantized": [flag] if flag else []}
    record, _ = ran(tmp_path, driver, own(graph, quantized=[kind]), release=release)
    if flag is None:
        assert record["ended"] == "unsupported by this version"
        assert record["detail"] == "8.5.3.1 cannot run a graph quantized to FP8: it has no such flag"
        return
    assert record["ended"] == "ran", record["detail"]
    assert set(record["engine"]["layers"][0].split()) & {"INT8", "FP8"} == ({flag} if flag else set())


def test_an_unknown_quantization_is_refused(driver: Path, tmp_path: Path) -> None:
    how, detail = ended(tmp_path, driver, own(GRAPH, quantized=["int3"]))
    assert (how, detail) == ("crashed", "raised ValueError: quantized: int3; known are int8, fp8")


@pytest.mark.parametrize("release", ["8.5.3.1", "10.7.0", "11.1.0"])
def test_weights_beside_the_model_are_found(driver: Path, release: str, tmp_path: Path) -> None:
    step = own({}, {"x": X})
    job = Job(tmp_path, [step])
    add_weights(tmp_path / "cases" / "0", standin={**GRAPH, "weights": "weights.bin"})
    assert job.run(MAIN, driver, STANDIN_TENSORRT=release) == 0, job.log()
    assert (job.record()["ended"], job.record()["detail"]) == ("ran", "")


def test_a_case_without_references_is_looked_at_alone_and_kept(
    python: Path, driver: Path, tmp_path: Path
) -> None:
    x = np.array([[np.nan, -1, np.inf], [-2, 0, 5]], np.float32)
    record, kept = ran(tmp_path, driver, own(GRAPH, {"x": x}), python)
    assert record["ended"] == "ran", record["detail"]
    assert record["measurements"]["outputs"] == {
        "y": {"count": 6, "nan": 1, "inf": 1, "zeros": 3, "share_zeros": 0.5}
    }
    assert record["kept"] == {"y": {"dtype": "float32", "shape": [2, 3]}}
    assert np.array_equal(kept["y"], np.maximum(x, 0), equal_nan=True)


def test_hundreds_of_samples_hold_no_files_open(python: Path, driver: Path, tmp_path: Path) -> None:
    inputs = {f"x.s{k:03}": X + k for k in range(300)}
    step = own(GRAPH, inputs, samples=[f".s{k:03}" for k in range(300)])
    job = Job(tmp_path, [step, Step(does="pass")])
    assert job.run(python, driver) == 0, job.log()
    assert job.record()["ended"] == "ran", job.record()["detail"]
    assert len(job.record()["kept"]) == 300
    assert job.record()["measurements"]["scalars"]["open_files"] < 64
    assert job.record(1)["worker"] == {**job.record(1)["worker"], "number": 0, "position": 1}


def test_the_first_run_leaves_its_latency(python: Path, driver: Path, tmp_path: Path) -> None:
    inputs = {"x.s0": X, "x.s1": X + 1}
    record, kept = ran(tmp_path, driver, own(GRAPH, inputs, samples=[".s0", ".s1"]), python)
    engine = record["engine"]
    assert engine["latency"] == {"median_ms": 1.5, "low_ms": 1.5, "high_ms": 1.5, "runs": 50}
    assert engine["run_ms"] == 1.5
    assert engine["device_memory_bytes"] == 8192
    assert engine["clocks"] == {}, "the stand-in has no NVML"
    assert np.array_equal(kept["y.s1"], np.maximum(X + 1, 0)), "timing disturbs no output"


@pytest.mark.parametrize(("release", "size"), [("8.6.1", 4096), ("10.0.1", 4096), ("11.1.0", 8192)])
def test_device_memory_is_asked_of_each_release_in_its_way(
    driver: Path, release: str, size: int, tmp_path: Path
) -> None:
    record, _ = ran(tmp_path, driver, own(GRAPH), release=release)
    assert record["engine"]["device_memory_bytes"] == size
    assert json.dumps(record)
