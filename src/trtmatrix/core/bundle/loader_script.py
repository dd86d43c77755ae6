"""``polygraphy_inputs.py``: an archive's inputs and reference as Polygraphy and trtexec take them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trtmatrix.core.bundle.facts import INPUTS, LOADER, REFERENCE, Recipe
from trtmatrix.core.bundle.filling import fill

_TEXT = '''\
#!/usr/bin/env python3
"""The inputs and the reference of this archive, for polygraphy and trtexec. Needs NumPy.

  reference FILE.json   writes the reference as polygraphy's --load-outputs reads it (needs Polygraphy)
  bins DIR [--int32]    writes the first sample for trtexec's --loadInputs; --int32: int64 as int32, which
                        TensorRT below 10 makes of it
  compare FILE.json     compares what trtexec's --exportOutput wrote with the reference
"""

import json
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
INPUTS = @INPUTS@  # array in @INPUTS_FILE@ -> name in the graph
OUTPUTS = @OUTPUTS@  # array in @REFERENCE_FILE@ -> name in the graph
SAMPLES = @SAMPLES@  # several: the arrays' names end in .s0, .s1 and so on
KEEP_FP32 = @KEEP@  # layers that must not run in FP16, by type


def samples(file, names):
    arrays = np.load(os.path.join(HERE, file))
    for number in range(SAMPLES):
        mark = ".s%d" % number if SAMPLES > 1 else ""
        yield {name: arrays[key + mark] for key, name in names.items() if key + mark in arrays.files}


def load_data():
    """What polygraphy's --data-loader-script calls."""
    return samples("@INPUTS_FILE@", INPUTS)


def keep_fp32(network):
    """What polygraphy's --trt-network-postprocess-script calls."""
    import tensorrt

    for layer in network:
        if layer.type.name in KEEP_FP32:
            layer.precision = tensorrt.float32
            layer.set_output_type(0, tensorrt.float32)


def write_reference(path):
    from polygraphy.comparator import RunResults

    results = RunResults()
    results.add(list(samples("@REFERENCE_FILE@", OUTPUTS)), runner_name="reference")
    results.save(path)


def write_bins(folder, int32):
    for name, array in next(load_data()).items():
        narrow = int32 and array.dtype == np.int64
        path = os.path.join(folder, file_name(name))
        np.ascontiguousarray(array.astype(np.int32) if narrow else array).tofile(path)
        print(path, array.shape, "int32" if narrow else array.dtype)


def file_name(name):
    return "input-%d.bin" % list(INPUTS.values()).index(name)


def compare(path):
    with open(path) as stream:
        text = re.sub(r"(?<=[\\s,\\[])(-?)(nan|inf)(?=[\\s,\\]])", spelled, stream.read())
    got = {item["name"]: np.array(item["values"], np.float64) for item in json.loads(text)}
    for name, right in next(samples("@REFERENCE_FILE@", OUTPUTS)).items():
        y, r = got[name].ravel(), right.astype(np.float64).ravel()
        with np.errstate(all="ignore"):
            error, worst = np.linalg.norm(y - r) / np.linalg.norm(r), np.nanargmax(np.abs(y - r))
        print("%s: relative L2 error %.4g, NaN %d, worst element %s: %r instead of %r" % (
            name, error, np.isnan(y).sum(), np.unravel_index(worst, right.shape), y[worst], r[worst]))


def spelled(found):
    return "NaN" if found.group(2) == "nan" else found.group(1) + "Infinity"


if __name__ == "__main__":
    if sys.argv[1:2] == ["reference"] and len(sys.argv) == 3:
        write_reference(sys.argv[2])
    elif sys.argv[1:2] == ["bins"] and len(sys.argv) in (3, 4):
        write_bins(sys.argv[2], sys.argv[3:] == ["--int32"])
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 3:
        compare(sys.argv[2])
    else:
        sys.exit(__doc__)
'''


def data_loader_script(recipe: Recipe) -> str:
    """Return the script, for Python 3.6 and later."""
    values = {
        "LOADER": LOADER, "INPUTS_FILE": INPUTS, "REFERENCE_FILE": REFERENCE,
        "INPUTS": _literal(recipe.inputs), "OUTPUTS": _literal(recipe.outputs),
        "SAMPLES": str(recipe.samples), "KEEP": repr(tuple(kind.upper() for kind in recipe.keep_fp32)),
    }  # fmt: skip
    return fill(_TEXT, values)


def bin_name(recipe: Recipe, name: str) -> str:
    """Return the file that ``bins`` writes for an input of the graph."""
    return f"input-{list(recipe.inputs.values()).index(name)}.bin"


def _literal(names: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key!a}: {name!a}" for key, name in names.items()) + "}"
