"""A stand-in for TensorRT-RTX's bindings: those of a strongly typed TensorRT."""

from __future__ import annotations

import os

os.environ["STANDIN_TENSORRT"] = "11.1.0"

from tensorrt import *  # noqa: F403 - the release is chosen first

__version__ = "1.4.0.76"
