"""Tests that tell versions of TensorRT apart, and what stands behind them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Protocol

from trtmatrix.core.codescan.names import Names
from trtmatrix.core.codescan.values import Const, Module, OwnObject, Tainted, TrtClass, TrtObject, Value

_LONGEST = 60


class _Evaluates(Protocol):
    @property
    def names(self) -> Names:
        """Return what is known of TensorRT."""
        ...

    def evaluate(self, node: ast.expr | None) -> Value:
        """Return what an expression can be."""
        ...

    @property
    def values(self) -> dict[int, Value]:
        """Return what expressions came out as last, by the node's identity."""
        ...


@dataclass(frozen=True)
class Judged:
    """What a test keeps from running at the version moved to: its body, its else, both, or neither.

    Both where it hangs on the version in a way that is not followed.
    """

    text: str = ""
    body: bool = False
    orelse: bool = False

    @property
    def over_body(self) -> str:
        """Return the guard over the body; nothing where it runs."""
        return self.text if self.body else ""

    @property
    def over_else(self) -> str:
        """Return the guard over the else; nothing where it runs."""
        return self.text if self.orelse else ""


def judge_test(reader: _Evaluates, node: ast.expr) -> Judged:
    """Judge a test that was evaluated; ``and``, ``or`` and ``not`` by their operands."""
    body, orelse = _judge(reader, node)
    text = " ".join(ast.unparse(node).split()) if body or orelse else ""
    return Judged(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…", body, orelse)


def _judge(reader: _Evaluates, node: ast.expr) -> tuple[bool, bool]:
    match node:
        case ast.UnaryOp() if isinstance(node.op, ast.Not):
            body, orelse = _judge(reader, node.operand)
            return orelse, body
        case ast.BoolOp():
            judged = [_judge(reader, each) for each in node.values]
            bodies, elses = [each[0] for each in judged], [each[1] for each in judged]
            if isinstance(node.op, ast.And):
                return any(bodies), all(elses)
            return all(bodies), any(elses)
        case ast.Call() if isinstance(node.func, ast.Name) and node.func.id == "hasattr" and len(node.args) == 2:
            return _judge_hasattr(reader, node.args[0], node.args[1])
        case ast.Compare() if _is_dir(node):
            assert isinstance(node.comparators[0], ast.Call)  # noqa: S101 - for mypy: _is_dir said so
            body, orelse = _judge_hasattr(reader, node.comparators[0].args[0], node.left)
            return (orelse, body) if isinstance(node.ops[0], ast.NotIn) else (body, orelse)
        case _:
            known = reader.values.get(id(node))
            return _judge_value(reader.evaluate(node) if known is None else known)


def _judge_value(value: Value) -> tuple[bool, bool]:
    marked = [thing for thing in value if isinstance(thing, Tainted) or (isinstance(thing, Const) and thing.versioned)]
    if not marked:
        return False, False
    if len(value) == 1 and isinstance(marked[0], Const):
        return not marked[0].value, bool(marked[0].value)
    return True, True


def _judge_hasattr(reader: _Evaluates, holder: ast.expr, attribute: ast.expr) -> tuple[bool, bool]:
    """Judge by what the version moved to has, where the object is one of TensorRT's."""
    if not isinstance(attribute, ast.Constant) or not isinstance(attribute.value, str):
        return False, False
    name, names = attribute.value, reader.names
    found: set[bool] = set()
    value = reader.values.get(id(holder), frozenset())
    for thing in value:
        if isinstance(thing, Module):
            found.add(names.at_target(name))
        elif isinstance(thing, TrtClass | TrtObject):
            found.add(names.at_target(f"{thing.name}.{name}"))
    if len(found) == 1:
        there = found.pop()
        return not there, there
    unknown = not value or any(isinstance(thing, OwnObject) for thing in value)
    about = name in names.owners or any(each.endswith(f".{name}") for each in names.added)
    return (True, True) if found or (unknown and about) else (False, False)


def _is_dir(node: ast.Compare) -> bool:
    """Say whether a comparison is ``"name" in dir(x)``."""
    right = node.comparators[0]
    return (
        isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(right, ast.Call) and len(right.args) == 1
        and isinstance(right.func, ast.Name) and right.func.id == "dir"
    )  # fmt: skip
