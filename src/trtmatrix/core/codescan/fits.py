"""Whether a call still fits a signature that changed."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class _Parameter:
    name: str
    needed: bool


def fits(call: ast.Call, signatures: str, *, bound: bool = True) -> bool:
    """Say whether a call surely fits one of the signatures (a line each) by number and names of arguments.

    ``bound``: the first parameter is the object. Unreadable signatures, and calls that hand on ``*args``,
    do not surely fit.
    """
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(not word.arg for word in call.keywords):
        return False
    return any(_fits_one(call, line, bound) for line in signatures.splitlines() if "(" in line)


def _fits_one(call: ast.Call, line: str, bound: bool) -> bool:
    parameters = _parameters(line)
    if parameters is None:
        return False
    if bound and parameters and parameters[0].name in ("self", "arg0"):
        parameters = parameters[1:]
    given = {word.arg for word in call.keywords}
    by_place, by_name = parameters[: len(call.args)], parameters[len(call.args) :]
    if len(call.args) > len(parameters) or not given <= {each.name for each in by_name}:
        return False
    return len(by_place) == len(call.args) and all(
        each.name in given for each in by_name if each.needed
    )


def _parameters(line: str) -> list[_Parameter] | None:
    """Read the parameters between a signature's parentheses; None where they do not close."""
    opened = line.index("(")
    depth, start, found = 0, opened + 1, []
    for place in range(opened, len(line)):
        depth += (line[place] in "([{<") - (line[place] in ")]}" or (line[place] == ">" and line[place - 1] != "-"))
        if (line[place] == "," and depth == 1) or depth == 0:
            found.append(line[start:place].strip())
            start = place + 1
        if depth == 0:
            break
    else:
        return None
    named = [re.match(r"(\w+)", text) for text in found]
    return [
        _Parameter(name[1], "=" not in text)
        for name, text in zip(named, found, strict=True)
        if name is not None
    ]
