"""Works out tests of TensorRT's version at both ends of a move, such as ``int(trt.__version__[0]) >= 8``.

Each is worked out twice: as Python does, and as it is meant, with every number of a text as one sign: then
``"10.8"`` is larger than ``"8.6"``, and its first sign is the ten.
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
FAILED, TEN = "an error", 0xE000
_METHODS = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_PARTS = {"major": 0, "minor": 1, "micro": 2, "release": slice(3), "base_version": slice(3)}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b, ast.Add: operator.add,
    ast.Mult: lambda a, b: a * b if {type(a), type(b)} <= {int, float} else None,
}  # fmt: skip
_VERSIONS = {"Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"}


class Unclear(Exception):
    """An expression that cannot be worked out."""


@dataclass(frozen=True)
class Reading:
    """Works expressions out at a version; ``meant``: as they are meant, not as Python does."""

    version: str
    look: Look
    meant: bool = False

    def outcome(self, node: ast.expr) -> Outcome:
        """Return what an expression gives."""
        try:
            return self.fold(node)
        except (Unclear, RecursionError, KeyError):
            return None
        except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError):
            return None if self.meant else FAILED

    def fold(self, node: ast.expr) -> Outcome:
        """Work an expression out; raises :class:`Unclear`, or what Python raises."""
        if (found := self.look(node)) is not None:
            return self.read(self.version) if found is VERSION else self.fold(found)
        match node:
            case ast.Constant(value=value):
                return self.read(value) if isinstance(value, str) else value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(map(self.fold, parts))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self.fold(inner)
            case ast.BoolOp(op=how, values=parts):
                return (all if isinstance(how, ast.And) else any)(self.fold(part) for part in parts)
            case ast.IfExp(test=test):
                return self.fold(node.body if self.fold(test) else node.orelse)
            case ast.Attribute(value=inner, attr=name) if name in _PARTS:
                return self.fold(inner)[_PARTS[name]]
            case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper)):
                return self.fold(inner)[slice(lower and self.fold(lower), upper and self.fold(upper))]
            case ast.Subscript(value=inner, slice=index):
                return self.fold(inner)[ast.literal_eval(index)]
            case ast.ListComp(elt=part, generators=[each]) | ast.GeneratorExp(elt=part, generators=[each]):
                return self.call("map" if isinstance(part, ast.Call) else "tuple", self.fold(each.iter))
            case (
                ast.Compare(left=left, ops=[how], comparators=[right])
                | ast.BinOp(left=left, op=how, right=right)
            ):
                both = self.fold(left), self.fold(right)
                texts = self.meant and all(isinstance(each, str) for each in both)
                return _OPERATORS[type(how)](*(each.rstrip(".") if texts else each for each in both))
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args) if name in _METHODS:
                return getattr(self.fold(inner), name)(*map(self.fold, args))
            case ast.Call(func=function, args=[*_, part]):
                return self.call(ast.unparse(function).rpartition(".")[2], self.fold(part))
        raise Unclear

    def read(self, text: str) -> str:
        """Return a text, where it is meant with each number of several signs as one."""
        return re.sub(r"\d\d+", lambda found: chr(TEN + int(found[0][:3])), text) if self.meant else text

    def number(self, text: str) -> str:
        """Return the text of a number that :meth:`read` may have shortened."""
        plain = text.rstrip("." * self.meant)
        return re.sub(f"[{chr(TEN)}-{chr(TEN + 999)}]", lambda found: str(ord(found[0]) - TEN), plain)

    def call(self, name: str, value: Outcome) -> Outcome:
        """Return what a function gives."""
        if name in ("int", "float"):
            number = self.number(value) if isinstance(value, str) else value
            return float(number) if name == "float" else int(numbers_of(number)[0] if self.meant else number)
        if name == "map":
            return tuple(self.call("int", part) for part in value)
        if name in _VERSIONS:
            return (*(numbers := numbers_of(self.number(value).lstrip("v"))), *(0,) * (6 - len(numbers)))
        if name in ("tuple", "list", "str"):
            return str(value) if name == "str" else tuple(value)
        raise Unclear


def work_out(node: ast.expr, version: str, look: Look) -> tuple[Outcome, Outcome]:
    """Return what an expression gives at a version, and what it is meant to give."""
    return Reading(version, look).outcome(node), Reading(version, look, meant=True).outcome(node)


def find_flip(node: ast.expr, before: str, after: str, look: Look) -> ApiChange | None:
    """Return the change that a test is where it is right at the version moved from and wrong at the other.

    So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
    """
    got, meant = work_out(node, after, look)
    if isinstance(meant, bool):
        was, meant_before = work_out(node, before, look)
        wrong = got not in (None, meant) and was in (meant_before, FAILED)
    else:
        wrong = isinstance(meant, int) and got is not None and got != meant
    if not wrong:
        return None
    return ApiChange(
        name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED, source="worked out from this line",
        note=f"at {after} it gives {got}, where the version's numbers give {meant}",
        replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
    )  # fmt: skip
