"""What is inside an image of the user's: products and their versions, read by running its own Python."""

from __future__ import annotations

import json
import os
import uuid

import docker
import docker.errors

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.owner import own_identity
from trtmatrix.launchers.container import OWNER_LABEL, PROJECT_LABEL, SCRATCH, job_labels
from trtmatrix.launchers.engine import open_client
from trtmatrix.launchers.engine_errors import ENGINE_ERRORS
from trtmatrix.tables.table import one_line

SECONDS = 120
"""How long an image may take to say what it has."""

SCRIPT = """
import json
from importlib import import_module
from importlib.metadata import version

PACKAGES = {
    "tensorrt": ["tensorrt", "tensorrt-cu13-bindings", "tensorrt-cu12-bindings", "tensorrt-bindings"],
    "tensorrt-rtx": ["tensorrt-rtx", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu12-bindings"],
    "onnxruntime": ["onnxruntime", "onnxruntime-gpu"],
    "torch": ["torch"],
    "torch_tensorrt": ["torch-tensorrt"],
}

def find(name, packages):
    for package in packages:
        try:
            return version(package)
        except Exception:
            pass
    try:  # unpacked by hand: nothing says so but the module itself
        return str(import_module(name.replace("-", "_")).__version__)
    except Exception:
        return None

print(json.dumps({name: found for name, packages in PACKAGES.items() if (found := find(name, packages))}))
"""
"""Python 3.8. What a package's own data say comes first: to import TensorRT may take a driver."""


def read_contents(image_id: str) -> dict[str, str]:
    """Return product or package → version of what an image has.

    The container has no network, no GPU, nothing mounted, and is removed on every path.
    :class:`MachineryError` says why nothing could be read.
    """
    client = open_client(SECONDS + 30)
    name = f"trtmatrix-look-{uuid.uuid4().hex[:12]}"
    try:
        container = client.containers.create(
            image_id, ["-c", SCRIPT], entrypoint=["python3"], name=name, network_mode="none", read_only=True,
            cap_drop=["ALL"], security_opt=["no-new-privileges"], user="65534:65534", init=True,
            environment={"HOME": SCRATCH, "NVIDIA_VISIBLE_DEVICES": "void"}, tmpfs={SCRATCH: "rw,size=64m"},
            labels={PROJECT_LABEL: "1", OWNER_LABEL: own_identity(), **job_labels(os.environ)},
            mem_limit=4 << 30, pids_limit=256,
        )  # fmt: skip
        container.start()
        code = int(container.wait(timeout=SECONDS)["StatusCode"])
        said, told = container.logs(stderr=False), container.logs(stdout=False)
    except ENGINE_ERRORS as error:
        raise MachineryError(f"it cannot be looked into: {one_line(str(error))}") from error
    finally:
        _remove(client, name)
    return _parse(code, said.decode("utf-8", "replace"), told.decode("utf-8", "replace"))


def _parse(code: int, said: str, told: str) -> dict[str, str]:
    lines = said.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines and not code else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        last = (told.strip().splitlines() or lines or ["it said nothing"])[-1]
        raise MachineryError(f"its python3 ended with exit code {code}: {one_line(last)}")
    return {str(name): str(version) for name, version in found.items()}


def _remove(client: docker.DockerClient, name: str) -> None:
    """Remove the container, also where creating it was cut off."""
    try:
        client.containers.get(name).remove(force=True, v=True)
    except docker.errors.NotFound:
        return
    except ENGINE_ERRORS as error:
        raise MachineryError(f"could not remove the container {name}: {one_line(str(error))}") from error
