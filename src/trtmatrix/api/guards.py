"""Says what keeps code from running at the version moved to: tests of TensorRT's version, and of its names.

A test is worked out at the version moved to, and at a made-up one that is newer than all that begin with one
sign: where a test knows no number above eight, both must give the same.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trtmatrix.api.names import Names, dotted_name
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of
from trtmatrix.api.values import BINDINGS, Values, text_of

_VERSION, _UNCLEAR = ast.Name(id="tensorrt.__version__"), ast.Name(id="something else")
"""What stands for the version itself, and for what hangs on it in an unknown way."""
_ASKS = ("version", "get_version", "get_distribution")
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_NEWER = re.compile(
    r"num_io_tensors|[gs]et_tensor_|execute_async_v3|set_input_shape|build_serialized|memory_pool"
)
"""Names of the new way of writing: of two ways in a try, either one catches what goes wrong in the other."""


class Guards:
    """Works out the tests in one file."""

    def __init__(
        self, values: Values, names: Names, lines: Sequence[str], shared: Mapping[str, ast.expr]
    ) -> None:
        """Take a file. ``shared``: names and ``functions()`` of all files that hang on the version."""
        self.values, self.names, self.lines, self.shared = values, names, lines, shared
        self._guards: dict[ast.AST, str] = {}
        self._flags: dict[str, ast.expr | None] = {}

    # ---- what hangs on the version ----

    def _hangs(self, node: ast.AST) -> bool:
        """Whether an expression hangs on TensorRT's version, or on what its bindings have."""
        if self._meaning(node) is not None:
            return True
        if isinstance(node, ast.IfExp) and not isinstance(node.body, ast.Constant):
            return self._hangs(node.body) or self._hangs(node.orelse)
        return any(map(self._hangs, ast.iter_child_nodes(node)))

    def _meaning(self, node: ast.AST) -> ast.expr | None:
        """Return what a part of a test stands for; None where it stands for itself."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                held = self.values.value(holder)
                return _VERSION if held and held.kind == "module" else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                if (held := self.values.value(holder)) is None or not held.is_known:
                    return None
                return ast.Constant(self.names.target.find(f"{held.name}.{name}".strip(".")) is not None)
            case ast.Call(args=[named, *_]) if BINDINGS.match(text_of(named)):
                return _VERSION if dotted_name(node.func).rpartition(".")[2] in _ASKS else None
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self._flag(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self._flag(f"{name}()")
        return None

    def _flag(self, name: str) -> ast.expr | None:
        """Return what a name, or a ``function()``, stands for if that hangs on the version."""
        if name not in self._flags:
            self._flags[name] = None  # of what hangs on itself
            given = (each for each in self.values.bound.get(name, ()) if isinstance(each, ast.expr))
            found = next(filter(None, map(self._hanging, given)), None)
            plain = name.removesuffix("()")
            if found is None and (plain in self.values.imported or plain not in self.values.bound):
                there = self.values.imported.get(plain, plain)
                found = self.shared.get(there + name[len(plain) :])
            self._flags[name] = found
        return self._flags[name]

    def _hanging(self, given: ast.expr) -> ast.expr | None:
        """Return what is given to a name if it hangs on the version, by itself or by a test around it."""
        if self._hangs(given):
            return given
        match given, [*self.values.around(given)]:
            case ast.Constant(), [_, ast.If(test=test), *_] if self._hangs(test):
                return _UNCLEAR
        return None

    def exports(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield what names of the module, and its functions, stand for in other files."""
        for name in [*self.values.bound]:
            flag = self._flag(name)
            inside = any(isinstance(each, ast.FunctionDef) for each in self.values.around(flag or _UNCLEAR))
            if flag is not None and flag is not _UNCLEAR and (name[-1] == ")" or not inside):
                got, right = self._work_out(flag)
                yield name, _UNCLEAR if got is None or right not in (None, got) else ast.Constant(got)

    # ---- what guards ----

    def guard_of(self, node: ast.AST) -> str:
        """Return what keeps a node from running at the version moved to, or nothing."""
        if node not in self._guards:
            self._guards[node] = ""  # of what hangs on itself
            if (outer := self.values.parents.get(node)) is not None:
                self._guards[node] = self._guard_in(node, outer) or self.guard_of(outer)
        return self._guards[node]

    def _guard_in(self, node: ast.AST, outer: ast.AST) -> str:
        """Return what guards a node in what it stands in."""
        match outer:
            case ast.If(test=test, body=body) if node is not test and (
                guard := self._judge(test)[node not in body]
            ):
                return guard
            case ast.IfExp(test=test, body=body) if node is not test:
                return self._judge(test)[node is not body]
            case ast.BoolOp(op=how, values=values):
                earlier = values[: values.index(node)]  # type: ignore[arg-type]
                skips = (self._judge(each)[isinstance(how, ast.Or)] for each in earlier)
                return next(filter(None, skips), "")
            case ast.Try(body=body, handlers=handlers):
                newer = _NEWER.search("\n".join(self.lines[outer.lineno - 1 : outer.end_lineno]))
                catches = [
                    each
                    for each in handlers
                    if newer or (each.type and "AttributeError" in ast.unparse(each.type))
                ]
                if node in catches or (catches and node in body):
                    return "except AttributeError"
            case ast.With() if "suppress(Attr" in self.lines[outer.lineno - 1]:
                return "suppress(AttributeError)"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                calls = [each for each in self.values.reads[name] if outer not in self.values.around(each)]
                if calls and all(map(self.guard_of, calls)):
                    return "a test before each of its calls"
        return self._left_before(node, outer) if isinstance(node, ast.stmt) else ""

    def _left_before(self, node: ast.stmt, outer: ast.AST) -> str:
        """Return the test before a statement, in its block, that leaves it at the version moved to."""
        blocks = [getattr(outer, name, []) for name in ("body", "orelse", "finalbody")]
        block = next((each for each in blocks if isinstance(each, list) and node in each), [node])
        for each in block[: block.index(node)]:
            if isinstance(each, ast.Assert) and (fails := self._judge(each.test)[0]):
                return fails
            if isinstance(each, ast.If) and isinstance(each.body[-1], _LEAVES):
                skips_body, skips_else = self._judge(each.test)
                if skips_else and not (skips_body and isinstance(each.body[-1], ast.Raise)):
                    return skips_else
        return ""

    def _judge(self, node: ast.expr) -> tuple[str, str]:
        """Return what keeps a test's body, and its else, from running at the version moved to; or nothing."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                bodies, elses = zip(*map(self._judge, parts), strict=True)
                body, other = next(filter(None, bodies), ""), next(filter(None, elses), "")
                return (body, other * all(elses)) if isinstance(how, ast.And) else (body * all(bodies), other)
        if not self._hangs(node):
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        got, right = self._work_out(node)
        if got is None or right not in (None, got):
            return shown, shown
        return ("", shown) if got else (shown, "")

    def find_flip(self, node: ast.expr) -> ApiChange | None:
        """Return the change that a test is where it is right for versions below 10 alone.

        So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
        """
        if numbers_of(self.names.surface.version)[0] > NINE[0] or not self._hangs(node):
            return None
        got, right = self._work_out(node)
        if right in (None, got):
            return None
        return ApiChange(
            name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED,
            source="worked out from this line",
            note=f"at {self.names.after} it gives {got}, where the version's numbers give {right}",
            replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
        )  # fmt: skip

    def _work_out(self, node: ast.expr) -> tuple[Any, Any]:
        """Return what an expression gives at the version moved to, and what it should; None: unclear."""
        now, nine = Reading(self.names.after, self._meaning), Reading("9.8.7", self._meaning)
        got, right = now.outcome(node), nine.outcome(node)
        if isinstance(right, bool):
            return got, None if max(nine.numbers, default=0) >= NINE[0] else right
        if isinstance(right, int):
            return got, dict(zip(NINE, numbers_of(self.names.after), strict=False)).get(right)
        return got, "a number" if got == FAILED else None


FAILED, NINE, LONGEST = "an error", (9, 8, 7), 999
_TEXT = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_VERSIONS = {"Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse"}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Not: lambda a, _: not a, ast.USub: lambda a, _: -a,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Reading:
    """Works expressions out at a version; ``numbers``: the leading ones of the constants met."""

    def __init__(self, version: str, look: Callable[[ast.expr], ast.expr | None]) -> None:
        """Take the version, and what says what parts of an expression stand for."""
        self.version, self.look, self.numbers = version, look, list[int]()

    def outcome(self, node: ast.expr) -> Any:  # noqa: ANN401 - what an expression of the user's gives
        """Return what an expression gives, None where that is unclear, an error's word where it raises."""
        try:
            return self._fold(node)
        except (LookupError, RecursionError):
            return None
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return FAILED

    def _fold(self, node: ast.expr) -> Any:  # noqa: ANN401
        """Work an expression out; raises LookupError where it is unclear, or what Python raises."""
        if (found := self.look(node)) is not None:
            return self.version if found is _VERSION else self._fold(found)
        match node:
            case ast.Constant(value=value):
                self.numbers += map(int, re.findall(r"^\d+", str(value)))
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
                return self._fold(inner)[self._fold(index)]
            case ast.ListComp(elt=part, generators=[each]) | ast.GeneratorExp(elt=part, generators=[each]):
                return self._call("map" if isinstance(part, ast.Call) else "tuple", self._fold(each.iter))
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                return _OPERATORS[type(how)](self._fold(left), self._fold(right))
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args) if name in _TEXT:
                texts = list(map(self._fold, (inner, *args)))
                if any(len(str(each)) > LONGEST for each in texts):  # of replace after replace
                    raise LookupError
                return getattr(texts[0], name)(*texts[1:])
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
