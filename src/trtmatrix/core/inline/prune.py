"""Takes out of a repro what its case does not reach: conditions on ``params`` are known."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtmatrix.core.inline.reach import Reached, pieces_of
from trtmatrix.core.inline.source import end_of
from trtmatrix.core.model import Product

UNKNOWN = object()
HAS_STREAMS = Product.TENSORRT


def prune(
    source: str, params: Mapping[str, Any], product: Product, reached: Reached, name: str = "repro"
) -> str:
    """Return the source without branches that are never taken with these parameters and this product.

    Only in functions that are handed ``params`` and ``trt`` as they are, from ``run`` on.
    """
    live = {piece.names[0] for piece in pieces_of(reached, name) if piece.names}
    while True:
        tree = ast.parse(source)
        known = {"params": dict(params), "trt": {"has_streams": product is HAS_STREAMS}}
        functions = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name in live]
        calls = [part for node in tree.body if _name(node) in live for part in ast.walk(node)]
        changed = next(
            (
                text for function in functions
                if (text := _prune_once(source, function, {
                    what: value for what, value in known.items() if _is_handed_on(what, function, calls)
                })) is not None
            ),
            None,
        )  # fmt: skip
        if changed is None:
            return source
        source = changed


def _name(node: ast.stmt) -> str:
    return str(getattr(node, "name", ""))


def _is_handed_on(what: str, function: ast.FunctionDef, nodes: Sequence[ast.AST]) -> bool:
    """Whether a function's argument is what its name says wherever it is called, and is never changed."""
    arguments = [one.arg for one in function.args.args]
    if what not in arguments or any(_changes(what, part) for part in ast.walk(function)):
        return False
    for call in nodes:
        if isinstance(call, ast.Name) and call.id == function.name and not any(
            isinstance(other, ast.Call) and other.func is call for other in nodes
        ):  # fmt: skip
            return False
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function.name
        ):
            continue
        given = [word.value for word in call.keywords if word.arg == what]
        at = arguments.index(what)
        given += [call.args[at]] if at < len(call.args) else []
        if len(given) != 1 or not (isinstance(given[0], ast.Name) and given[0].id == what):
            return False
    return True


def _changes(what: str, part: ast.AST) -> bool:
    """Whether a node binds a name anew, or puts something into it."""
    if isinstance(part, ast.Name):
        return part.id == what and not isinstance(part.ctx, ast.Load)
    if isinstance(part, ast.arg):
        return False
    match part:
        case ast.Attribute(value=ast.Name(id=name), attr="update" | "pop" | "setdefault" | "clear"):
            return name == what
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name == what
        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name == what
    return False


def _prune_once(source: str, function: ast.FunctionDef, known: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the source with the first decided condition taken out, None where there is none."""
    for parent in ast.walk(function):
        bodies: list[list[ast.stmt]] = [getattr(parent, "body", []), getattr(parent, "orelse", [])]
        for body in (one for one in bodies if isinstance(one, list)):
            for index, node in enumerate(body):
                if isinstance(node, ast.If) and source.splitlines()[node.lineno - 1].lstrip().startswith(
                    "if "
                ):
                    value = evaluate(node.test, known)
                    if value is not UNKNOWN and not _is_elif(node, source):
                        return _replace(source, body, index, node.body if value else node.orelse)
    return None


def _is_elif(node: ast.If, source: str) -> bool:
    """Whether an ``elif`` hangs on a condition: that is left as it is."""
    return any(
        isinstance(one, ast.If) and source.splitlines()[one.lineno - 1].lstrip().startswith("elif")
        for one in node.orelse
    )


def _replace(source: str, body: list[ast.stmt], index: int, taken: Sequence[ast.stmt]) -> str:
    """Put the branch that is taken in the place of its condition; what stands behind a return goes."""
    lines, node = source.splitlines(), body[index]
    new: list[str] = []
    if taken:
        first = taken[0].lineno
        new = textwrap.dedent("\n".join(lines[first - 1 : end_of(taken[-1])])).splitlines()
        new = [(" " * node.col_offset + line).rstrip() for line in new]
    ends = bool(taken) and isinstance(taken[-1], (ast.Return, ast.Raise))
    last = end_of(body[-1]) if ends else end_of(node)
    if not new and len(body) == 1:
        new = [" " * node.col_offset + "pass"]
    return "\n".join([*lines[: node.lineno - 1], *new, *lines[last:]]) + "\n"


def evaluate(node: ast.expr, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value, or UNKNOWN
    """Return the value of an expression over what is known, UNKNOWN where it holds anything else."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            values = [evaluate(part, known) for part in parts]
            return UNKNOWN if UNKNOWN in values else tuple(values)
        case (
            ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))
            | ast.Attribute(value=ast.Name(id=name), attr=key)
        ):
            return known.get(name, {}).get(key, UNKNOWN)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            value = evaluate(operand, known)
            return UNKNOWN if value is UNKNOWN else not value
        case ast.BoolOp(op=op, values=parts):
            return _evaluate_all([evaluate(part, known) for part in parts], isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            pair = evaluate(left, known), evaluate(right, known)
            return UNKNOWN if UNKNOWN in pair else _COMPARE[type(op)](*pair)
        case ast.Call(func=ast.Attribute(value=value_node, attr=name), args=[argument], keywords=[]) if (
            name in {"startswith", "endswith"}
        ):
            text, part = evaluate(value_node, known), evaluate(argument, known)
            both = isinstance(text, str) and isinstance(part, str)
            return getattr(text, name)(part) if both else UNKNOWN
    return UNKNOWN


_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: bool(a == b), ast.NotEq: lambda a, b: bool(a != b),
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
}  # fmt: skip


def _evaluate_all(values: Sequence[Any], either: bool) -> Any:  # noqa: ANN401
    """Return what ``and`` or ``or`` of values is: one that decides is enough."""
    for value in values:
        if value is UNKNOWN:
            continue
        if bool(value) is either:
            return value
    return UNKNOWN if UNKNOWN in values else values[-1]
