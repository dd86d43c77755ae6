"""TensorRT's bindings under their usual name: from 8.6.1 on, NVIDIA's wheels call them tensorrt_bindings."""

from tensorrt_bindings import *  # noqa: F403 - the whole of it, as NVIDIA's own package of this name gives it
from tensorrt_bindings import __version__  # noqa: F401 - a star leaves out what begins with an underscore
