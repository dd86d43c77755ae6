"""Which upstream form an issue fills, its title, and the forms themselves with their places to fill. Pure."""

from __future__ import annotations

from trtmatrix.core.bundle.facts import Failure, Form
from trtmatrix.core.model import Product, release_of

CAPTURE_FROM = "10.14"
"""The first release whose reports are asked for an API capture (the tool came with it)."""

TORCH_REPOSITORY = "pytorch/TensorRT"

_HEAD = """\
## Description

{description}


## Environment

**TensorRT Version**: {tensorrt}

**NVIDIA GPU**: {gpu}

**NVIDIA Driver Version**: {driver}

**CUDA Version**: {cuda}

**CUDNN Version**: {cudnn}


Operating System: {os}

Python Version (if applicable): {python}

Tensorflow Version (if applicable): {tensorflow}

PyTorch Version (if applicable): {torch}

Baremetal or Container (if so, version): {container}

{environment}


## Relevant Files

**Model link**: {model}

{files}


## Steps To Reproduce

**Commands or scripts**:

{commands}

**Have you tried [the latest release](https://developer.nvidia.com/tensorrt)?**: {latest}

"""

_CAPTURE = """\
**Attach the captured .json and .bin files from [TensorRT's API Capture tool]\
(https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/capture-replay.html) \
if you're on an x86_64 Unix system**

{capture}

"""

_TAIL = """\
**Can this model run on other frameworks?** For example run ONNX model with ONNXRuntime \
(`polygraphy run <model.onnx> --onnxrt`): {frameworks}

{end}
"""

_TORCH = """\
##  Bug Description

{description}

## To Reproduce

Steps to reproduce the behavior:

{commands}

## Expected behavior

{expected}

## Environment

> Build information about Torch-TensorRT can be found by turning on debug messages

 - Torch-TensorRT Version (e.g. 1.0.0): {torch_tensorrt}
 - PyTorch Version (e.g. 1.0): {torch}
 - CPU Architecture: {machine}
 - OS (e.g., Linux): {os}
 - How you installed PyTorch (`conda`, `pip`, `libtorch`, source): {installed}
 - Build command you used (if compiling from source): {built}
 - Are you using local sources or building from archives: {sources}
 - Python version: {python}
 - CUDA version: {cuda}
 - GPU models and configuration: {gpu}
 - Any other relevant information: {other}

## Additional context

{context}

{end}
"""

FORMS = {Form.NVIDIA: _HEAD + _TAIL, Form.NVIDIA_CAPTURE: _HEAD + _CAPTURE + _TAIL, Form.TORCH: _TORCH}
"""Headings and labels are upstream's, to the letter; in braces what is put in.

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


def make_title(failure: Failure) -> str:
    """Return the title as upstream's form words it, in one line."""
    environment = failure.environment
    library = environment.library or failure.version
    product, prefix = f"{failure.product_name} {library}", ""
    if choose_form(failure) is Form.TORCH:
        prefix = "\N{BUG} [Bug] "
        product = f"Torch-TensorRT {environment.torch_tensorrt}".rstrip() + f" ({product})"
    about = f"{failure.cell.case} ({failure.title})"
    if failure.own_model:
        about = f"{failure.title.removeprefix('your ')} ({failure.cell.case})"
    where = f"GPU {environment.gpu}" if environment.gpu else "the CPU"
    title = f"{prefix}{failure.kind} failure of {product} when running {about} on {where}"
    return " ".join(title.split())
