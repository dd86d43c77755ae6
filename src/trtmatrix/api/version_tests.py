"""Works out tests of TensorRT's version at both ends of a move, such as ``int(trt.__version__[0]) >= 8``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trtmatrix.api.types import ApiChange, ChangeKind

FAILED = "an error"
"""What stands for the outcome of an expression that raises."""
READERS = {"Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"}
_METHODS = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b, ast.Add: operator.add, ast.Mult: operator.mul,
}  # fmt: skip
_CALLS: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "tuple": tuple, "list": list,
    "map": lambda items: [*map(int, items)],
    **dict.fromkeys(READERS, lambda text: _padded(release_of(str(text)), 6)),
}  # fmt: skip


@dataclass(frozen=True)
class Const:
    """A literal of the code: a number, a text, a tuple."""

    value: Any


@dataclass(frozen=True)
class Versioned:
    """What hangs on the version: its value at the version moved to (``now``) and from (``was``).

    ``start`` and ``stop``: which of the release's numbers it is meant to be, as ``[0]`` of the text is to be
    the first; ``start`` is -1 where it is none. ``known`` is false where it is not followed.
    """

    now: Any = None
    was: Any = None
    start: int = -1
    stop: int | None = None
    known: bool = True

    @property
    def truth(self) -> bool | None:
        """Whether it is true at the version moved to; None where that is not known."""
        return bool(self.now) if self.known and self.now is not FAILED else None


UNKNOWN = Versioned(known=False)


def release_of(text: str) -> tuple[int, ...]:
    """Return a version's leading numbers."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _fold(function: Callable[..., Any], *values: object, like: object = None) -> Versioned:
    """Apply a function at both versions; the outcome stands for the numbers that ``like`` stands for."""
    found = []
    for end in ("now", "was"):
        try:
            given = [each.value if isinstance(each, Const) else getattr(each, end) for each in values]
            if not all(getattr(each, "known", True) for each in values):
                return UNKNOWN
            found.append(FAILED if FAILED in [str(each) for each in given] else function(*given))
        except AttributeError:
            return UNKNOWN
        except (TypeError, ValueError, IndexError, ArithmeticError):
            found.append(FAILED)
    start, stop = getattr(like, "start", -1), getattr(like, "stop", None)
    return Versioned(now=found[0], was=found[1], start=start, stop=stop)


def fold_method(base: Versioned, name: str, args: Sequence[object]) -> Versioned:
    """Return what a text's method gives."""
    if name not in _METHODS:
        return UNKNOWN
    keeps = name not in ("replace", "partition", "startswith")
    return _fold(lambda text, *rest: getattr(text, name)(*rest), base, *args, like=base if keeps else None)


def fold_call(name: str, args: Sequence[object]) -> Versioned:
    """Return what a conversion or a reader of versions makes of a version; of any other function nothing."""
    return _fold(_CALLS[name], args[-1], like=args[-1]) if name in _CALLS and args else UNKNOWN


def fold_item(base: Versioned, index: ast.expr) -> Versioned:
    """Return an item or a slice; of a text, the numbers that it was at the version moved from."""
    try:
        first = ast.literal_eval((index.lower or ast.Constant(0)) if isinstance(index, ast.Slice) else index)
        last = first + 1
        if isinstance(index, ast.Slice):
            last = ast.literal_eval(index.upper) if index.upper else None
        key = slice(first, last) if isinstance(index, ast.Slice) else first
        start, stop = first, last
        if isinstance(base.was, str):
            start, stop = base.was[:first].count("."), last and base.was[:last].rstrip(".").count(".") + 1
    except (TypeError, ValueError):
        return UNKNOWN
    found = _fold(operator.getitem, base, Const(key))
    if base.start < 0 or start < 0 or not found.known:
        return found
    return replace(found, start=base.start + start, stop=None if stop is None else base.start + stop)


def fold_operator(left: object, how: ast.AST, right: object) -> Versioned:
    """Return what a comparison, a sum or a product gives."""
    return _fold(_OPERATORS[type(how)], left, right) if type(how) in _OPERATORS else UNKNOWN


def judge_misread(text: str, value: object, after: str) -> ApiChange | None:
    """Return the change that reading one sign of the version is: the 1 of ``"10.8"[0]``."""
    if not isinstance(value, Versioned) or value.start < 0 or not isinstance(value.now, int | str):
        return None
    meant, got = release_of(after)[value.start : value.stop], release_of(str(value.now))
    return None if meant[:1] == got[:1] else _change(text, after, str(value.now), ".".join(map(str, meant)))


def judge_flip(
    text: str, left: object, how: ast.cmpop | str, right: object, ends: tuple[str, str]
) -> ApiChange | None:
    """Return the change that a test is where it is right at the version moved from and wrong at the other.

    Right is what the versions' numbers give; ``how`` is an operator, or ``"startswith"`` for that method.
    """
    if isinstance(right, Versioned) and isinstance(left, Const) and isinstance(how, ast.cmpop):
        turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
        left, how, right = right, turned.get(type(how), type(how))(), left
    if not isinstance(left, Versioned) or not isinstance(right, Const) or left.start < 0:
        return None
    got = fold_method(left, how, [right]) if isinstance(how, str) else fold_operator(left, how, right)
    meant = [_meant(release_of(end)[left.start : left.stop], how, right.value) for end in ends]
    if not got.known or meant[1] is None or got.now == meant[1] or got.was not in (meant[0], FAILED):
        return None
    return _change(text, ends[1], str(got.now), str(meant[1]))


def _change(text: str, after: str, got: str, meant: str) -> ApiChange:
    return ApiChange(
        name=f"version test {text}", kind=ChangeKind.CHANGED, source="worked out from this line",
        note=f"at {after} it gives {got}, where the version's numbers give {meant}",
        replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
    )  # fmt: skip


def _meant(release: tuple[int, ...], how: ast.cmpop | str, literal: object) -> bool | None:
    """Return what a test is meant to say of a release's numbers; None where the literal is no version."""
    if isinstance(how, str | ast.In | ast.NotIn):
        wanted = [_numbers(each) for each in (literal if isinstance(literal, list | tuple) else [literal])]
        found = any(each and release[: len(each)] == each for each in wanted)
        return None if None in wanted else found is not isinstance(how, ast.NotIn)
    if (numbers := _numbers(literal)) is None or type(how) not in _OPERATORS:
        return None
    release = release[: len(numbers)] if isinstance(how, ast.Eq | ast.NotEq) else release
    size = max(len(release), len(numbers))
    return bool(_OPERATORS[type(how)](_padded(release, size), _padded(numbers, size)))


def _numbers(literal: object) -> tuple[int, ...] | None:
    """Return the release's numbers that a literal stands for: ``8.2``, ``"8.2"`` and ``(8, 2)`` alike."""
    text = ".".join(str(each) for each in literal) if isinstance(literal, tuple | list) else str(literal)
    return release_of(text) if re.fullmatch(r"v?\d+(\.\d+)*\.?\w*", text) else None


def _padded(numbers: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * (size - len(numbers)))
