"""The inputs of a user's model: read from .npz files and held against the graph, or drawn."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.common.border import BorderError, opened_npz, read_array
from trtmatrix.common.errors import UsageError
from trtmatrix.onnxmodel.tensors import Shapes, Tensor, bind_symbols, fits_shape, shape_text

Array = NDArray[Any]
Sample = Mapping[str, Array]

SHOWN = 20
"""Problems that are told at once; of the others their number."""

SEED = 0


def read_samples(path: Path, inputs: Sequence[Tensor]) -> list[dict[str, Array]]:
    """Read the samples of a .npz file, or of a folder of them (sorted by name).

    :class:`UsageError` tells of every array that does not fit, in every file.
    """
    if not path.exists():
        raise UsageError(f"--inputs {path}: there is no such file or folder")
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    names = ", ".join(f"{tensor.name}=…" for tensor in inputs if tensor.name.isidentifier()) or "name=array"
    if not files:
        raise UsageError(f"--inputs {path}: no .npz file is there: np.savez('{path}/0.npz', {names})")
    samples, problems = [], []
    for file in files:
        sample, found = _read(file, names)
        problems += [f"--inputs {file}: {problem}" for problem in found or check_sample(sample, inputs)]
        samples.append(sample)
    if problems:
        more = [f"… and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise UsageError("\n".join([*problems[:SHOWN], *more]))
    return samples


def _read(file: Path, names: str) -> tuple[dict[str, Array], list[str]]:
    """Return a file's arrays by name, and what is wrong with it; ``names``: how to write a right one."""
    remedy = f"np.savez('{file.with_suffix('.npz').name}', {names})"
    arrays, problems = dict[str, Array](), list[str]()
    if file.suffix == ".npy":
        return {}, [f"is a .npy file, one array without a name; write a .npz file with {remedy}"]
    try:
        with opened_npz(file.resolve()) as archive:
            for name in archive.names:
                try:
                    with archive.member(name) as (stream, size):
                        array = read_array(stream, size)
                except BorderError as error:
                    problems.append(f"input {name}: cannot be read: it {error}")
                    continue
                arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    except (OSError, BorderError) as error:
        why = f"it {error}" if isinstance(error, BorderError) else f"{error}"
        return {}, [f"is no .npz file: {why}; write one with {remedy}"]
    return arrays, problems


def check_sample(sample: Sample, inputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield what does not fit: names, types, shapes, symbols that would stand for two sizes."""
    names = [tensor.name for tensor in inputs]
    for tensor in inputs:
        array = sample.get(tensor.name)
        if array is None:
            yield f"input {tensor.name} is missing: the graph wants {tensor.text}"
        elif array.dtype.name != tensor.dtype or not fits_shape(array.shape, tensor):
            has = f"{array.dtype.name} {shape_text(array.shape)}"
            cast = f"; cast it: array.astype(np.{tensor.dtype})" if array.dtype.name != tensor.dtype else ""
            yield f"input {tensor.name}: graph wants {tensor.text}, the file has {has}{cast}"
        elif not array.size:
            yield f"input {tensor.name}: {shape_text(array.shape)} has no element"
    for name in sample:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; perhaps you meant {near[0]}" if near else f"; its inputs are {', '.join(names)}"
            yield f"{name} is no input of the graph{hint}"
    yield from bind_symbols(inputs, {name: array.shape for name, array in sample.items()})[1]


def extents(sample: Sample, inputs: Sequence[Tensor]) -> Shapes:
    """Return what a profile is about: the shape of each input, the values of one that sets a shape."""
    setting = {tensor.name for tensor in inputs if tensor.sets}
    return {
        name: tuple(map(int, array.reshape(-1))) if name in setting else array.shape
        for name, array in sample.items()
    }


def digest_samples(samples: Sequence[Sample]) -> str:
    """Return the SHA-256 over all arrays with their names (hexadecimal)."""
    total = sha256()
    for sample in samples:
        for name in sorted(sample):
            array = np.ascontiguousarray(sample[name])
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def draw_sample(
    inputs: Sequence[Tensor], shapes: Shapes, tables: Mapping[str, int], seed: int = SEED
) -> dict[str, Array]:
    """Draw inputs of these shapes, always the same ones for a seed; what sets a shape has these values.

    Real numbers are standard normal. Integers that index a table are below its number of rows; masks are
    ones, lengths the length of the longest dimension, positions count up, types of tokens are 0, other
    integers 0 or 1.
    """
    random = np.random.RandomState(seed)  # its numbers are the same in every release of NumPy
    drawn = [shapes[tensor.name] for tensor in inputs if not tensor.sets]
    longest = max((size for shape in drawn for size in shape), default=1)

    def draw(tensor: Tensor, shape: tuple[int, ...]) -> Array:
        name, dtype, rows = tensor.name.lower(), np.dtype(tensor.dtype), tables.get(tensor.name)
        if tensor.sets:
            return np.array(shape if tensor.shape != () else shape[0], dtype)
        if "mask" in name or dtype.kind == "b":
            return np.ones(shape, dtype)
        if dtype.kind == "f":
            return np.asarray(random.standard_normal(shape)).astype(dtype)
        if "length" in name or name.endswith("_len"):
            return np.full(shape, longest, dtype)
        if "position" in name and shape:
            return np.broadcast_to(np.arange(shape[-1]) % (rows or shape[-1]), shape).astype(dtype)
        if "token_type" in name or "segment" in name:
            return np.zeros(shape, dtype)
        most = min(rows or (256 if dtype == np.uint8 else 2), np.iinfo(dtype).max)
        return np.asarray(random.randint(0, max(1, most), shape)).astype(dtype)

    return {tensor.name: draw(tensor, shapes[tensor.name]) for tensor in inputs}
