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
"""The smallest, the usual and the largest shape of an input: TensorRT's min, opt and max. Of an input that is
a shape itself, its values."""

LONGEST_STEM = 40


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An input or output of a graph.

    ``dtype`` is NumPy's name (``"float32"``), or ONNX's where NumPy has none. ``shape`` is None where not
    even the rank is known. ``feeds``: what an input of integers decides the shape of, such as ``TopK's k``:
    TensorRT wants to know its values when it builds.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    feeds: str = ""

    @property
    def is_dynamic(self) -> bool:
        """Whether its shape, or what decides the shape of others, is not one alone."""
        return bool(self.feeds) or self.shape is None or any(not isinstance(dim, int) for dim in self.shape)

    @property
    def text(self) -> str:
        """Its type in words: ``int64 [batch, 128]``."""
        return f"{self.dtype} {shape_text(self.shape)}"

    @property
    def told(self) -> str:
        """Its type, and what it feeds: ``int64 [1] (TopK's k)``."""
        return f"{self.text} ({self.feeds})" if self.feeds else self.text


def shape_text(shape: Sequence[Dim] | None) -> str:
    """Write a shape: ``[batch, 128]``, with ? for what is not known."""
    return "of any shape" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name for files → the tensor's own, in the same order; no two are the same, in any case.

    Letters, digits, ``_``, ``-`` and dots between them stay; what else there is becomes ``_``.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tensor"
        plain, count = plain[:80], 1
        free = plain
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
    name, equals, shapes = text.rpartition("=")
    form = "expected INPUT=MIN:OPT:MAX such as ids=1x16:4x128:8x512"
    if not equals or not name:
        raise ValueError(f"{text!r}: {form}")
    parts = [_parse_shape(part) for part in shapes.split(":")]
    if len(parts) not in {1, 3} or None in parts:
        raise ValueError(f"{text!r}: {form}")
    low, opt, high = (part or () for part in (parts * 3 if len(parts) == 1 else parts))
    if len({len(low), len(opt), len(high)}) != 1:
        raise ValueError(f"{text!r}: the three shapes have different ranks")
    if not all(a <= b <= c for a, b, c in zip(low, opt, high, strict=True)):
        raise ValueError(f"{text!r}: each dimension must grow from MIN over OPT to MAX")
    return name, (low, opt, high)


def _parse_shape(text: str) -> Shape | None:
    """Read ``4x128``; nothing is a scalar's shape."""
    parts = text.split("x") if text else []
    return tuple(map(int, parts)) if all(re.fullmatch("-?[0-9]+", part) for part in parts) else None


def fits_range(ranges: Range, tensor: Tensor) -> bool:
    """Whether shapes are those that an input may have; where it feeds a shape, values as many as it has."""
    if not tensor.feeds:
        return all(fits_shape(shape, tensor) and min(shape, default=0) >= 0 for shape in ranges)
    count = tensor.shape[0] if tensor.shape else 1
    return tensor.shape is None or not isinstance(count, int) or count == len(ranges[0])


def fits_shape(shape: Shape, tensor: Tensor) -> bool:
    """Whether a shape is one that a graph's tensor may have, symbols apart."""
    if tensor.shape is None:
        return True
    same = len(shape) == len(tensor.shape)
    pairs = zip(shape, tensor.shape, strict=False)
    return same and all(not isinstance(dim, int) or dim == size for size, dim in pairs)


def bind_symbols(tensors: Iterable[Tensor], shapes: Shapes) -> tuple[dict[str, int], list[str]]:
    """Return what each symbol stands for in a sample, and a problem for each that stands for two sizes."""
    bound: dict[str, tuple[int, str]] = {}
    problems = []
    for tensor in tensors:
        sizes = shapes.get(tensor.name, ()) if not tensor.feeds else ()
        for dim, size in zip(tensor.shape or (), sizes, strict=False):
            if not isinstance(dim, str):
                continue
            known, first = bound.setdefault(dim, (size, tensor.name))
            if known != size:
                problems.append(f"{dim} is {known} in input {first}, and {size} in input {tensor.name}")
    return {dim: size for dim, (size, _) in bound.items()}, problems


def fill_shapes(tensors: Sequence[Tensor], given: Shapes) -> tuple[dict[str, Shape], list[Tensor]]:
    """Return a shape for each input (values, where it feeds one), and the inputs of which it is not known.

    Symbols get the sizes that they have in ``given``. An unknown first dimension, the batch, is 1.
    """
    sizes, _ = bind_symbols(tensors, given)
    found: dict[str, Shape] = {}
    unknown = []
    for tensor in tensors:
        if tensor.name in given:
            found[tensor.name] = given[tensor.name]
            continue
        if tensor.shape is None or tensor.feeds:
            unknown.append(tensor)
            continue
        dims = [sizes.get(dim) if isinstance(dim, str) else dim for dim in tensor.shape]
        if dims and dims[0] is None:
            dims[0] = 1
        known = tuple(dim for dim in dims if dim is not None)
        if len(known) == len(dims):
            found[tensor.name] = known
        else:
            unknown.append(tensor)
    return found, unknown


def profile_of(tensors: Iterable[Tensor], samples: Sequence[Shapes]) -> dict[str, Range]:
    """Return the ranges of the dynamic inputs over samples: the usual shape is the most frequent one."""
    return {
        tensor.name: _range([sample[tensor.name] for sample in samples])
        for tensor in tensors if tensor.is_dynamic
    }  # fmt: skip


def _range(shapes: Sequence[Shape]) -> Range:
    low = tuple(map(min, zip(*shapes, strict=True)))
    high = tuple(map(max, zip(*shapes, strict=True)))
    return low, Counter(shapes).most_common(1)[0][0], high


def is_within(shape: Shape, allowed: Range) -> bool:
    """Whether a shape is within a range."""
    low, _, high = allowed
    same = len(shape) == len(low)
    return same and all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))
