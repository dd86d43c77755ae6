"""A cell in an image with the traits of NVIDIA's own, which are made for root and a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.containers.conftest import GOOD, IMAGE, MATRIX, Project, become_stranger

NGC = "trtmatrix/test-ngc:latest"

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
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the cell as a user whom the image does not know; returns its record and what it saw."""
    context = tmp_path_factory.mktemp("context")
    (context / "fails").write_text("#!/bin/sh\necho '== NVIDIA: this is a banner =='\nexit 1\n")
    (context / "fails").chmod(0o755)
    (context / "Dockerfile").write_text(DOCKERFILE)
    words = ["build", "--quiet", "--network=none", f"--tag={NGC}", str(context)]
    subprocess.run([DOCKER, *words], check=True, capture_output=True)
    project = Project(tmp_path_factory.mktemp("ngc"))
    (project.folder / "matrix.yaml").write_text(MATRIX.replace(IMAGE, NGC))
    prefix = become_stranger(project.folder) if os.getuid() == 0 else []
    done = project.run("--trt", GOOD, "--repro", "inside", prefix=prefix)
    assert done.code == 0, done.told
    assert done.cell("view")["verdict"] == "PASS"
    record = project.record(done.cell("view"))
    return {**record, **record["measurements"]["scalars"], "owner": project.folder.stat().st_uid}


EXPECTED = {
    "init": 1, "write_out": 0,  # the entry point is ours, and the working folder too
    "has_a_name": 1, "user_named": 1, "caches_at_home": 1, "home_runs": 1, "tf32_overrides": 0,
    "asks_for_no_gpu": 1, "keeps_library_path": 1,
}  # fmt: skip


def test_what_is_made_for_root_and_a_shell_serves_any_caller(seen: dict[str, Any]) -> None:
    assert {name: seen[name] for name in EXPECTED} == EXPECTED
    assert seen["uid"] == seen["owner"]
    assert "banner" not in seen["log"]
    assert seen["unset"]["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] == "1"


@pytest.fixture(scope="module", autouse=True)
def _no_image_left() -> Any:
    yield
    subprocess.run([DOCKER, "rmi", "--force", NGC], check=False, capture_output=True)
