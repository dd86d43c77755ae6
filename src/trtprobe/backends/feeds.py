"""Inputs in the dtypes that an engine has: cast where no value changes, else refused with words."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from trtprobe import ends


def find_feed(inputs: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return an input by name; ``RunFailed`` where it is not given."""
    if name not in inputs:
        given = ", ".join(sorted(inputs)) or "nothing"
        raise ends.RunFailed("the engine has an input %s, which is not given; given are: %s" % (name, given))
    return np.asarray(inputs[name])


def fit_feed(name: str, array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Return a C-contiguous array of the wanted dtype and the same values.

    Integers are cast where each value fits (TensorRT 8 makes INT32 of ONNX's INT64), bool and 0/1 bytes
    either way. ``Unsupported`` where a value does not fit or the dtype is float64, which TensorRT does not
    have; ``ValueError`` where it is another dtype than the graph's.
    """
    if array.dtype == wanted:
        return np.asarray(array, order="C")  # ascontiguousarray makes a scalar [1]
    if array.dtype == np.float64 and wanted.kind == "f":
        raise ends.Unsupported(
            "input %s is float64 and the engine takes %s: TensorRT has no float64; export the model in "
            "float32 and give its inputs so" % (name, wanted)
        )
    if wanted.kind in "iu" and array.dtype.kind in "iub":
        return _fit_integers(name, array, wanted)
    if wanted.kind == "b" and array.dtype.kind in "iu" and not np.any((array != 0) & (array != 1)):
        return array.astype(wanted, order="C")
    raise ValueError("%s: engine wants %s, got %s" % (name, wanted, array.dtype))


def _fit_integers(name: str, array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    limits = np.iinfo(wanted)
    if array.size:
        for value in (int(array.min()), int(array.max())):
            if not limits.min <= value <= limits.max:
                raise ends.Unsupported(
                    "input %s holds %d, and the engine takes %s (%d to %d)"
                    % (name, value, wanted, limits.min, limits.max)
                )
    return array.astype(wanted, order="C")
