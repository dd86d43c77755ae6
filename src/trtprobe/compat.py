"""The image's own driver library, where the host's driver is older than the image's CUDA needs.

NVIDIA's images keep one beside CUDA: https://docs.nvidia.com/deploy/cuda-compatibility/.
A script that every shell there reads puts it on the loader's path; cells are started without a shell, and
NVIDIA's Container Toolkit looks in the folder above it alone. So the host names the folders: the first that
has a driver library goes first on the path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Mapping, Optional

VARIABLE = "TRTMATRIX_CUDA_COMPAT"


def with_driver_library(environment: Mapping[str, str]) -> Optional[Dict[str, str]]:
    """Return the environment to start anew in, or None where this one will do: the loader reads it once."""
    folders = environment.get(VARIABLE, "").split(":")
    found = [folder for folder in folders if folder and Path(folder, "libcuda.so.1").is_file()]
    if not found:
        return None
    new = {name: value for name, value in environment.items() if name != VARIABLE}
    paths = [found[0], environment.get("LD_LIBRARY_PATH", "")]
    new["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    return new
