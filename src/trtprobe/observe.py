"""What an image really ships and what really was loaded, read from inside."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

NUMERIC_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "OMP_NUM_THREADS",
    "ORT_DISABLE_TELEMETRY",
)
"""Environment variables that change numbers or timing."""

UNSET = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
"""Those that NGC's images or a user's shell may set and that a cell must not inherit."""


def environment() -> Dict[str, str]:
    """Return those of the numeric variables that are set."""
    return {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ}


def observed() -> Dict[str, Any]:
    """Return what is known before the product is imported."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cuda": os.environ.get("CUDA_VERSION"),
        "driver": _kernel_driver(),
        "torch": package_version("torch"),
        "torch_tensorrt": package_version("torch_tensorrt"),
        "numpy": package_version("numpy"),
    }


def package_version(name: str) -> Optional[str]:
    """Return an installed distribution's version without importing it, or None."""
    try:
        from importlib.metadata import version

        return version(name)
    except Exception:
        return None


def loaded_libraries(pattern: str) -> List[str]:
    """Return the paths of the shared libraries of this process whose file name matches."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {fields[5].strip() for fields in (line.split(None, 5) for line in lines) if len(fields) == 6}
    return sorted(path for path in paths if re.search(pattern, Path(path).name))


def loaded() -> Dict[str, Any]:
    """Return what the product pulled in: the driver library and cuDNN, as loaded."""
    cuda = loaded_libraries(r"^libcuda\.so")
    return {"libcuda": cuda[0] if cuda else None, "cudnn": _cudnn_version()}


def _cudnn_version() -> Optional[str]:
    for path in loaded_libraries(r"^libcudnn\.so"):
        try:
            get = ctypes.CDLL(path).cudnnGetVersion
            get.restype = ctypes.c_size_t
            number = int(get())
        except (OSError, AttributeError):
            continue
        major = 10000 if number >= 90000 else 1000
        return "%d.%d.%d" % (number // major, number % major // 100, number % 100)
    return None


def _kernel_driver() -> Optional[str]:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return match.group(1) if match else None
