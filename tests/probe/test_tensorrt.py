"""What is asked of each TensorRT release, and how its refusals end, over stand-ins of the releases."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import GRAPH, MAIN, STANDINS, Job, Step
from trtprobe import ends
from trtprobe.backends import open_backend, tensorrt_gpu
from trtprobe.backends.base import PRECISIONS

RELEASES = ("8.5.3.1", "8.6.1", "9.2.0.post12.dev5", "10.0.1", "10.7.0", "11.1.0")


class NoCuda:
    """A driver that is there; nothing is run over it."""

    def synchronize(self) -> None:
        """Do nothing."""

    def facts(self) -> dict[str, Any]:
        """Tell nothing."""
        return {}


Open = Callable[..., Any]


@pytest.fixture
def open_release(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens the backend over the stand-in of a release."""

    def open_one(release: str, product: str = "tensorrt") -> Any:
        monkeypatch.setenv("STANDIN_TENSORRT", release)
        for name in ("tensorrt", "tensorrt_rtx_bindings"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(str(STANDINS))
        monkeypatch.setattr(tensorrt_gpu, "Cuda", NoCuda)
        return open_backend(product)

    return open_one


def model(folder: Path, **more: object) -> Path:
    path = folder / "model.onnx"
    path.write_text(json.dumps({**GRAPH, **more}))
    return path


def built(backend: Any, folder: Path, precision: str, level: int | None = None) -> set[str]:
    """Build and return the flags, strong typing and level that the stand-in engine tells."""
    backend.build(model(folder), precision=precision, level=level)
    (layer,) = backend.facts["layers"]
    return set(layer.split())


@pytest.mark.parametrize("release", RELEASES)
def test_tf32_is_set_or_cleared_never_left(open_release: Open, release: str, tmp_path: Path) -> None:
    assert "TF32" in built(open_release(release), tmp_path, "tf32")
    assert "TF32" not in built(open_release(release), tmp_path, "fp32")
    assert "TF32" in built(open_release(release), tmp_path, "fp16")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("8.5.3.1", {"FP16"}), ("8.6.1", {"FP16"}), ("9.2.0.post12.dev5", {"strong"}),
        ("10.0.1", {"strong"}), ("10.7.0", {"strong"}), ("11.1.0", {"strong"}),
    ],
)  # fmt: skip
def test_a_typed_fp16_graph_is_strongly_typed_where_that_exists(
    open_release: Open, release: str, expected: set[str], tmp_path: Path
) -> None:
    assert built(open_release(release), tmp_path, "fp16") & {"FP16", "strong"} == expected


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_float32_has_no_fp16_flag(open_release: Open, release: str, precision: str, tmp_path: Path) -> None:
    assert "FP16" not in built(open_release(release), tmp_path, precision)


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_the_fp16_flag_leaves_the_network_weakly_typed(
    open_release: Open, release: str, tmp_path: Path
) -> None:
    assert built(open_release(release), tmp_path, "fp16-flag") >= {"FP16", "TF32"}


def test_the_fp16_flag_is_gone_in_11(open_release: Open, tmp_path: Path) -> None:
    with pytest.raises(ends.Unsupported, match="no FP16 flag"):
        open_release("11.1.0").build(model(tmp_path), precision="fp16-flag")


@pytest.mark.parametrize("release", RELEASES)
def test_the_level_is_set_or_its_absence_is_told(open_release: Open, release: str, tmp_path: Path) -> None:
    backend = open_release(release)
    words = built(backend, tmp_path, "tf32", level=0)
    if release.startswith("8.5"):
        assert "level=None" in words
        assert backend.facts["level_ignored"] == 0
    else:
        assert "level=0" in words
        assert "level_ignored" not in backend.facts
        assert "level=3" in built(open_release(release), tmp_path, "tf32"), "the default is left alone"


