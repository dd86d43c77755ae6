"""Signatures of the bindings as parameters, and what in a change of one breaks a caller."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

SAME = {
    "SupportsInt": "int", "SupportsIndex": "int", "SupportsFloat": "float", "CapsuleType": "capsule",
    "Buffer": "buffer", "List": "list", "Sequence": "list", "Iterable": "list", "Tuple": "tuple",
    "Dict": "dict", "FallbackString": "str", "Any": "object", "handle": "object",
    "function": "Callable", "NodeIndices": "list[int]", "SubGraphCollection": "list[tuple[list[int],bool]]",
}  # fmt: skip
"""How releases of pybind11 write one and the same type; a list is taken wherever a sequence is."""
UNKNOWN = "object"
"""A type that says nothing, as also a C++ name says that the bindings know no class of it."""
Types = frozenset[str]
IsA = Callable[[str, str], bool]
"""Whether a class of the bindings is another, or derives from it."""


class Parameter(NamedTuple):
    """A parameter; ``name`` is empty where the bindings name none, ``types`` where they say no type."""

    name: str
    types: Types
    optional: bool


class Signature(NamedTuple):
    """A function's parameters without ``self``, and the types that it may return (None left out)."""

    parameters: tuple[Parameter, ...]
    returns: Types


@lru_cache(maxsize=8192)
def parse_signature(text: str) -> Signature:
    """Read ``"(index: int, name: str = '') -> ITensor"``; what is no Python at all takes anything."""
    plain = re.sub(r"(?<==)\s*<.*?>(?=[,)])", "...", re.sub(r"\w+(::\w+)+", UNKNOWN, text))
    try:
        function = ast.parse(f"def _{plain}: ...").body[0]
    except SyntaxError:
        return Signature((Parameter("*", frozenset(), optional=True),), frozenset())
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the text above begins so
    given = function.args
    required = len(given.args) - len(given.defaults)
    parameters = [
        Parameter(re.sub(r"^arg\d+$", "", each.arg), _types(each.annotation), optional=place >= required)
        for place, each in enumerate(given.args)
    ]
    starred = [
        Parameter(f"*{each.arg}", frozenset(), optional=True) for each in (given.vararg, given.kwarg) if each
    ]
    return Signature((*parameters, *starred), _types(function.returns) - {"None"})


def parse_type(text: str) -> Types:
    """Return the types that an annotation allows, each in one way of writing."""
    return parse_signature(f"() -> {text} | None").returns if text else frozenset()


def _types(node: ast.expr | None) -> Types:
    match node:
        case None:
            return frozenset()
        case ast.BinOp(left=left, right=right):
            return _types(left) | _types(right)
        case ast.Subscript(value=ast.Name(id=outer) | ast.Attribute(attr=outer), slice=inner) if outer in (
            "Optional", "Union",
        ):  # fmt: skip
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return frozenset({"None"} if outer == "Optional" else ()).union(*map(_types, parts))
    named = re.sub(r"[\w.]*\w", lambda found: _plain(found[0]), ast.unparse(node))
    return frozenset({named.replace(" ", "")})


def _plain(dotted: str) -> str:
    """Write one name without its modules and outer classes (``ILogger.Severity``)."""
    name = dotted.rpartition(".")[2]
    return SAME.get(name, name)


def differ(given: Types, wanted: Types, is_a: IsA) -> bool:
    """Whether what is given is known to be of no type that is wanted."""
    if not given or not wanted or any(UNKNOWN in kind for kind in given | wanted):
        return False
    return not any(_fits(had, has, is_a) for had in given for has in wanted)


def _fits(given: str, wanted: str, is_a: IsA) -> bool:
    """Whether a type will do for another; ``tuple`` says no less than ``tuple[int]``, only less of it."""
    heads = given.partition("[")[0], wanted.partition("[")[0]
    bare = "[" not in given or "[" not in wanted
    return given == wanted or (bare and heads[0] == heads[1]) or is_a(given, wanted)


def breaks(before: str, after: str, is_a: IsA) -> str:
    """Say what a caller written for one signature trips over in another; nothing where all goes on."""
    old, new = parse_signature(before), parse_signature(after)
    if any(p.name.startswith("*") for p in (*old.parameters, *new.parameters)):
        return ""
    for place, had in enumerate(old.parameters):
        if place >= len(new.parameters):
            return f"takes no {had.name or f'argument {place + 1}'} any more"
        has = new.parameters[place]
        if had.name and has.name and had.name != has.name:
            stays = any(p.name == had.name for p in new.parameters)
            return f"{had.name} stands elsewhere" if stays else f"{has.name} instead of {had.name}"
        if had.optional and not has.optional:
            return f"asks for {has.name or 'an argument'}, which could be left out"
        if differ(had.types, has.types, is_a):
            return f"{has.name or 'the argument'} is {_said(has.types)} instead of {_said(had.types)}"
    required = [p for p in new.parameters[len(old.parameters) :] if not p.optional]
    if required:
        return f"asks for {required[0].name or 'one argument more'}"
    if differ(new.returns, old.returns, is_a):
        return f"returns {_said(new.returns)} instead of {_said(old.returns)}"
    return ""


def _said(types: Types) -> str:
    return " | ".join(sorted(types))
