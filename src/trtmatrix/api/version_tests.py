"""Works out tests of TensorRT's version at both ends of a move, such as ``int(trt.__version__[0]) >= 8``.

Each is worked out twice: with the version's text, as Python does, and with what its numbers mean.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

VERSION = ast.Name(id="tensorrt.__version__")
"""What a lookup returns for TensorRT's version itself."""
Look = Callable[[ast.expr], ast.expr | None]
"""Returns the expression that a name, an attribute or a call stands for; None where it stands for itself."""
Outcome = Any
"""What an expression of the user's gives; None where that is unclear, :data:`FAILED` where it raises."""
FAILED = "an error"
_METHODS = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_PARTS = {"major": 0, "minor": 1, "micro": 2, "release": slice(3), "base_version": slice(3)}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b, ast.Add: operator.add, ast.Mult: operator.mul,
}  # fmt: skip
_TURNED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_CALLS: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "str": str, "tuple": tuple, "list": tuple,
    "map": lambda parts: tuple(map(int, parts)),
    **dict.fromkeys(
        ("Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"),
        lambda text: _padded(numbers_of(str(text).lstrip("v"))),
    ),
}  # fmt: skip


class Unclear(Exception):
    """An expression that cannot be worked out."""


@dataclass(frozen=True)
class Numbers:
    """A version, or a part of it, as what its numbers mean: the first of ``"10.8.0"`` is 10.

    ``text``: the version moved from, whose dots say which numbers a slice of signs was meant to hold.
    """

    numbers: tuple[int, ...]
    text: str = ""

    def __getitem__(self, key: int | slice) -> Numbers:
        """Return what an item or a slice is meant to hold."""
        first, last = (key.start or 0, key.stop) if isinstance(key, slice) else (key, key + 1 or None)
        if self.text:
            first, last = self.text[:first].count("."), last and self.text[:last].rstrip(".").count(".") + 1
        return Numbers(self.numbers[first:last])

    def compare(self, how: ast.AST, literal: object) -> bool:
        """Return what a comparison with a literal is meant to say."""
        if isinstance(how, ast.In | ast.NotIn):
            return self.begins(literal) is isinstance(how, ast.In)
        wanted = _meant(literal)
        mine = self.numbers[: len(wanted)] if isinstance(how, ast.Eq | ast.NotEq) else self.numbers
        return bool(_OPERATORS[type(how)](_padded(mine), _padded(wanted)))

    def begins(self, literal: object) -> bool:
        """Whether the first numbers are those of a literal, or of one of several."""
        several = literal if isinstance(literal, tuple) else (literal,)
        return any(self.numbers[: len(_meant(each))] == _meant(each) for each in several)


def fold(node: ast.expr, version: str | Numbers, look: Look) -> Outcome:
    """Work an expression out at a version; raises :class:`Unclear`, or what Python raises."""
    if (found := look(node)) is not None:
        return version if found is VERSION else fold(found, version, look)

    def of(part: ast.expr | None) -> Outcome:
        return None if part is None else fold(part, version, look)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return tuple(map(of, parts))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not of(inner)
        case ast.BoolOp(op=how, values=parts):
            return (all if isinstance(how, ast.And) else any)(of(part) for part in parts)
        case ast.IfExp(test=test):
            return of(node.body if of(test) else node.orelse)
        case ast.Attribute(value=inner, attr=name) if name in _PARTS:
            return of(inner)[_PARTS[name]]
        case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper)):
            return of(inner)[slice(of(lower), of(upper))]
        case ast.Subscript(value=inner, slice=index):
            return of(inner)[ast.literal_eval(index)]
        case ast.ListComp(elt=part, generators=[each]) | ast.GeneratorExp(elt=part, generators=[each]):
            return _call("map" if isinstance(part, ast.Call) else "tuple", of(each.iter))
        case ast.Compare(left=left, ops=[how], comparators=[right]):
            one, other = of(left), of(right)
            if isinstance(other, Numbers):
                one, how, other = other, _TURNED.get(type(how), type(how))(), one
            return one.compare(how, other) if isinstance(one, Numbers) else _OPERATORS[type(how)](one, other)
        case ast.BinOp(left=left, op=how, right=right):
            return _OPERATORS[type(how)](of(left), of(right))
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args) if name in _METHODS:
            base = of(inner)
            if isinstance(base, Numbers):
                return base.begins(of(args[0])) if name == "startswith" else Numbers(base.numbers)
            return getattr(base, name)(*map(of, args))
        case ast.Call(func=function, args=[*_, part]):
            return _call(ast.unparse(function).rpartition(".")[2], of(part))
    raise Unclear


def _call(name: str, value: Outcome) -> Outcome:
    if name not in _CALLS:
        raise Unclear
    return value if isinstance(value, Numbers) else _CALLS[name](value)


def work_out(node: ast.expr, ends: tuple[str, str], look: Look, *, at: str = "") -> tuple[Outcome, Outcome]:
    """Return what an expression gives at the version moved to (or ``at``), and what it is meant to give."""
    found: list[Outcome] = []
    for version in (at or ends[1], Numbers(numbers_of(at or ends[1]), ends[0])):
        try:
            found.append(fold(node, version, look))
        except (Unclear, RecursionError, KeyError):
            found.append(None)
        except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError):
            found.append(None if isinstance(version, Numbers) else FAILED)
    return found[0], found[1]


def find_flip(node: ast.expr, ends: tuple[str, str], look: Look) -> ApiChange | None:
    """Return the change that a test is where it is right at the version moved from and wrong at the other.

    So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
    """
    got, meant = work_out(node, ends, look)
    shown = meant
    if isinstance(meant, Numbers):
        wrong = isinstance(got, int | str) and numbers_of(str(got))[:1] != meant.numbers[:1]
        shown = ".".join(map(str, meant.numbers))
    else:
        was, meant_before = work_out(node, ends, look, at=ends[0])
        wrong = None not in (got, meant) and got != meant and was in (meant_before, FAILED)
    if not wrong:
        return None
    return ApiChange(
        name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED, source="worked out from this line",
        note=f"at {ends[1]} it gives {got}, where the version's numbers give {shown}",
        replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
    )  # fmt: skip


def _meant(literal: object) -> tuple[int, ...]:
    """Return the release's numbers that a literal stands for: ``8.2``, ``"8.2"`` and ``(8, 2)`` alike."""
    text = ".".join(map(str, literal)) if isinstance(literal, tuple) else str(literal)
    if re.fullmatch(r"v?\d+(\.\d+)*\.?\w*", text) is None:
        raise Unclear
    return numbers_of(text.lstrip("v"))


def _padded(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers, *(0,) * (6 - len(numbers)))
