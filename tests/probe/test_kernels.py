"""Which kernels a run launches, over a stand-in for CUPTI, and what that says of fusion."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.probe.compiled import HERE, compile_library
from trtprobe.backends import kernels
from trtprobe.backends.kernels import launched_kernels, see_fusion


@pytest.fixture(scope="module")
def cupti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cupti")
    compile_library(folder / "libcupti.so.12", (HERE / "standins" / "libcupti.c").read_text())
    return folder / "libcupti.so.12"


@pytest.fixture
def traced(cupti: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(kernels, "_candidates", lambda: iter(["/nowhere/libcupti.so", str(cupti)]))
    return monkeypatch


def launches(text: str) -> tuple[list[str] | None, int]:
    calls: list[int] = []
    libc = ctypes.CDLL(None)
    libc.setenv(b"STANDIN_LAUNCHES", text.encode(), 1)
    try:
        return launched_kernels(lambda: calls.append(1)), len(calls)
    finally:
        libc.unsetenv(b"STANDIN_LAUNCHES")


@pytest.mark.usefixtures("traced")
def test_each_launch_is_named_once_in_order() -> None:
    text = "cuMemcpy:- cuLaunchKernel:gemm cuLaunchKernelEx:fmha_v2 cuLaunchKernel:gemm"
    assert launches(text) == (["gemm", "fmha_v2", "gemm"], 1)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("text", ["", "cuGraphLaunch:- cuLaunchKernel:gemm", "cuLaunchKernel:-"])
def test_what_cannot_be_seen_whole_is_not_seen(text: str) -> None:
    assert launches(text) == (None, 1)


FOREIGN = ["{ForeignNode[/Transpose.../MatMul_1]}"]
SEEN = [
    (["_gemm_mha_v2_myl3_6"], None, "fused"),
    (["Reformat", "/MatMul_myl3_1"], None, "plain"),
    (FOREIGN, None, "?"),
    ([], None, "?"),
    (FOREIGN, ["fmha_v2_flash_attention_fp16_S_80_sm90"], "fused"),
    (FOREIGN, ["sm80_xmma_gemm_f16f16", "__myl_softmax"], "plain"),
    (["/flash/mha/MatMul"], None, "plain"),  # the user's own names say nothing
    (["/mha/MatMul"], ["sm80_xmma_gemm_f16f16"], "plain"),
]


@pytest.mark.parametrize(("layers", "launched", "word"), SEEN)
def test_fusion_is_told_from_what_is_seen(layers: list[str], launched: list[str] | None, word: str) -> None:
    assert see_fusion(layers, launched) == word