ATTENTION = [
    {"type": "MATRIX_MULTIPLY", "output": "s"}, {"type": "SOFTMAX", "output": "p"},
]  # fmt: skip


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_softmax_is_kept_in_float32_under_the_fp16_flag(
    open_release: Open, release: str, tmp_path: Path
) -> None:
    backend = open_release(release)
    backend.build(model(tmp_path, layers=ATTENTION), precision="fp16-flag", keep_fp32=("Softmax",))
    (words,) = backend.facts["layers"]
    assert set(words.split()) >= {"FP16", "OBEY_PRECISION_CONSTRAINTS", "SOFTMAX=FLOAT"}
    assert "MATRIX_MULTIPLY=FLOAT" not in words
    backend.build(model(tmp_path, layers=ATTENTION), precision="fp16-flag")
    assert "FLOAT" not in backend.facts["layers"][0]
    assert "OBEY" not in backend.facts["layers"][0]


def test_there_are_no_precision_constraints_in_11(open_release: Open, tmp_path: Path) -> None:
    with pytest.raises(ends.Unsupported, match="precision constraints"):
        open_release("11.1.0").build(model(tmp_path, layers=ATTENTION), keep_fp32=("Softmax",))


@pytest.mark.parametrize(
    ("precision", "dtype"), [("tf32", "FLOAT"), ("fp16", "FLOAT"), ("fp16-flag", "HALF")]
)
def test_inner_tensors_become_outputs(open_release: Open, precision: str, dtype: str, tmp_path: Path) -> None:
    backend = open_release("8.6.1")
    backend.build(model(tmp_path, layers=ATTENTION), precision=precision, outputs=("p",))
    assert f"p:{dtype}" in backend.facts["layers"][0].split()
    with pytest.raises(ends.BuildFailed, match="no tensor q"):
        backend.build(model(tmp_path, layers=ATTENTION), outputs=("q",))


def test_plugins_are_registered_where_a_graph_has_one(
    open_release: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ends.Unsupported, match="the parser refused the graph: Plugin not found"):
        open_release("8.6.1").build(model(tmp_path, plugins=["P"]))
    open_release("8.6.1").build(model(tmp_path, plugins=["P"]), plugins=True)
    monkeypatch.setenv("STANDIN_NO_PLUGINS", "1")
    with pytest.raises(ends.ComponentMissing, match="plugin library"):
        open_release("8.6.1").build(model(tmp_path, plugins=["P"]), plugins=True)


@pytest.mark.parametrize("asked", [{"plugins": True}, {"keep_fp32": ("Softmax",)}])
def test_rtx_says_what_it_does_not_have(open_release: Open, asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ends.Unsupported, match=r"plugin library|constraints"):
        open_release("-", product="tensorrt-rtx").build(model(tmp_path), **asked)


