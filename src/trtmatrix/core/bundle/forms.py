"""Which upstream form an issue fills, its title, and the forms themselves with their places to fill. Pure."""

from __future__ import annotations

from trtmatrix.core.bundle.facts import Failure, Form
from trtmatrix.core.model import Product, release_of

CAPTURE_FROM = "10.14"
"""The first release whose reports are asked for an API capture (the tool came with it)."""

TORCH_REPOSITORY = "pytorch/TensorRT"

_HEAD = """\
## Description

@DESCRIPTION@


## Environment

**TensorRT Version**: @TENSORRT@

**NVIDIA GPU**: @GPU@

**NVIDIA Driver Version**: @DRIVER@

**CUDA Version**: @CUDA@

**CUDNN Version**: @CUDNN@


Operating System: @OS@

Python Version (if applicable): @PYTHON@

Tensorflow Version (if applicable): @TENSORFLOW@

PyTorch Version (if applicable): @TORCH@

Baremetal or Container (if so, version): @CONTAINER@

@ENVIRONMENT@


## Relevant Files

**Model link**: @MODEL@

@FILES@


## Steps To Reproduce

**Commands or scripts**:

@COMMANDS@

**Have you tried [the latest release](https://developer.nvidia.com/tensorrt)?**: @LATEST@

"""

_CAPTURE = """\
**Attach the captured .json and .bin files from [TensorRT's API Capture tool]\
(https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/capture-replay.html) \
if you're on an x86_64 Unix system**

@CAPTURE@

"""

_TAIL = """\
**Can this model run on other frameworks?** For example run ONNX model with ONNXRuntime \
(`polygraphy run <model.onnx> --onnxrt`): @FRAMEWORKS@

@END@
"""

_TORCH = """\
##  Bug Description

@DESCRIPTION@

## To Reproduce

Steps to reproduce the behavior:

@COMMANDS@

## Expected behavior

@EXPECTED@

## Environment

> Build information about Torch-TensorRT can be found by turning on debug messages

 - Torch-TensorRT Version (e.g. 1.0.0): @TORCH_TENSORRT@
 - PyTorch Version (e.g. 1.0): @TORCH@
 - CPU Architecture: @MACHINE@
 - OS (e.g., Linux): @OS@
 - How you installed PyTorch (`conda`, `pip`, `libtorch`, source): @INSTALLED@
 - Build command you used (if compiling from source): @BUILT@
 - Are you using local sources or building from archives: @SOURCES@
 - Python version: @PYTHON@
 - CUDA version: @CUDA@
 - GPU models and configuration: @GPU@
 - Any other relevant information: @OTHER@

## Additional context

@CONTEXT@

@END@
"""

FORMS = {Form.NVIDIA: _HEAD + _TAIL, Form.NVIDIA_CAPTURE: _HEAD + _CAPTURE + _TAIL, Form.TORCH: _TORCH}
"""Headings and labels are upstream's, to the letter; what is put in stands between @.

Sources: ``.github/ISSUE_TEMPLATE`` of https://github.com/NVIDIA/TensorRT and https://github.com/pytorch/TensorRT.
"""


def choose_form(failure: Failure) -> Form:
    """Return the form of the failure's upstream; NVIDIA's asks for a capture from TensorRT 10.14 on."""
    if failure.upstream.startswith(TORCH_REPOSITORY):
        return Form.TORCH
    release = release_of(failure.environment.library or failure.version)
    if failure.product is Product.TENSORRT and release >= release_of(CAPTURE_FROM):
        return Form.NVIDIA_CAPTURE
    return Form.NVIDIA


def product_words(failure: Failure) -> str:
    """Return what fails, with its version."""
    library = f"{failure.product_name} {failure.environment.library or failure.version}"
    if choose_form(failure) is not Form.TORCH:
        return library
    return f"Torch-TensorRT {failure.environment.torch_tensorrt}".rstrip() + f" ({library})"


def subject(failure: Failure) -> str:
    """Return what was run: the case with the finding, or the user's model with the case."""
    if failure.own_model:
        return f"{failure.title.removeprefix('your ')} ({failure.cell.case})"
    return f"{failure.cell.case} ({failure.title})"


def make_title(failure: Failure) -> str:
    """Return the title as upstream's form words it, in one line."""
    prefix = "\N{BUG} [Bug] " if choose_form(failure) is Form.TORCH else ""
    where = f"GPU {failure.environment.gpu}" if failure.environment.gpu else "the CPU"
    title = f"{failure.kind} failure of {product_words(failure)} when running {subject(failure)} on {where}"
    return " ".join(f"{prefix}{title}".split())
