"""Tensors of a user's model: their names as files, their shapes, and the shapes that they may take. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Dim = int | str | None
"""A dimension: its size, the symbol that stands for it, or None where nothing is known."""

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""Shapes of a sample's inputs by name."""

Range = tuple[Shape, Shape, Shape]
"""The smallest, the usual and the largest shape of an input: TensorRT's min, opt and max. Of an input that
sets a shape, its values."""

LONGEST_STEM = 40


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


def shape_text(shape: Sequence[Dim] | None) -> str:
    """Write a shape: ``[batch, 128]``, with ? for what is not known."""
    return "of any shape" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name for files → the tensor's own, in the same order; no two are the same, in any case.

    Letters, digits, ``_`` and ``-`` stay; what else there is becomes ``_``.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = (re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tensor")[:80]
        free, count = plain, 1
        while free.lower() in taken:
            count += 1
            free = f"{plain}-{count}"
        taken.add(free.lower())
        found[free] = name
    return found


def stem_of(name: str) -> str:
    """Return the part of a file's name that can be part of a repro's id: small letters, digits and ``-``."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_STEM].strip("-") or "model"


def parse_profile(text: str) -> tuple[str, Range]:
    """Read ``ids=1x16:4x128:8x512`` or ``ids=4x128`` (all three alike); ``ValueError`` says what is wrong."""
    shape = r"((?:-?\d+(?:x-?\d+)*)?)"
    found = re.fullmatch(rf"(.+)={shape}(?::{shape}:{shape})?", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{text!r}: expected INPUT=MIN:OPT:MAX such as ids=1x16:4x128:8x512")
    name, *parts = found.groups()
    read = [tuple(map(int, part.split("x"))) if part else () for part in parts if part is not None]
    low, opt, high = read * 3 if len(read) == 1 else read
    if len({len(low), len(opt), len(high)}) != 1:
        raise ValueError(f"{text!r}: the three shapes have different ranks")
    if not all(a <= b <= c for a, b, c in zip(low, opt, high, strict=True)):
        raise ValueError(f"{text!r}: each dimension must grow from MIN over OPT to MAX")
    return name, (low, opt, high)


def fits_range(ranges: Range, tensor: Tensor) -> bool:
    """Whether an input may have these shapes; where it sets one, as many values."""
    if tensor.sets:
        return len(ranges[0]) == 1 if tensor.shape == () else fits_shape((len(ranges[0]),), tensor)
    return all(fits_shape(shape, tensor) for shape in ranges)


def fits_shape(shape: Shape, tensor: Tensor) -> bool:
    """Whether a shape is one that a graph's tensor may have, symbols apart."""
    if tensor.shape is None:
        return True
    pairs = zip(shape, tensor.shape, strict=False)
    return len(shape) == len(tensor.shape) and all(not isinstance(d, int) or d == size for size, d in pairs)


def bind_symbols(tensors: Iterable[Tensor], shapes: Shapes) -> tuple[dict[str, int], list[str]]:
    """Return what each symbol stands for in a sample, and a problem for each that stands for two sizes."""
    bound: dict[str, tuple[int, str]] = {}
    problems = []
    for tensor in tensors:
        sizes = shapes.get(tensor.name, ()) if not tensor.sets else ()
        for dim, size in zip(tensor.shape or (), sizes, strict=False):
            if isinstance(dim, str):
                known, first = bound.setdefault(dim, (size, tensor.name))
                if known != size:
                    problems.append(f"{dim} is {known} in input {first}, and {size} in input {tensor.name}")
    return {dim: size for dim, (size, _) in bound.items()}, problems


def fill_shapes(tensors: Sequence[Tensor], given: Shapes) -> tuple[dict[str, Shape], list[Tensor]]:
    """Return a shape for each input (the values of one that sets a shape), and the inputs without one.

    Symbols get the sizes that they have in ``given``. An unknown first dimension, the batch, is 1.
    """
    sizes, _ = bind_symbols(tensors, given)
    found = dict(given)
    unknown = []
    for tensor in tensors:
        if tensor.name in given:
            continue
        dims = [sizes.get(dim) if isinstance(dim, str) else dim for dim in tensor.shape or ()]
        if dims and dims[0] is None:
            dims[0] = 1
        if tensor.shape is None or None in dims or tensor.sets:
            unknown.append(tensor)
        else:
            found[tensor.name] = tuple(dim for dim in dims if dim is not None)
    return found, unknown


def profile_of(tensors: Iterable[Tensor], samples: Sequence[Shapes]) -> dict[str, Range]:
    """Return the ranges of the dynamic inputs over samples: the usual shape is the most frequent one."""
    found = {}
    for tensor in tensors:
        if tensor.is_dynamic:
            shapes = [sample[tensor.name] for sample in samples]
            low, high = (tuple(map(end, zip(*shapes, strict=True))) for end in (min, max))
            found[tensor.name] = low, Counter(shapes).most_common(1)[0][0], high
    return found


def is_within(shape: Shape, allowed: Range) -> bool:
    """Whether a shape is within a range."""
    low, _, high = allowed
    sizes = zip(low, shape, high, strict=False)
    return len(shape) == len(low) and all(a <= size <= b for a, size, b in sizes)
