"""``python trtprobe supervise …``, also run by its folder's path."""

import os
import sys
from pathlib import Path
from typing import Dict, Mapping, Optional

COMPAT = "TRTMATRIX_CUDA_COMPAT"
"""Folders that may hold the image's own driver library, for where the host's driver is older than the image's
CUDA needs (https://docs.nvidia.com/deploy/cuda-compatibility/). A script that every shell in NVIDIA's images
reads puts it on the loader's path; cells are started without a shell, and NVIDIA's Container Toolkit looks in
the folder above it alone. So the host names the folders."""


def with_driver_library(environment: Mapping[str, str]) -> Optional[Dict[str, str]]:
    """Return the environment to start anew in, or None where this one will do: the loader reads it once.

    The first folder that has a driver library goes first on the loader's path.
    """
    folders = environment.get(COMPAT, "").split(":")
    found = [folder for folder in folders if folder and Path(folder, "libcuda.so.1").is_file()]
    if not found:
        return None
    new = {name: value for name, value in environment.items() if name != COMPAT}
    new["LD_LIBRARY_PATH"] = ":".join(filter(None, [found[0], environment.get("LD_LIBRARY_PATH", "")]))
    return new


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    renewed = with_driver_library(os.environ)
    if renewed is not None:
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], renewed)  # noqa: S606 - this very program
    if sys.argv[1:2] == ["surface"]:
        from trtprobe.surface import main
    else:
        from trtprobe.supervisor import main

    if sys.argv[1:2] not in (["supervise"], ["surface"]):
        sys.exit("usage: python trtprobe supervise --job DIR --cases DIR --repros DIR --out DIR")
    sys.exit(main(sys.argv[2:]))
