"""Writes arrays as .npz: the same bytes each time, small, and read by NumPy alone."""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZipFile, ZipInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The time that is written of every member: zip's first."""

SAMPLE = 1 << 20
"""Bytes of an array by which its compression is chosen."""

WORTH = 0.97
"""LZMA is used where it takes at most this part of what deflate does: not every Python can read it."""

FINER = 256
"""A rounding stays below the noise floor by this factor."""


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz`` with these arrays, in the order of their names.

    ``ValueError`` where one holds objects: those would be pickled.
    """
    import numpy as np

    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        for name in sorted(arrays):
            member = io.BytesIO()
            array = np.asarray(arrays[name])
            np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
            info = ZipInfo(f"{name}.npy", FIRST_DAY)
            info.create_system, info.external_attr = 3, 0o644 << 16
            info.compress_type = _compression(member.getbuffer())
            archive.writestr(info, member.getbuffer(), compresslevel=9)
    return out.getvalue()


def _compression(data: memoryview) -> int:
    try:
        import lzma
    except ImportError:  # a Python that was built without it
        return ZIP_DEFLATED
    sample = data[:SAMPLE]
    small = len(lzma.compress(sample, format=lzma.FORMAT_ALONE)) < WORTH * len(zlib.compress(sample, 9))
    return ZIP_LZMA if small else ZIP_DEFLATED


def bits_for(floor: float) -> int:
    """Return how many bits of mantissa keep a rounding FINER times below a relative noise floor.

    Rounding to nearest at k bits changes each value, and so the whole in relative L2, by at most 2^-(k+1).
    """
    if not 0 < floor < math.inf:
        return 52
    return min(52, max(1, math.ceil(math.log2(FINER / floor)) - 1))


COARSE = 1
"""Bits of mantissa to which a defect's shape may be rounded: c is 8e-4 off then (sdpa-scale's lost scale)."""


def coarsen(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of real numbers rounded to COARSE bits of mantissa, as float32 where it was float64."""
    import numpy as np

    if array.dtype not in (np.float32, np.float64):
        return array
    rounded: NDArray[Any] = _round(array.astype(np.float64), COARSE).astype(np.float32)
    return rounded


def narrow(array: NDArray[Any], floor: float) -> NDArray[Any]:
    """Return a float64 array rounded to the bits that its noise floor asks for, as float32 where they fit.

    Others are returned as they are.
    """
    import numpy as np

    bits = bits_for(floor)
    if array.dtype != np.float64 or bits >= 52:
        return array
    rounded = _round(array, bits)
    with np.errstate(over="ignore", under="ignore"):
        single = rounded.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), rounded, equal_nan=True) else rounded


def _round(array: NDArray[Any], bits: int) -> NDArray[Any]:
    """Round to nearest at ``bits`` of mantissa; zeros, infinities and NaN stay."""
    import numpy as np

    mantissa, exponent = np.frexp(array)
    scale = float(2 ** (bits + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.ldexp(np.round(mantissa * scale) / scale, exponent)
    return np.where(np.isfinite(rounded), rounded, array)
