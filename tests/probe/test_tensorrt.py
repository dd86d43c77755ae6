"""What is asked of each TensorRT release, and how its refusals end, over stand-ins of the releases."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.probe.jobs import GRAPH, STANDINS
from trtprobe import ends
from trtprobe.backends import open_backend, tensorrt_gpu
from trtprobe.backends.base import PRECISIONS

RELEASES = ("8.5.3.1", "8.6.1", "9.2.0.post12.dev5", "10.0.1", "10.7.0", "11.1.0")


ATTENTION = [{"type": "MATRIX_MULTIPLY", "output": "s"}, {"type": "SOFTMAX", "output": "p"}]


class NoCuda:
    """A driver that is there; nothing is run over it."""

    def synchronize(self) -> None:
        """Do nothing."""

    def facts(self) -> dict[str, Any]:
        return {}


Open = Callable[..., Any]


@pytest.fixture
def open_release(monkeypatch: pytest.MonkeyPatch) -> Open:
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
    backend.build(model(folder), precision=precision, level=level)
    (layer,) = backend.facts["layers"]
    return set(layer.split())


@pytest.mark.parametrize("release", RELEASES)
def test_precision_and_level_are_each_release_s_own(open_release: Open, release: str, tmp_path: Path) -> None:
    flags = {"tf32": {"TF32"}, "fp32": set[str](), "fp16-flag": {"TF32", "FP16"}}
    if release == "11.1.0":
        del flags["fp16-flag"]
        gone: dict[str, dict[str, Any]] = {
            "no FP16 flag": {"precision": "fp16-flag"}, "precision constraints": {"keep_fp32": ("Softmax",)},
        }  # fmt: skip
        for why, asked in gone.items():
            with pytest.raises(ends.Unsupported, match=why):
                open_release(release).build(model(tmp_path, layers=ATTENTION), **asked)
    for precision, wanted in flags.items():
        assert built(open_release(release), tmp_path, precision) & {"TF32", "FP16"} == wanted
    typed = {"FP16"} if release.startswith("8") else {"strong"}
    assert built(open_release(release), tmp_path, "fp16") & {"TF32", "FP16", "strong"} == {"TF32"} | typed

    backend = open_release(release)
    words = built(backend, tmp_path, "tf32", level=0)
    if release.startswith("8.5"):
        assert "level=None" in words
        assert backend.facts["level_ignored"] == 0
    else:
        assert "level=0" in words
        assert "level_ignored" not in backend.facts
        assert "level=3" in built(open_release(release), tmp_path, "tf32"), "the default is left alone"


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_softmax_is_kept_in_float32_under_the_flag(open_release: Open, release: str, tmp_path: Path) -> None:
    backend = open_release(release)
    backend.build(model(tmp_path, layers=ATTENTION), precision="fp16-flag", keep_fp32=("Softmax",))
    (words,) = backend.facts["layers"]
    assert set(words.split()) >= {"FP16", "OBEY_PRECISION_CONSTRAINTS", "SOFTMAX=FLOAT"}
    assert "MATRIX_MULTIPLY=FLOAT" not in words
    backend.build(model(tmp_path, layers=ATTENTION), precision="fp16-flag")
    assert "FLOAT" not in backend.facts["layers"][0]
    assert "OBEY" not in backend.facts["layers"][0]


@pytest.mark.parametrize(
    ("precision", "dtype"), [("tf32", "FLOAT"), ("fp16", "FLOAT"), ("fp16-flag", "HALF")]
)
def test_inner_tensors_become_outputs(open_release: Open, precision: str, dtype: str, tmp_path: Path) -> None:
    backend = open_release("8.6.1")
    backend.build(model(tmp_path, layers=ATTENTION), precision=precision, outputs=("p",))
    assert f"p:{dtype}" in backend.facts["layers"][0].split()
    with pytest.raises(ends.BuildFailed, match="no tensor q"):
        backend.build(model(tmp_path, layers=ATTENTION), outputs=("q",))


def test_plugins_are_registered(open_release: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ends.Unsupported, match="the parser refused the graph: Plugin not found"):
        open_release("8.6.1").build(model(tmp_path, plugins=["P"]))
    open_release("8.6.1").build(model(tmp_path, plugins=["P"]), plugins=True)
    monkeypatch.setenv("STANDIN_NO_PLUGINS", "1")
    with pytest.raises(ends.ComponentMissing, match="plugin library"):
        open_release("8.6.1").build(model(tmp_path, plugins=["P"]), plugins=True)


NO_ENGINE = "the builder returned no engine: "
REFUSALS: list[tuple[dict[str, Any], type[ends.CellEnd], str]] = [
    ({"says": text}, end, NO_ENGINE + text)
    for text, end in (
        ("Error Code 10: Could not find any implementation for node", ends.BuildFailed),
        ("Error Code 2: OutOfMemory (Requested size was 68719476736 bytes.)", ends.OutOfGpuMemory),
        ("Error Code 1: Cuda Runtime (out of memory)", ends.OutOfGpuMemory),
        ("virtualMemoryBuffer.cpp: CUDA_ERROR_OUT_OF_MEMORY", ends.OutOfGpuMemory),
    )
]
REFUSALS += [
    ({"undeserializable": True}, ends.BuildFailed, "cannot be deserialized: no message"),
    ({"context_says": "unsupported"}, ends.RunFailed, "no execution context: unsupported"),
    ({"context_says": "out of memory"}, ends.OutOfGpuMemory, "out of memory"),
    ({"inputs": None}, ends.BuildFailed, "the parser refused the graph: "),
]


@pytest.mark.parametrize(("fields", "end", "words"), REFUSALS)
def test_what_the_product_says_decides_how_the_cell_ends(
    open_release: Open, fields: dict[str, Any], end: type[ends.CellEnd], words: str, tmp_path: Path
) -> None:
    path = model(tmp_path, **fields)
    if fields.get("inputs", 1) is None:
        path.write_bytes(b"no JSON")
    with pytest.raises(end) as raised:
        open_release("10.7.0").build(path)
    assert type(raised.value) is end
    assert words in str(raised.value)


def test_warnings_are_printed_and_not_blamed(
    open_release: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ends.BuildFailed, match=r"^the builder returned no engine: refused$"):
        open_release("8.6.1").build(model(tmp_path, warns="tactic skipped: out of memory", says="refused"))
    assert capsys.readouterr().out == "[WARNING] tactic skipped: out of memory\n[ERROR] refused\n"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rtx_is_built_alone_and_says_its_lacks(open_release: Open, precision: str, tmp_path: Path) -> None:
    backend = open_release("-", product="tensorrt-rtx")
    end = ends.Unsupported if precision == "fp16-flag" else ends.BuiltOnly
    with pytest.raises(end):
        backend.build(model(tmp_path), precision=precision, level=5)
    assert (backend.observed()["library"], backend.has_streams) == ("1.4.0.76", False)
    for asked in ({"plugins": True}, {"keep_fp32": ("Softmax",)}):
        with pytest.raises(ends.Unsupported, match=r"plugin library|constraints"):
            backend.build(model(tmp_path), **asked)
