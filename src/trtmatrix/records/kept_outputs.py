"""Reads kept outputs block by block: an output may be larger than the memory that is there."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trtmatrix.judge.differences import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 18
"""Elements that are read together."""


def open_kept(cache: Path, facts: Mapping[str, Any]) -> Tensor | None:
    """Return an output that was kept, as ``kept`` of a record names it; None where it is gone or damaged."""
    file = kept_file(cache, str(facts.get("sha256", "")))
    try:
        dtype, shape = _head(file)
    except (OSError, ValueError):
        return None
    return Tensor(dtype=dtype, shape=shape, blocks=lambda: _blocks(file))


def kept_file(cache: Path, digest: str) -> Path:
    """Return the file of a kept output; see :func:`trtmatrix.records.store.keep_outputs`."""
    return cache / "outputs" / f"{digest}.npz"


def unpack_kept(cache: Path, digest: str, target: Path) -> None:
    """Write a kept output as ``.npy``; ``OSError`` or ``ValueError`` where it is gone or damaged."""
    with _member(kept_file(cache, digest)) as stream, target.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)


@contextlib.contextmanager
def _member(file: Path) -> Iterator[IO[bytes]]:
    """Open the only member of a kept output's archive; damage becomes ``ValueError``."""
    from zipfile import BadZipFile, ZipFile
    from zlib import error as bad_data

    try:
        with ZipFile(file) as archive, archive.open("output.npy") as stream:
            yield stream
    except KeyError as error:
        raise ValueError("it holds no output") from error
    except (BadZipFile, bad_data, EOFError) as error:
        raise ValueError(f"{file.name} is damaged: {error}") from error


def _read_head(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    """Return shape, whether it lies in Fortran's order, and dtype; ``ValueError`` where there is no such."""
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds objects, no numbers")
    return tuple(shape), bool(fortran), dtype


def _head(file: Path) -> tuple[str, tuple[int, ...]]:
    with _member(file) as stream:
        shape, _, dtype = _read_head(stream)
    return str(dtype), shape


def _blocks(file: Path) -> Iterator[NDArray[Any]]:
    import math

    import numpy as np

    with _member(file) as stream:
        shape, fortran, dtype = _read_head(stream)
        count = math.prod(shape)
        if fortran and len(shape) > 1:  # rare: read whole, in row-major order
            whole = np.frombuffer(_exactly(stream, count * dtype.itemsize), dtype).reshape(shape, order="F")
            flat = np.ascontiguousarray(whole).reshape(-1)
            yield from (flat[start : start + BLOCK] for start in range(0, count, BLOCK))
            return
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            yield np.frombuffer(_exactly(stream, size * dtype.itemsize), dtype)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError("it ends too early")
    return data
