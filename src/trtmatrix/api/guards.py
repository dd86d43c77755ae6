"""Says what tests of TensorRT's version, and of its names, give at the version moved to.

A test is worked out twice: as Python does, and as it is meant, by the version's numbers. Where the two
differ, the test is wrong at that version.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trtmatrix.api.names import Names, dotted_name
from trtmatrix.api.roles import BINDINGS, FOREIGN, OWN, Roles, text_of
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

_ASKS = ("version", "get_version", "get_distribution")
_MAY_ASK = re.compile(r"__version__|hasattr|version\(|get_distribution")
_FAILED, _LONGEST = "an error", 999


class Outcome(NamedTuple):
    """What an expression gives at the version moved to, and what it is meant to; None: that is unclear."""

    got: Any
    meant: Any

    @property
    def is_clear(self) -> bool:
        """Whether it is known, and as it is meant."""
        return self.got not in (None, _FAILED) and self.meant in (None, self.got)


class Guards:
    """Works out the tests in one file."""

    def __init__(self, roles: Roles, names: Names, code: str, shared: Mapping[str, Outcome]) -> None:
        """Take a file. ``shared``: names and ``functions()`` of other files that hang on the version."""
        self.roles, self.names, self.shared = roles, names, shared
        self._flags: dict[str, Outcome | None] = {}
        self._asks = bool(_MAY_ASK.search(code)) or any(name.rstrip("()") in code for name in shared)

    def _hangs(self, node: ast.AST) -> bool:
        """Whether an expression hangs on TensorRT's version, or on what its bindings have."""
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and self._meaning(node) is not None:
            return True
        chosen = isinstance(node, ast.IfExp) and not isinstance(node.body, ast.Constant)
        parts = [node.body, node.orelse] if chosen else ast.iter_child_nodes(node)  # type: ignore[attr-defined]
        return any(map(self._hangs, parts))

    def _meaning(self, node: ast.AST) -> Outcome | None:
        """Return what a part of a test gives if it hangs on the version by itself."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                version = self.names.after
                return Outcome(version, version) if self.roles.role(holder) == "tensorrt" else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                if (held := self.roles.role(holder)) in ("", OWN, FOREIGN):
                    return None
                dotted = name if held == "tensorrt" else f"{held.removesuffix('()')}.{name}"
                return Outcome(*[self.names.target.find(dotted) is not None] * 2)
            case ast.Call(args=[named, *_]) if BINDINGS.match(text_of(named)):
                asked = dotted_name(node.func).rpartition(".")[2] in _ASKS
                return Outcome(self.names.after, self.names.after) if asked else None
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self._flag(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self._flag(f"{name}()")
        return None

    def _flag(self, name: str) -> Outcome | None:
        """Return what a name, or a ``function()``, gives if that hangs on the version."""
        if name not in self._flags:
            self._flags[name] = None  # of what hangs on itself
            bound, imported, plain = self.roles.bound, self.roles.imported, name.removesuffix("()")
            given = (each for each in bound.get(name, ()) if isinstance(each, ast.expr))
            found = next((self._work_out(each) for each in given if self._hangs(each)), None)
            if found is None and (plain in imported or plain not in bound):
                found = self.shared.get(imported.get(plain, plain) + name[len(plain) :])
            self._flags[name] = found
        return self._flags[name]

    def exports(self) -> dict[str, Outcome]:
        """Return what names of the module, and its functions, give in other files."""
        names = (*self.roles.shared, *(f"{name}()" for name in self.roles.defined))
        self._flags.clear()  # others may have shared more by now
        found = {name: flag for name in names if (flag := self._flag(name))}
        self._flags.clear()
        return found

    def judge(self, node: ast.expr) -> tuple[str, str]:
        """Return what keeps a test's body, and its else, from running at the version moved to; or nothing."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                bodies, elses = zip(*map(self.judge, parts), strict=True)
                body, other = next(filter(None, bodies), ""), next(filter(None, elses), "")
                return (body, other * all(elses)) if isinstance(how, ast.And) else (body * all(bodies), other)
        if not self._asks or not self._hangs(node):
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        outcome = self._work_out(node)
        if not outcome.is_clear:
            return shown, shown
        return ("", shown) if outcome.got else (shown, "")

    def find_flip(self, node: ast.expr) -> ApiChange | None:
        """Return the change that a test of the version is where it is wrong at the version moved to.

        So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
        """
        if not self._asks or not self._hangs(node):
            return None
        outcome = self._work_out(node)
        if outcome.got is None or outcome.is_clear:
            return None
        differs = f", where the version's numbers give {outcome.meant}" * (
            outcome.meant not in (None, outcome.got)
        )
        return ApiChange(
            name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED,
            source="worked out from this line",
            note=f"at {self.names.after} it gives {outcome.got}{differs}",
            replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
        )  # fmt: skip

    def _work_out(self, node: ast.expr) -> Outcome:
        return Outcome(*(Reading(self._meaning, meant=meant).outcome(node) for meant in (False, True)))


