"""A surface read inside a container from NVIDIA's own bindings, TensorRT-RTX's, over its real libraries."""

from __future__ import annotations

import os
import time

from tests.containers.conftest import IMAGE
from tests.containers.engines import client
from trtmatrix.api.surface import parse_surface
from trtmatrix.common.paths import probe_folder


def test_the_probe_reads_a_surface_inside_a_container_within_seconds() -> None:
    volumes = {str(probe_folder()): {"bind": "/probe/trtprobe", "mode": "ro"}}
    command = ["-B", "/probe/trtprobe", "surface", "tensorrt_rtx_bindings"]
    started = time.monotonic()
    said = client().containers.run(
        IMAGE, command, entrypoint="python3", volumes=volumes, remove=True, network_mode="none",
        read_only=True, user=f"{os.getuid()}:{os.getgid()}", cap_drop=["ALL"],
    )  # fmt: skip
    assert time.monotonic() - started < 60
    surface = parse_surface(said.splitlines()[-1], "what was printed")
    assert surface.version.startswith("1.7")
    assert surface.find("Builder.build_serialized_network") is not None
    assert surface.find("ICudaEngine.num_io_tensors") is not None
    assert surface.find("ICudaEngine.num_bindings") is None
    assert len(surface.classes) > 100
