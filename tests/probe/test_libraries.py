"""The libraries that were loaded: TensorRT's four-part version, and the driver's that the host names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.probe.compiled import compile_library
from tests.probe.jobs import MAIN, PROBE, Job, Step
from trtprobe.__main__ import COMPAT, with_driver_library

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
