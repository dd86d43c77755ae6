"""The libraries that were loaded, by version and place; which kernels a run launches, and if it is fused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.surfaces import compile_library

from tests.probe.jobs import HERE, MAIN, PROBE, Job, Step
from trtprobe.__main__ import COMPAT, with_driver_library
from trtprobe.backends import kernels
from trtprobe.backends.kernels import launched_kernels, see_fusion

CODE = """
import ctypes, sys
sys.path.insert(0, {source!r})
from trtprobe.backends.tensorrt_gpu import LIBRARY, _library_version
loaded = ctypes.CDLL({path!r})
print(_library_version(LIBRARY))
"""

PACKED = [
    (8503, None, "libnvinfer.so.8", "8.5.3"),
    (8601, None, "libnvinfer.so.8.6.1.6", "8.6.1.6"),
    (100001, 6, "libnvinfer.so.10", "10.0.1.6"),
    (101303, 9, "libnvinfer.so.10.13.3", "10.13.3.9"),
    (None, None, "libnvinfer.so.10", "None"),
    (100700, 23, "libnvinfer_plugin.so.10", "None"),
]


@pytest.mark.usefixtures("driver")  # which fails or is left out where nothing can be compiled
@pytest.mark.parametrize(("packed", "build", "name", "expected"), PACKED)
def test_the_version_is_the_loaded_library_s_own(
    packed: int | None, build: int | None, name: str, expected: str, tmp_path: Path
) -> None:
    source = "int nothing;\n"
    if packed is not None:
        source += f"int getInferLibVersion(void) {{ return {packed}; }}\n"
    if build is not None:
        source += f"int getInferLibBuildVersion(void) {{ return {build}; }}\n"
    compile_library(tmp_path / name, source)
    code = CODE.format(source=str(PROBE.parent), path=str(tmp_path / name))
    done = subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_the_first_folder_that_has_one_goes_first(python: Path, driver: Path, tmp_path: Path) -> None:
    ours = tmp_path / "compat" / "lib.real"
    shutil.copytree(driver, ours)
    (tmp_path / "named").mkdir()
    job = Job(tmp_path / "named", [Step(does="pass")])
    assert job.run(python, driver, **{COMPAT: f"{tmp_path / 'nothing'}:{ours}:{driver}"}) == 0, job.log()
    assert job.record()["observed"]["libcuda"] == str(ours / "libcuda.so.1")


@pytest.mark.parametrize(("path", "after"), [("", ""), ("/a:/b", ":/a:/b")])
def test_the_image_s_own_path_is_kept_behind_it(tmp_path: Path, path: str, after: str) -> None:
    (tmp_path / "libcuda.so.1").touch()
    environment = {COMPAT: str(tmp_path), "LD_LIBRARY_PATH": path, "HOME": "/h"}
    assert with_driver_library(environment) == {"LD_LIBRARY_PATH": f"{tmp_path}{after}", "HOME": "/h"}


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
