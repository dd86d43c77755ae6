"""What a model is fed with: its inputs' shapes, samples from .npz files or drawn ones, and their profile."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.common.errors import UsageError
from trtmatrix.common.text import counted

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.reading import ModelFile

Array = NDArray[Any]
Sample = Mapping[str, Array]

Dim = int | str | None
"""A dimension: its size, the symbol that stands for it, or None where nothing is known."""

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""Shapes of a sample's inputs by name; of one that sets a shape, its values."""

Range = tuple[Shape, Shape, Shape]
"""The smallest, the usual and the largest shape of an input: TensorRT's min, opt and max. Of an input that
sets a shape, its values."""

LONGEST_STEM = 40

SHOWN = 20
"""Problems that are told at once."""

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output of a graph.

    ``dtype`` is NumPy's name (``"float32"``), or ONNX's where NumPy has none. ``shape`` is None where not
    even the rank is known. ``sets``: the shape that an input of integers sets, such as ``TopK's k``:
    TensorRT must know its values when it builds.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    sets: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether a profile must tell of it: it may have several shapes, or sets one."""
        return bool(self.sets) or self.shape is None or any(not isinstance(dim, int) for dim in self.shape)

    @property
    def text(self) -> str:
        """Its type in words: ``int64 [batch, 128]``, ``int64 [1] (TopK's k)``."""
        return f"{self.dtype} {shape_text(self.shape)}{f' ({self.sets})' if self.sets else ''}"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a model is fed with. ``words``: where that comes from; ``drawn``: it was drawn here."""

    samples: Sequence[Sample]
    profile: Mapping[str, Range]
    words: str
    drawn: bool


def shape_text(shape: Sequence[Dim] | None) -> str:
    """Write a shape: ``[batch, 128]``, with ? for what is not known."""
    return "of any shape" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name for files → the tensor's own, in the same order; no two are the same, in any case.

    Letters, digits, ``_`` and ``-`` stay; what else there is becomes ``_``.
    """
    found: dict[str, str] = {}
    for name in names:
        plain = (re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tensor")[:80]
        taken = {each.lower() for each in found}
        free = (plain, *(f"{plain}-{number}" for number in range(2, len(found) + 3)))
        found[next(each for each in free if each.lower() not in taken)] = name
    return found


def stem_of(name: str) -> str:
    """Return the part of a file's name that can be part of a repro's id: small letters, digits and ``-``."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_STEM].strip("-") or "model"


def fits_shape(shape: Shape, tensor: Tensor) -> bool:
    """Whether a shape is one that a graph's tensor may have, symbols apart."""
    if tensor.shape is None:
        return True
    pairs = zip(shape, tensor.shape, strict=False)
    return len(shape) == len(tensor.shape) and all(not isinstance(d, int) or d == size for size, d in pairs)


def profile_texts(profile: Mapping[str, Range]) -> tuple[str, ...]:
    """Return a profile as the command line takes it: ``ids=1x16:4x128:8x512``."""
    return tuple(
        f"{name}={':'.join('x'.join(map(str, shape)) for shape in shapes)}"
        for name, shapes in profile.items()
    )


def digest_samples(samples: Sequence[Sample]) -> str:
    """Return the SHA-256 over all arrays with their names (hexadecimal)."""
    total = sha256()
    for sample in samples:
        for name in sorted(sample):
            array = np.ascontiguousarray(sample[name])
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def choose_inputs(model: ModelFile, path: Path | None, profiles: Sequence[str]) -> Inputs:
    """Return the samples of a path, or drawn ones, and the profile that was given or that they need.

    ``profiles``: such as ``ids=1x16:4x128:8x512``, or ``ids=4x128`` (all three alike). :class:`UsageError`
    where the model cannot be fed so.
    """
    given = dict(_read_profile(model, text) for text in profiles)
    if path is None:  # one sample for each of the usual, the least and the largest shapes
        shapes = []
        for which in (1, 0, 2):
            filled = _fill_shapes(model, {name: ranges[which] for name, ranges in given.items()})
            shapes += [filled] if filled not in shapes else []
        try:
            samples = [draw_sample(model, each, SEED + number) for number, each in enumerate(shapes)]
        except (ValueError, OverflowError) as error:  # of NumPy
            words = "no inputs of these shapes or values can be made"
            raise UsageError(f"--profile: {words}: {error}") from error
        words = f"drawn with seed {SEED} from the graph's shapes: they are no inputs of yours"
        if not given and (guessed := [tensor.name for tensor in model.inputs if tensor.is_dynamic]):
            words += f"; {', '.join(guessed)}: a batch of 1"
    else:
        samples = _read_samples(path, model.inputs)
        shapes = [
            {t.name: tuple(map(int, s[t.name].flat)) if t.sets else s[t.name].shape for t in model.inputs}
            for s in samples
        ]
        words = f"{counted(len(samples), 'sample')} from {path.name}"
    problems = [
        f"--profile {name}: sample {number} of --inputs has {shape_text(sample[name])}, which is outside"
        for number, sample in enumerate(shapes)
        for name, (low, _, high) in given.items()
        if len(sample[name]) != len(low)
        or not all(a <= size <= b for a, size, b in zip(low, sample[name], high, strict=True))
    ]
    problems += [
        f"--inputs {path}: samples have different numbers of {'values' if tensor.sets else 'dimensions'} in "
        f"{tensor.name}, and an engine takes one"
        for tensor in model.inputs if len({len(sample[tensor.name]) for sample in shapes}) > 1
    ]  # fmt: skip
    if problems:
        raise UsageError("\n".join(problems[:SHOWN]))
    profile = {**_profile_of(model.inputs, shapes), **given}
    return Inputs(samples=samples, profile=profile, words=words, drawn=path is None)


def _read_profile(model: ModelFile, text: str) -> tuple[str, Range]:
    name, _, ranges = text.rpartition("=")
    try:
        parts = [tuple(int(size) for size in part.split("x") if part) for part in ranges.split(":")]
        low, opt, high = parts * 3 if len(parts) == 1 else parts
        grows = all(a <= b <= c for a, b, c in zip(low, opt, high, strict=True))
    except ValueError:
        grows = False
    if not name or not grows:
        example = "such as ids=1x16:4x128:8x512, of one rank and growing"
        raise UsageError(f"--profile {text}: expected INPUT=MIN:OPT:MAX {example}")
    tensor = next((tensor for tensor in model.inputs if tensor.name == name), None)
    if tensor is None:
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise UsageError(f"--profile {text}: its inputs are {names}")
    if tensor.sets:
        fits = len(low) == 1 if tensor.shape == () else fits_shape((len(low),), tensor)
    else:
        fits = all(fits_shape(shape, tensor) for shape in (low, opt, high)) and min(low, default=1) > 0
    if not fits or not tensor.is_dynamic:
        least = "" if tensor.sets else ", each dimension at least 1"
        raise UsageError(f"--profile {text}: {name} is {tensor.text}{least}")
    return name, (low, opt, high)


def _profile_of(tensors: Iterable[Tensor], samples: Sequence[Shapes]) -> dict[str, Range]:
    """Return the ranges of the dynamic inputs over samples: the usual shape is the most frequent one."""
    found = {}
    for tensor in tensors:
        if tensor.is_dynamic:
            shapes = [sample[tensor.name] for sample in samples]
            low, high = (tuple(map(end, zip(*shapes, strict=True))) for end in (min, max))
            found[tensor.name] = low, Counter(shapes).most_common(1)[0][0], high
    return found


def _bind_symbols(tensors: Iterable[Tensor], shapes: Shapes) -> dict[str, dict[int, str]]:
    """Return the sizes that each symbol stands for in a sample, with the first input that has each."""
    bound: dict[str, dict[int, str]] = {}
    for tensor in tensors:
        sizes = shapes.get(tensor.name, ()) if not tensor.sets else ()
        for dim, size in zip(tensor.shape or (), sizes, strict=False):
            if isinstance(dim, str):
                bound.setdefault(dim, {}).setdefault(size, tensor.name)
    return bound


# --- Samples from files


def _read_samples(path: Path, inputs: Sequence[Tensor]) -> list[dict[str, Array]]:
    """Read a .npz file, or a folder of them by name; all arrays that do not fit are told of at once."""
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    names = ", ".join(f"{tensor.name}=…" for tensor in inputs if tensor.name.isidentifier()) or "name=array"
    if not files:
        raise UsageError(f"--inputs {path}: no .npz file is there: np.savez('{path}/0.npz', {names})")
    samples, problems = list[dict[str, Array]](), list[str]()
    for file in files:
        try:
            with np.load(file, allow_pickle=False) as archive:
                samples.append(dict(archive))
        except Exception as error:  # noqa: BLE001 - whatever NumPy, its zip archives or zlib raise
            remedy = f"np.savez('{file.with_suffix('.npz').name}', {names})"
            problems.append(f"--inputs {file}: is no .npz file ({error}); write one with {remedy}")
        else:
            problems += [f"--inputs {file}: {problem}" for problem in _misfits(samples[-1], inputs)]
    if problems:
        raise UsageError("\n".join(problems[:SHOWN]))
    return samples


def _misfits(sample: Sample, inputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield what does not fit: names, types, shapes, symbols that would stand for two sizes."""
    names = [tensor.name for tensor in inputs]
    for tensor in inputs:
        array = sample.get(tensor.name)
        if array is None:
            yield f"input {tensor.name} is missing: the graph wants {tensor.text}"
        elif array.dtype.name != tensor.dtype or not fits_shape(array.shape, tensor) or not array.size:
            has = f"{array.dtype.name} {shape_text(array.shape)}"
            cast = f"; cast it: array.astype(np.{tensor.dtype})" if array.dtype.name != tensor.dtype else ""
            yield f"input {tensor.name}: graph wants {tensor.text}, the file has {has}{cast}"
    for name in sample:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; perhaps you meant {near[0]}" if near else f"; its inputs are {', '.join(names)}"
            yield f"{name} is no input of the graph{hint}"
    for symbol, sizes in _bind_symbols(inputs, {n: array.shape for n, array in sample.items()}).items():
        if len(sizes) > 1:
            yield f"{symbol} is {', and '.join(f'{size} in input {name}' for size, name in sizes.items())}"


# --- Samples that are drawn


def _fill_shapes(model: ModelFile, given: Shapes) -> dict[str, Shape]:
    """Return a shape for each input (the values of one that sets a shape); :class:`UsageError`.

    Symbols get the sizes that they have in ``given``. An unknown first dimension, the batch, is 1.
    """
    sizes = {symbol: next(iter(each)) for symbol, each in _bind_symbols(model.inputs, given).items()}
    found, unknown = dict(given), list[Tensor]()
    for tensor in (tensor for tensor in model.inputs if tensor.name not in given):
        dims = [sizes.get(dim) if isinstance(dim, str) else dim for dim in tensor.shape or ()]
        if dims and dims[0] is None:
            dims[0] = 1
        if tensor.shape is None or None in dims or tensor.sets:
            unknown.append(tensor)
        found[tensor.name] = tuple(dim or 0 for dim in dims)
    if unknown:
        said = "".join(f"\n  input {tensor.name} is {tensor.text}" for tensor in unknown)
        what = "values" if unknown[0].sets else "shape"
        raise UsageError(
            f"--model {model.path}: its shapes are dynamic, and nothing says which ones to run{said}\n"
            f"  name them: --profile {unknown[0].name}=MIN:OPT:MAX (least, usual, largest {what}), or give "
            "--inputs"
        )
    return found


def draw_sample(model: ModelFile, shapes: Shapes, seed: int = SEED) -> dict[str, Array]:
    """Draw inputs of these shapes, always the same ones for a seed; what sets a shape has these values.

    Real numbers are standard normal. Integers that index a table are below its number of rows; masks and
    lengths are such that nothing is left out, positions count up, other integers are 0 or 1.
    """
    random = np.random.RandomState(seed)  # its numbers are the same in every release of NumPy
    longest = max(
        (size for tensor in model.inputs if not tensor.sets for size in shapes[tensor.name]), default=1
    )
    sample: dict[str, Array] = {}
    for tensor in model.inputs:
        shape, name, dtype = shapes[tensor.name], tensor.name.lower(), np.dtype(tensor.dtype)
        rows = model.tables.get(tensor.name)
        drawn: Array
        if tensor.sets:
            drawn = np.array(shape if tensor.shape != () else shape[0])
        elif "mask" in name or dtype.kind == "b":
            drawn = np.ones(shape)
        elif dtype.kind == "f":
            drawn = np.asarray(random.standard_normal(shape))
        elif "length" in name or name.endswith("_len"):
            drawn = np.full(shape, longest)
        elif "position" in name and shape:
            drawn = np.broadcast_to(np.arange(shape[-1]) % (rows or shape[-1]), shape)
        else:
            most = min(rows or (256 if dtype == np.uint8 else 2), np.iinfo(dtype).max)
            drawn = np.asarray(random.randint(0, max(1, most), shape))
        sample[tensor.name] = drawn.astype(dtype)
    return sample
