"""Reads kept outputs block by block: an output may be larger than the memory that is there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.common.border import BorderError, opened_npz, read_array, read_head
from trtmatrix.judge.differences import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 18
"""Elements that are read together."""


def open_kept(cache: Path, facts: Mapping[str, Any]) -> Tensor | None:
    """Return an output that was kept, as ``kept`` of a record names it; None where it is gone or damaged."""
    file = kept_file(cache, str(facts.get("sha256", "")))
    try:
        with opened_npz(file) as archive, archive.member("output") as (stream, size):
            head = read_head(stream, size)
    except (OSError, BorderError):
        return None
    return Tensor(dtype=str(head.dtype), shape=head.shape, blocks=lambda: _blocks(file))


def kept_file(cache: Path, digest: str) -> Path:
    """Return the file of a kept output; see :func:`trtmatrix.records.store.keep_outputs`."""
    return cache / "outputs" / f"{digest}.npz"


def unpack_kept(cache: Path, digest: str, target: Path) -> None:
    """Write a kept output as ``.npy``; ``OSError`` or ``ValueError`` where it is gone or damaged."""
    with (
        opened_npz(kept_file(cache, digest)) as archive, archive.member("output") as (stream, _),
        target.open("wb") as out,
    ):  # fmt: skip
        shutil.copyfileobj(stream, out, 1 << 20)


def _blocks(file: Path) -> Iterator[NDArray[Any]]:
    import numpy as np

    with opened_npz(file) as archive, archive.member("output") as (stream, size):
        head = read_head(stream, size)
        if head.fortran and len(head.shape) > 1:  # rare: read whole, in row-major order
            stream.seek(0)
            flat = np.ascontiguousarray(read_array(stream, size)).reshape(-1)
            yield from (flat[start : start + BLOCK] for start in range(0, head.count, BLOCK))
            return
        for start in range(0, head.count, BLOCK):
            wanted = min(BLOCK, head.count - start) * head.dtype.itemsize
            if len(data := stream.read(wanted)) != wanted:
                raise BorderError("it ends too early")
            yield np.frombuffer(data, head.dtype)