_TEXT = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_VERSIONS = {"Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Not: lambda a, _: not a, ast.USub: lambda a, _: -a,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Reading:
    """Works expressions out as Python does or, if ``meant``, with texts as the numbers of versions."""

    def __init__(self, look: Callable[[ast.expr], Outcome | None], *, meant: bool) -> None:
        """Take what says what parts of an expression give."""
        self.look, self.meant = look, meant

    def outcome(self, node: ast.expr) -> Any:  # noqa: ANN401 - what an expression of the user's gives
        """Return what an expression gives, None where that is unclear, an error's word where it raises."""
        try:
            return self._fold(node)
        except (LookupError, RecursionError):
            return None
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return _FAILED

    def _fold(self, node: ast.expr) -> Any:  # noqa: ANN401
        """Work an expression out; raises LookupError where it is unclear, or what Python raises."""
        if (found := self.look(node)) is not None:
            if found[self.meant] in (None, _FAILED):
                raise LookupError
            return found[self.meant]
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(map(self._fold, parts))
            case ast.UnaryOp(op=how, operand=inner):
                return _OPERATORS[type(how)](self._fold(inner), None)
            case ast.Attribute(value=inner, attr="major" | "minor" as name):
                return self._fold(inner)[name == "minor"]
            case ast.Slice(lower=lower, upper=upper):
                return slice(lower and self._fold(lower), upper and self._fold(upper))
            case ast.Subscript(value=inner, slice=index):
                whole, place = self._fold(inner), self._fold(index)
                return _cut(whole, place) if self.meant and isinstance(whole, str) else whole[place]
            case ast.ListComp(elt=part, generators=[each]) | ast.GeneratorExp(elt=part, generators=[each]):
                return self._call("map" if isinstance(part, ast.Call) else "tuple", self._fold(each.iter))
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                sides = self._fold(left), self._fold(right)
                by_numbers = self.meant and not (
                    isinstance(sides[1], str) and isinstance(how, ast.In | ast.NotIn)
                )
                return _OPERATORS[type(how)](*(map(_numbers, sides) if by_numbers else sides))
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args) if name in _TEXT:
                texts = list(map(self._fold, (inner, *args)))
                if any(len(str(each)) > _LONGEST for each in texts):  # of replace after replace
                    raise LookupError
                if self.meant and name == "startswith":
                    return _numbers(texts[0])[: len(start := _numbers(texts[1]))] == start
                given = getattr(texts[0], name)(*texts[1:])
                return tuple(given) if isinstance(given, list) else given
            case ast.Call(func=function, args=[*_, part]):
                return self._call(dotted_name(function).rpartition(".")[2], self._fold(part))
        raise LookupError

    def _call(self, name: str, value: Any) -> Any:  # noqa: ANN401
        """Return what a function gives."""
        if name in _VERSIONS:
            return (*(numbers := numbers_of(value.lstrip("v"))), *(0,) * (6 - len(numbers)))
        functions: dict[str, Callable[[Any], Any]] = {
            "int": int, "float": float, "str": str, "tuple": tuple, "list": tuple,
            "map": lambda parts: tuple(map(int, parts)),
        }  # fmt: skip
        return functions[name](value)


def _numbers(value: Any) -> Any:  # noqa: ANN401
    """Return a text, or each of several, as the numbers of a version."""
    if isinstance(value, tuple | list):
        return tuple(map(_numbers, value))
    return numbers_of(value) if isinstance(value, str) else value


def _cut(version: str, place: int | slice) -> str:
    """Cut a version between its numbers, where one with numbers of one digit is cut."""
    parts = version.split(".")
    if isinstance(place, slice):
        ends = [None if end is None else (end + 1) // 2 for end in (place.start, place.stop)]
        return ".".join(parts[slice(*ends)])
    return parts[place // 2]
