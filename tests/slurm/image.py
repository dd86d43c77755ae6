"""The image of these tests: the test image with the probe tests' stand-ins for TensorRT and the CUDA driver.

No TensorRT runs without a GPU. With the stand-ins (tests/probe/standins) a cell of the product tensorrt, as
is placed on a GPU, is run by the ordinary probe in an ordinary container: built and run over NumPy.
"""

import shutil
from pathlib import Path

from tests.models.images import CURRENT, SITE, make_image
from tests.probe.jobs import HERE, make_driver

IMAGE = "trtmatrix/test-tensorrt:latest"
STANDINS = HERE / "standins"
VERSION = "10.7.0"  # what the stand-in is, where nothing else is said
DRIVER = "/usr/lib/x86_64-linux-gnu/"
FILES = ("tensorrt.py", "standin_context.py")
TEXT = f"FROM {CURRENT}\nCOPY {' '.join(FILES)} {SITE}/\nCOPY libcuda.so.1 {DRIVER}\n"


def make_standin() -> str:
    """Return the image, made now if it is not there; docker/test/build comes first."""
    inputs = "".join((STANDINS / name).read_text() for name in (*FILES, "libcuda.c"))
    return make_image(IMAGE, CURRENT, TEXT, _fill, inputs)


def _fill(folder: Path) -> None:
    make_driver(folder)
    for name in FILES:
        shutil.copy(STANDINS / name, folder)
