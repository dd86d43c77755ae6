"""Which dimensions of a graph's tensors are the same: factors of sizes, joined and split by what nodes do."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Dims = tuple[int, ...]
"""A dimension as a product of atoms, the slowest first; none: a dimension of size 1."""


class Atoms:
    """Factors of dimensions. Two that must have one size are joined, one that is reshaped is split."""

    def __init__(self) -> None:
        """Know none."""
        self._size: list[int] = []
        self._same: dict[int, int] = {}
        self._parts: dict[int, Dims] = {}
        self._frozen: set[int] = set()

    def new(self, size: int) -> Dims:
        """Return a dimension of this size."""
        if size == 1:
            return ()
        self._size.append(size)
        return (len(self._size) - 1,)

    def size(self, atom: int) -> int:
        """Return an atom's size."""
        return self._size[atom]

    def expand(self, dims: Sequence[int]) -> Dims:
        """Return the atoms that a product consists of now, none of which is split or stands for another."""
        found: list[int] = []
        for atom in dims:
            while atom in self._same:
                atom = self._same[atom]  # noqa: PLW2901 - followed to what it stands for
            found += self.expand(self._parts[atom]) if atom in self._parts else (atom,)
        return tuple(found)

    def freeze(self, dims: Sequence[int]) -> None:
        """Note that a dimension keeps its size."""
        self._frozen.update(self.expand(dims))

    def is_frozen(self, atom: int) -> bool:
        """Whether an atom (as :meth:`expand` gives it) keeps its size."""
        return atom in self._frozen

    def join(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Note that two products count the same elements in the same order; what does not fit is frozen."""
        left, right = list(self.expand(one)), list(self.expand(other))
        sizes = [prod(map(self.size, one)) for one in (left, right)]
        if sizes[0] != sizes[1] or not sizes[0]:  # of no elements nothing is known
            self.freeze([*left, *right])
            return
        while left and right:
            a, b = self.expand(left)[0], self.expand(right)[0]
            left, right = list(self.expand(left)), list(self.expand(right))
            if self.size(a) == self.size(b):
                self._join(a, b)
                del left[0], right[0]
            elif self.size(a) % self.size(b) == 0:
                self._split(a, self.size(b))
            elif self.size(b) % self.size(a) == 0:
                self._split(b, self.size(a))
            else:
                self.freeze([*left, *right])
                return

    def _join(self, a: int, b: int) -> None:
        if a == b:
            return
        self._same[b] = a
        if b in self._frozen:
            self._frozen.add(a)

    def _split(self, atom: int, first: int) -> None:
        parts = (*self.new(first), *self.new(self._size[atom] // first))
        self._parts[atom] = parts
        if atom in self._frozen:
            self._frozen.update(parts)
