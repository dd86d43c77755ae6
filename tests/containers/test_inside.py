"""What a container gives to a cell, and what it withholds; for the caller and for a user without a name.

The last is in an image with the traits of NVIDIA's own too, which are made for root and a shell.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.containers.conftest import GOOD, IMAGE, MATRIX, MEMORY, STRANGER, Project, become_stranger

READ_ONLY = ("root", "etc", "usr", "above", "cases", "case", "repros", "job", "probe", "model")
NGC = f"trtmatrix/test-ngc:{os.getpid()}"
DOCKER = shutil.which("docker") or "docker"

# As nvcr.io/nvidia/pytorch has them: an entry point that prints a banner, a script that every shell reads
# (here both fail), variables that change numbers or ask for every GPU, root's home, a working folder.
DOCKERFILE = f"""\
FROM {IMAGE}
COPY fails /opt/nvidia/nvidia_entrypoint.sh
COPY fails /etc/shinit_v2
ENV BASH_ENV=/etc/shinit_v2 ENV=/etc/shinit_v2 HOME=/root SHELL=/bin/bash USER=root LOGNAME=root
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
ENV TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 XDG_CACHE_HOME=/root/.cache
ENV LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64
WORKDIR /workspace
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
"""


@pytest.fixture(scope="module")
def ngc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    context = tmp_path_factory.mktemp("context")
    (context / "fails").write_text("#!/bin/sh\necho '== NVIDIA: this is a banner =='\nexit 1\n")
    (context / "fails").chmod(0o755)
    (context / "Dockerfile").write_text(DOCKERFILE)
    words = ["build", "--quiet", "--network=none", f"--tag={NGC}", str(context)]
    subprocess.run([DOCKER, *words], check=True, capture_output=True)
    yield NGC
    subprocess.run([DOCKER, "rmi", "--force", NGC], check=False, capture_output=True)


engines = pytest.mark.engines


@pytest.fixture(
    scope="module",
    params=[pytest.param("caller", marks=engines), pytest.param("stranger", marks=engines), "ngc"],
)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the cell; returns its record, with the user and group that the run had."""
    project = Project(tmp_path_factory.mktemp(request.param))
    if request.param == "ngc":
        image = request.getfixturevalue("ngc")
        (project.folder / "matrix.yaml").write_text(MATRIX.replace(IMAGE, image))
    prefix: list[str] = []
    user, group = os.getuid(), os.getgid()
    if request.param != "caller" and user == 0:
        prefix = become_stranger(project.folder)
        user, group = STRANGER, project.folder.stat().st_gid
    done = project.run("--trt", GOOD, "--repro", "inside", prefix=prefix)
    assert done.code == 0, done.told
    assert done.cell("view")["verdict"] == "PASS"
    record = project.record(done.cell("view"))
    return {**record, **record["measurements"]["scalars"], "user": user, "group": group}


EXPECTED = {
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0),
    "NoNewPrivs": 1, "Seccomp": 2, "init": 1,  # the entry point is ours
    "interfaces": 0, "unreachable": 1,  # no network
    "memory": MEMORY, "pids": 1024,
    **dict.fromkeys((f"write_{place}" for place in READ_ONLY), errno.EROFS),
    "write_out": 0, "write_scratch": 0,
    "home_runs": 1, "home_in_memory": 1, "user_named": 1, "has_a_name": 1, "caches_at_home": 1,
    "sockets": 0, "devices": 0,  # neither the engine's socket nor disks
    "tf32_overrides": 0, "unset": {"NVIDIA_TF32_OVERRIDE": "0", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
    "environment": {"ORT_DISABLE_TELEMETRY": "1"}, "asks_for_no_gpu": 1,
}  # fmt: skip


def test_a_cell_has_what_it_needs_and_no_more(seen: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert {name: seen.get(name) for name in EXPECTED} == EXPECTED
    assert (seen["uid"], seen["euid"], seen["gid"]) == (seen["user"], seen["user"], seen["group"])
    assert seen["groups"] <= 1
    assert seen.get("swap", 0) == 0
    assert seen["digests"]["image"].startswith("sha256:")
    assert seen["observed"]["numpy"] == "1.24.2"
    assert "banner" not in seen["log"]
    assert seen["keeps_library_path"] == ("ngc" in request.node.name)
