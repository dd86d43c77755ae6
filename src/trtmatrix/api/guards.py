"""Says what tests of TensorRT's version, and of its names, give at the version moved to.

A test is worked out twice: as Python does, and as it is meant. For the latter each number in a text is one
letter, so that numbers and not digits are compared and cut. Where the two differ, the test is wrong there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from packaging.version import Version
from simpleeval import EvalWithCompoundTypes, InvalidExpression

from trtmatrix.api.names import BINDINGS, FOREIGN, MODULE, OWN, Names, Roles, dotted_name, text_of
from trtmatrix.api.types import ApiChange, ChangeKind

Outcome = tuple[Any, Any]
"""What an expression gives, and what it is meant to give; None is unclear."""
_MAY_ASK = re.compile(r"__version__|hasattr|version\(|get_distribution")
_FAILED, _LONGEST, _LETTERS = "an error", 999, 0xF0000
_VERSIONS = ("Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": lambda value: int(_spelt(value)), "float": lambda value: float(_spelt(value)), "str": str,
    "map": lambda function, values: [*map(function, values)],
    **dict.fromkeys(_VERSIONS, lambda text: Version(_spelt(text))),
}  # fmt: skip
_TEXT = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_ATTRIBUTES = {str: _TEXT, Version: {"major", "minor", "release"}}
_LEFT_OUT = {ast.BinOp, ast.JoinedStr, ast.DictComp}
"""Expressions that can take any time, or that no test of a version is."""


class Guards:
    """Works out the tests in a file; ``shared``: names and ``functions()`` of others, and what they give."""

    def __init__(self, roles: Roles, names: Names, code: str, shared: Mapping[str, Outcome]) -> None:
        self.roles, self.names, self.shared = roles, names, shared
        self.version: Outcome = names.after, _lettered(names.after)
        self._asks = bool(_MAY_ASK.search(code)) or any(name.rstrip("()") in code for name in shared)
        self._flags: dict[str, Outcome | None] = {}
        self._hanging: dict[ast.AST, bool] = {}

    def _hangs(self, node: ast.AST) -> bool:
        """Whether an expression hangs on TensorRT's version, or on what its bindings have."""
        if node not in self._hanging:
            chooses = isinstance(node, ast.IfExp) and not isinstance(node.body, ast.Constant)  # no test
            parts = ast.walk(node) if self._asks and not chooses else ()
            self._hanging[node] = any(self._meaning(each) is not None for each in parts)
        return self._hanging[node]

    def _meaning(self, node: ast.AST) -> Outcome | None:
        """Return what a part of a test gives if it hangs on the version by itself."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                return self.version if self.roles.role(holder) == MODULE else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                if (held := self.roles.role(holder)) in ("", OWN, FOREIGN):
                    return None
                dotted = name if held == MODULE else f"{held.removesuffix('()')}.{name}"
                return (has := self.names.target.find(dotted) is not None, has)
            case ast.Call(args=[named, *_]) if BINDINGS.match(text_of(named)):
                return self.version if re.search("version|distribution", dotted_name(node.func)) else None
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
        found = {name: flag for name in [*self.roles.bound] if (flag := self._flag(name))}
        self._flags, self._hanging = {}, {}  # others may share more hereafter
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
        return self._evaluate(node, meant=False), self._evaluate(node, meant=True)

    def _evaluate(self, node: ast.expr, *, meant: bool) -> Any:  # noqa: ANN401 - a value of the user's
        evaluator = EvalWithCompoundTypes(functions=_FUNCTIONS, allowed_attrs=_ATTRIBUTES)
        plain = {kind: how for kind, how in evaluator.nodes.items() if kind not in _LEFT_OUT}

        def evaluate(part: Any) -> Any:  # noqa: ANN401
            if (found := self._meaning(part)) is not None:
                if found[meant] in (None, _FAILED):
                    raise LookupError
                return found[meant]
            match part:
                case ast.Constant(value=str() as text) if meant:
                    return _lettered(text)
                case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _FUNCTIONS:
                    part = ast.Call(ast.Name(name), args, [])
            value = plain[type(part)](part)
            if isinstance(value, str) and len(value) > _LONGEST:  # of replace after replace
                raise LookupError
            return value

        evaluator.nodes = dict.fromkeys(plain, evaluate)
        try:
            return evaluator.eval("", node)
        except (InvalidExpression, LookupError, RecursionError):
            return None
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return _FAILED


def _lettered(text: str) -> str:
    """Return a text with a letter of Unicode's private use for each number."""
    return re.sub(r"\d+", lambda number: chr(_LETTERS + min(int(number[0]), 0xFFFD)), text)


def _spelt(value: Any) -> Any:  # noqa: ANN401
    """Return such a text with its numbers in digits again, and what is no text as it is."""
    if isinstance(value, str):
        return re.sub("[\U000f0000-\U000ffffd]", lambda letter: str(ord(letter[0]) - _LETTERS), value)
    return value
