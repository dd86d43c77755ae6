"""Says what tests of TensorRT's version, and of its names, give at the version moved to.

A test is worked out twice: as Python does, and as it is meant, by the version's numbers. Where the two
differ, the test is wrong at that version.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from trtmatrix.api.names import Names, dotted_name
from trtmatrix.api.roles import BINDINGS, FOREIGN, MODULE, OWN, Roles, text_of
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

Outcome = tuple[Any, Any]
"""What an expression gives, and what it is meant to give; None is unclear."""
_MAY_ASK = re.compile(r"__version__|hasattr|version\(|get_distribution")
_FAILED, _LONGEST = "an error", 999
_TEXT = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_VERSIONS = {"Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Not: lambda a, _: not a, ast.USub: lambda a, _: -a,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Guards:
    """Works out the tests in a file; ``shared``: names and ``functions()`` of others, and what they give."""

    def __init__(self, roles: Roles, names: Names, code: str, shared: Mapping[str, Outcome]) -> None:
        self.roles, self.names, self.shared = roles, names, shared
        self._flags: dict[str, Outcome | None] = {}
        self._asks = bool(_MAY_ASK.search(code)) or any(name.rstrip("()") in code for name in shared)

    def _hangs(self, node: ast.AST) -> bool:
        """Whether an expression hangs on TensorRT's version, or on what its bindings have."""
        if not self._asks or self._meaning(node) is not None:
            return self._asks
        parts = ast.iter_child_nodes(node)
        if isinstance(node, ast.IfExp) and not isinstance(node.body, ast.Constant):
            parts = iter((node.body, node.orelse))  # which of two things it is: that is no test
        return any(map(self._hangs, parts))

    def _meaning(self, node: ast.AST) -> Outcome | None:
        """Return what a part of a test gives if it hangs on the version by itself."""
        version = self.names.after
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                return (version, version) if self.roles.role(holder) == MODULE else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                if (held := self.roles.role(holder)) in ("", OWN, FOREIGN):
                    return None
                dotted = name if held == MODULE else f"{held.removesuffix('()')}.{name}"
                return (has := self.names.target.find(dotted) is not None, has)
            case ast.Call(args=[named, *_]) if BINDINGS.match(text_of(named)):
                asked = re.search("version|distribution", dotted_name(node.func))
                return (version, version) if asked else None
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
        self._flags.clear()  # others may have shared more by now
        found = {name: flag for name in self.roles.shared if (flag := self._flag(name))}
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
        if not self._hangs(node):
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        got, meant = self._work_out(node)
        unclear = got in (None, _FAILED) or meant not in (None, got)
        return shown * (unclear or not got), shown * (unclear or bool(got))

    def find_flip(self, node: ast.expr) -> ApiChange | None:
        """Return the change that a test of the version is where it is wrong at the version moved to.

        So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
        """
        got, meant = self._work_out(node) if self._hangs(node) else (None, None)
        differs = f", where the version's numbers give {meant}" * (meant not in (None, got))
        if got is None or (got != _FAILED and not differs):
            return None
        return ApiChange(
            name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED,
            source="worked out from this line", note=f"at {self.names.after} it gives {got}{differs}",
            replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
        )  # fmt: skip

    def _work_out(self, node: ast.expr) -> Outcome:
        """Return what an expression gives, and is meant to; an error's word where it raises."""
        outcome: list[Any] = [None, None]
        for meant in (False, True):
            try:
                outcome[meant] = self._fold(node, meant)
            except (LookupError, RecursionError):
                pass
            except (TypeError, ValueError, ArithmeticError, AttributeError):
                outcome[meant] = _FAILED
        return outcome[0], outcome[1]

    def _fold(self, node: ast.AST, meant: bool) -> Any:  # noqa: ANN401 - a value of the user's
        """Work an expression out; raises LookupError where it is unclear, or what Python raises."""
        if (found := self._meaning(node)) is not None:
            if found[meant] in (None, _FAILED):
                raise LookupError
            return found[meant]

        def fold(each: ast.AST | None) -> Any:  # noqa: ANN401
            return each and self._fold(each, meant)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(map(fold, parts))
            case ast.UnaryOp(op=how, operand=inner):
                return _OPERATORS[type(how)](fold(inner), None)
            case ast.Attribute(value=inner, attr="major" | "minor" as name):
                return fold(inner)[name == "minor"]
            case ast.Slice(lower=lower, upper=upper):
                return slice(fold(lower), fold(upper))
            case ast.Subscript(value=inner, slice=index):
                whole, place = fold(inner), fold(index)
                return _cut(whole, place) if meant and isinstance(whole, str) else whole[place]
            case ast.ListComp(elt=part, generators=[each]) | ast.GeneratorExp(elt=part, generators=[each]):
                return _call("map" if isinstance(part, ast.Call) else "tuple", fold(each.iter))
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                sides = fold(left), fold(right)
                inside = isinstance(how, ast.In | ast.NotIn) and isinstance(sides[1], str)
                return _OPERATORS[type(how)](*(map(_numbers, sides) if meant and not inside else sides))
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args) if name in _TEXT:
                texts = list(map(fold, (inner, *args)))
                if any(len(str(each)) > _LONGEST for each in texts):  # of replace after replace
                    raise LookupError
                if meant and name == "startswith":
                    return _numbers(texts[0])[: len(start := _numbers(texts[1]))] == start
                given = getattr(texts[0], name)(*texts[1:])
                return tuple(given) if isinstance(given, list) else given
            case ast.Call(func=function, args=[*_, part]):
                return _call(dotted_name(function).rpartition(".")[2], fold(part))
        raise LookupError


def _call(name: str, value: Any) -> Any:  # noqa: ANN401
    """Return what a function gives."""
    if name in _VERSIONS:
        return (*(numbers := numbers_of(value.lstrip("v"))), *(0,) * (6 - len(numbers)))
    functions: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "tuple": tuple}
    functions |= {"list": tuple, "map": lambda parts: tuple(map(int, parts))}
    return functions[name](value)


def _numbers(value: Any) -> Any:  # noqa: ANN401
    """Return a text, or each of several, as the numbers of a version."""
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    return numbers_of(value) if isinstance(value, str) else value


def _cut(version: str, place: int | slice) -> str:
    """Cut a version between its numbers, where one with numbers of one digit is cut."""
    parts = version.split(".")
    if isinstance(place, slice):
        start, stop = (None if end is None else (end + 1) // 2 for end in (place.start, place.stop))
        return ".".join(parts[start:stop])
    return parts[place // 2]
