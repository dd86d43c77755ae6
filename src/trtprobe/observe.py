"""What an image really ships and what really was loaded, read from inside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Optional

UNSET = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
"""Variables that NGC's images or a user's shell may set and that a cell must not inherit."""

NUMERIC_VARIABLES = (
    *UNSET, "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "OMP_NUM_THREADS", "ORT_DISABLE_TELEMETRY",
)  # fmt: skip
"""Environment variables that change numbers or timing."""


def environment() -> Dict[str, str]:
    """Return those of the numeric variables that are set."""
    return {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ}


def observed() -> Dict[str, Any]:
    """Return what is known before the product is imported."""
    driver = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", _read("/proc/driver/nvidia/version"))
    return {
        "python": platform.python_version(), "machine": platform.machine(),
        "cuda": os.environ.get("CUDA_VERSION"), "driver": driver.group(1) if driver else None,
        **{name: package_version(name) for name in ("torch", "torch_tensorrt", "numpy")},
    }  # fmt: skip


@lru_cache(maxsize=64)  # a process may serve many cells
def package_version(name: str) -> Optional[str]:
    """Return an installed distribution's version without importing it, or None."""
    with contextlib.suppress(Exception):
        return version(name)
    return None


def loaded_libraries(pattern: str) -> List[str]:
    """Return the paths of the shared libraries of this process whose file name matches, sorted."""
    paths = sorted({path.rstrip() for path in re.findall(r" (/.*)", _read("/proc/self/maps"))})
    return [path for path in paths if re.search(pattern, path.rpartition("/")[2])]


def loaded() -> Dict[str, Any]:
    """Return what the product pulled in: the driver library and cuDNN, as loaded."""
    cuda, cudnn = loaded_libraries(r"^libcuda\.so"), loaded_libraries(r"^libcudnn\.so")
    versions = filter(None, map(_cudnn_version, cudnn))
    return {"libcuda": cuda[0] if cuda else None, "cudnn": next(versions, None)}


@lru_cache(maxsize=64)
def _cudnn_version(path: str) -> Optional[str]:
    try:
        get = ctypes.CDLL(path).cudnnGetVersion
    except (OSError, AttributeError):
        return None
    get.restype = ctypes.c_size_t
    number = int(get())
    major = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""
