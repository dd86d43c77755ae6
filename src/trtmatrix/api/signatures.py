"""Signatures of the bindings as parameters, and what in a change of one breaks a caller."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import NamedTuple

_ONE_WAY = {"SupportsInt": "int", "SupportsIndex": "int", "SupportsFloat": "float"}
"""How releases of pybind11 write one and the same type."""
_PLAIN = ("str", "bytes", "bool", "int", "float")
"""Types of which none will do for another; that a number will do for a larger one is not asked."""


class Parameter(NamedTuple):
    """A parameter; ``name`` is empty where the bindings name none, ``type`` where it is none of the plain."""

    name: str
    type: str
    optional: bool


@lru_cache(maxsize=8192)
def parse_signature(text: str) -> tuple[Parameter, ...]:
    """Read ``"(index: int, name: str = '') -> ITensor"``; what is no Python at all takes anything."""
    plain = re.sub(r"(?<==)\s*<.*?>(?=[,)])", "...", re.sub(r"\w+(::\w+)+", "object", text))
    try:
        function = ast.parse(f"def _{plain}: ...").body[0]
    except SyntaxError:
        return (Parameter("*", "", optional=True),)
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - the text above begins so
    given = function.args
    required = len(given.args) - len(given.defaults)
    parameters = [
        Parameter(re.sub(r"^arg\d+$", "", each.arg), _type(each.annotation), optional=place >= required)
        for place, each in enumerate(given.args)
    ]
    starred = [Parameter(f"*{each.arg}", "", optional=True) for each in (given.vararg, given.kwarg) if each]
    return (*parameters, *starred)


def _type(node: ast.expr | None) -> str:
    """Return a plain type, or nothing for any other and for several."""
    parts = ast.unparse(node).split(" | ") if node else []
    names = {_ONE_WAY.get(name, name) for name in (part.rpartition(".")[2] for part in parts)}
    return names.pop() if len(names) == 1 and names <= {*_PLAIN} else ""


def breaks(before: str, after: str) -> str:
    """Say what a caller written for one signature trips over in another; nothing where all goes on."""
    old, new = parse_signature(before), parse_signature(after)
    if any(parameter.name.startswith("*") for parameter in (*old, *new)):
        return ""
    for place, had in enumerate(old):
        if place >= len(new):
            return f"takes no {had.name or f'argument {place + 1}'} any more"
        has = new[place]
        if had.name and has.name and had.name != has.name:
            stays = any(parameter.name == had.name for parameter in new)
            return f"{had.name} stands elsewhere" if stays else f"{has.name} instead of {had.name}"
        if had.optional and not has.optional:
            return f"asks for {has.name or 'an argument'}, which could be left out"
        if had.type and has.type and had.type != has.type:
            return f"{has.name or 'the argument'} is {has.type} instead of {had.type}"
    required = [parameter for parameter in new[len(old) :] if not parameter.optional]
    return f"asks for {required[0].name or 'one argument more'}" if required else ""