def test_what_the_parser_says_is_a_failed_build(open_release: Open, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no JSON")
    with pytest.raises(ends.BuildFailed, match="the parser refused the graph: no graph"):
        open_release("10.7.0").build(path)


MESSAGES = [
    ("Error Code 10: Could not find any implementation for node", ends.BuildFailed),
    ("Error Code 2: OutOfMemory (Requested size was 68719476736 bytes.)", ends.OutOfGpuMemory),
    ("Error Code 1: Cuda Runtime (out of memory)", ends.OutOfGpuMemory),
    ("virtualMemoryBuffer.cpp: CUDA_ERROR_OUT_OF_MEMORY", ends.OutOfGpuMemory),
]


@pytest.mark.parametrize(("text", "end"), MESSAGES)
def test_what_the_builder_says_decides_how_the_cell_ends(
    open_release: Open, text: str, end: type[ends.CellEnd], tmp_path: Path
) -> None:
    with pytest.raises(end) as raised:
        open_release("10.7.0").build(model(tmp_path, says=text))
    assert type(raised.value) is end
    assert str(raised.value) == "the builder returned no engine: " + text


def test_messages_of_an_earlier_build_are_not_blamed(open_release: Open, tmp_path: Path) -> None:
    backend = open_release("10.7.0")
    with pytest.raises(ends.OutOfGpuMemory):
        backend.build(model(tmp_path, says="out of memory"))
    with pytest.raises(ends.BuildFailed, match="no implementation"):
        backend.build(model(tmp_path, says="no implementation"))


def test_warnings_are_printed_and_not_blamed(
    open_release: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ends.BuildFailed, match=r"^the builder returned no engine: refused$"):
        open_release("8.6.1").build(model(tmp_path, warns="tactic skipped: out of memory", says="refused"))
    assert capsys.readouterr().out == "[WARNING] tactic skipped: out of memory\n[ERROR] refused\n"


def test_an_engine_that_cannot_be_loaded_is_a_failed_build(open_release: Open, tmp_path: Path) -> None:
    with pytest.raises(ends.BuildFailed, match="cannot be deserialized: no message"):
        open_release("10.7.0").build(model(tmp_path, undeserializable=True))


def test_no_context_is_no_failed_build(open_release: Open, tmp_path: Path) -> None:
    with pytest.raises(ends.RunFailed, match="no execution context: unsupported"):
        open_release("10.7.0").build(model(tmp_path, context_says="unsupported"))
    with pytest.raises(ends.OutOfGpuMemory):
        open_release("10.7.0").build(model(tmp_path, context_says="out of memory"))


def test_one_builder_serves_all_builds(open_release: Open, tmp_path: Path) -> None:
    backend = open_release("10.7.0")
    built(backend, tmp_path, "tf32")
    first = backend.builder
    built(backend, tmp_path, "fp32")
    assert backend.builder is first


def test_layers_without_details_are_names(open_release: Open, tmp_path: Path) -> None:
    backend = open_release("10.7.0")
    backend.build(model(tmp_path, brief=True))
    assert backend.facts["layers"] == ["TF32 level=3"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rtx_is_built_and_not_run(open_release: Open, precision: str, tmp_path: Path) -> None:
    backend = open_release("-", product="tensorrt-rtx")
    end = ends.Unsupported if precision == "fp16-flag" else ends.BuiltOnly
    with pytest.raises(end):
        backend.build(model(tmp_path), precision=precision, level=5)
    assert backend.observed()["library"] == "1.4.0.76"
    assert not backend.has_streams


@pytest.mark.parametrize(
    ("release", "dtype"),
    [(r, d) for r in RELEASES for d in ("float32", "float16", "int64") if (r[0], d) != ("8", "int64")],
)
def test_a_run_returns_what_the_engine_wrote(driver: Path, release: str, dtype: str, tmp_path: Path) -> None:
    graph = {"inputs": {"x": ["float32", [2, 3]]}, "outputs": {"y": [dtype, [2, 3]]}}
    job = Job(tmp_path, [Step(does="pass", graph=graph, keep=True)])
    assert job.run(MAIN, driver, STANDIN_TENSORRT=release) == 0
    record = job.record()
    assert (record["ended"], record["observed"]["bindings"]) == ("ran", release)
    y = np.load(job.out / "0" / "y.npy")
    assert y.dtype == dtype
    assert y.tolist() == [[1, 0, 3], [0, 5, 0]]


RUNS = [
    ({"run_says": "illegal address"}, "crashed", "execute_async_v3 failed: illegal address"),
    ({"run_says": "out of memory"}, "out of GPU memory", "execute_async_v3 failed: out of memory"),
    (
        {"inputs": {"x": ["float16", [2, 3]]}},
        "crashed",
        "raised ValueError: x: engine wants float16, got float32",
    ),
    (
        {"outputs": {"y": ["bfloat16", [2, 3]]}},
        "unsupported by this version",
        "y is BF16, which NumPy does not have",
    ),
]


@pytest.mark.parametrize(("change", "ended", "detail"), RUNS)
def test_a_run_that_fails_says_how(
    driver: Path, change: dict[str, Any], ended: str, detail: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, [Step(does="pass", graph={**GRAPH, **change})])
    assert job.run(MAIN, driver) == 0
    assert (job.record()["ended"], job.record()["detail"]) == (ended, detail)


def test_bindings_that_load_no_library_are_a_missing_component(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tensorrt.py").write_text("import ctypes\nctypes.CDLL('libnvinfer.so.0')\n")
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ends.ComponentMissing, match="libnvinfer"):
        open_backend("tensorrt")
    assert importlib.util.find_spec("tensorrt") is not None
