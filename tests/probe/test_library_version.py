"""The four-part version is read from the library that was loaded, as each release packs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.probe.compiled import compile_library
from tests.probe.jobs import MAIN, PROBE

CODE = """
import ctypes, sys
sys.path.insert(0, {source!r})
from trtprobe.backends.tensorrt_gpu import LIBRARY, _library_version
loaded = [ctypes.CDLL(path) for path in {paths!r}]
print(_library_version(LIBRARY))
"""

PACKED = [
    (8503, None, "libnvinfer.so.8", "8.5.3"),
    (8600, None, "libnvinfer.so.8.6.0", "8.6.0"),
    (8601, None, "libnvinfer.so.8.6.1.6", "8.6.1.6"),
    (9200, None, "libnvinfer.so.9.2.0.5", "9.2.0.5"),
    (100001, 6, "libnvinfer.so.10", "10.0.1.6"),
    (100700, 23, "libnvinfer.so.10.7.0", "10.7.0.23"),
    (101303, 9, "libnvinfer.so.10.13.3", "10.13.3.9"),
    (110100, 106, "libnvinfer.so.11.1.0", "11.1.0.106"),
    (None, None, "libnvinfer.so.10", "None"),
    (100700, 23, "libnvinfer_plugin.so.10", "None"),
]


def version_told(paths: list[Path]) -> str:
    code = CODE.format(source=str(PROBE.parent), paths=[str(path) for path in paths])
    return subprocess.run([MAIN, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


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
    assert version_told([tmp_path / name]) == expected


def test_without_the_library_there_is_no_version() -> None:
    assert version_told([]) == "None"
