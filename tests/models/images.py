"""Two small images beside the test image: an older ONNX Runtime, and one that loses a scale.

They are made from the test image's own base, so `docker/test/build` comes first.
"""

import contextlib
import fcntl
import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import docker
import docker.errors

from tests.probe.pythons import cache_folder

BASE, CURRENT = "trtmatrix/test-base:latest", "trtmatrix/test:latest"
OLDER, DEFECTIVE = "trtmatrix/test-older:latest", "trtmatrix/test-defective:latest"
OLDER_VERSION, CURRENT_VERSION = "1.20.1", "1.31.1"
WHEELS = (f"onnxruntime=={OLDER_VERSION}", "packaging==26.3")
SITE = "/usr/local/lib/python3.11/dist-packages"
LABEL = "io.trtmatrix.test.inputs"

DEFECT = '''

class _LosesScale(InferenceSession):
    """Takes 1/sqrt(32), attention's scale, for 1: what a wrong fusion does."""

    def __init__(self, path_or_bytes, *args, **kwargs):
        import struct

        with open(path_or_bytes, "rb") as stream:
            content = stream.read()
        scale = struct.pack("<f", 32**-0.5)
        super().__init__(content.replace(scale, struct.pack("<f", 1.0)), *args, **kwargs)


InferenceSession = _LosesScale
'''


def make_older() -> str:
    text = f"FROM {BASE}\nCOPY site/ {SITE}/\n"
    return make_image(OLDER, BASE, text, lambda folder: _unpack(folder / "site"), "".join(WHEELS))


def make_defective() -> str:
    """Return the test image with a defect in its ONNX Runtime: it computes attention without its scale."""
    return make_spoilt(DEFECTIVE, DEFECT)


def make_spoilt(name: str, code: str) -> str:
    """Return the test image under another name, with code of Python put at the end of its ONNX Runtime."""
    text = f"FROM {CURRENT}\nCOPY defect.py /tmp/\nRUN cat /tmp/defect.py >> {SITE}/onnxruntime/__init__.py\n"
    return make_image(name, CURRENT, text, lambda folder: (folder / "defect.py").write_text(code), code)


def make_image(name: str, base: str, text: str, fill: Callable[[Path], object], inputs: str) -> str:
    """Return an image that is built by a Dockerfile's text over a folder, made now if it is not there."""
    client = docker.from_env()
    with (cache_folder() / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want it too
        digest = hashlib.sha256(f"{text}{inputs}{client.images.get(base).id}".encode()).hexdigest()
        with contextlib.suppress(docker.errors.ImageNotFound):
            if client.images.get(name).labels.get(LABEL) == digest:
                return name
        with tempfile.TemporaryDirectory() as context:
            folder = Path(context)
            (folder / "Dockerfile").write_text(text)
            fill(folder)
            client.images.build(path=context, tag=name, labels={LABEL: digest}, rm=True, network_mode="none")
    return name


def _unpack(site: Path) -> None:
    """Fetch the wheels for the image's Python, once, and unpack them."""
    wheels = cache_folder() / f"older-onnxruntime-{OLDER_VERSION}"
    if not (wheels / "complete").exists():
        words = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
        words += [f"--platform={tag}_{platform.machine()}" for tag in ("manylinux2014", "manylinux_2_28")]
        words += [f"--platform=manylinux_2_27_{platform.machine()}", f"--dest={wheels}", *WHEELS]
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *words]
        subprocess.run(command, check=True)
        (wheels / "complete").touch()
    for wheel in sorted(wheels.glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(site)
