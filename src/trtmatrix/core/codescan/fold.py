"""Works out what hangs on TensorRT's version, such as ``int(trt.__version__.split(".")[0]) >= 10``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from trtmatrix.core.codescan.values import NOTHING, Const, Tainted, Value, of

LONGEST = 2000
"""Characters of a text that is put together."""
_METHODS = ("split", "rsplit", "strip", "lstrip", "rstrip", "replace", "startswith", "partition", "removeprefix")
_CALLS: dict[str, Callable[..., Any]] = {"int": int, "float": float, "str": str, "len": len, "bool": bool}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_VERSION_READERS = ("Version", "LooseVersion", "StrictVersion", "parse", "parse_version", "version_parse")


def hangs_on_version(*values: Value) -> bool:
    """Say whether any of the values hangs on TensorRT's version."""
    return any(
        isinstance(thing, Tainted) or (isinstance(thing, Const) and thing.versioned)
        for value in values
        for thing in value
    )


def reads_versions(name: str) -> bool:
    """Say whether a function of that dotted name makes a version of a text."""
    return name.rpartition(".")[2] in _VERSION_READERS and "version" in name.lower()


def fold_method(base: Value, name: str, args: Sequence[Value]) -> Value:
    """Return what a text's method gives."""
    return _fold(lambda text, *rest: getattr(text, name)(*rest) if name in _METHODS else _fail(), base, *args)


def fold_call(name: str, args: Sequence[Value]) -> Value:
    """Return what a function of another library or of Python's own makes of values that hang on the version."""
    last = name.rpartition(".")[2]
    if last in _VERSION_READERS:
        return _fold(_release, *args[:1])
    if last in ("tuple", "list"):
        return args[0] if args else NOTHING
    if last == "map" and len(args) == 2:
        return _fold(lambda items: tuple(int(item) for item in items), args[1])
    return _fold(_CALLS.get(last, _fail), *args)


def fold_compare(left: Value, how: ast.cmpop, right: Value) -> Value:
    """Return what a comparison gives."""
    return _fold(_COMPARE.get(type(how), _fail), left, right)


def fold_item(base: Value, index: ast.expr, value: Value) -> Value:
    """Return an item or a slice of a text or a tuple."""
    if isinstance(index, ast.Slice):
        bounds = [_literal(bound) for bound in (index.lower, index.upper, index.step)]
        return _fold(lambda whole: whole[slice(*bounds)], base)
    if isinstance(index, ast.UnaryOp):
        return _fold(lambda whole: whole[_literal(index)], base)
    return _fold(operator.getitem, base, value)


def fold_attribute(base: Value, name: str) -> Value:
    """Return ``.major``, ``.minor`` or ``.release`` of a version that was read."""
    places = {"major": 0, "minor": 1, "micro": 2}
    if name in places:
        return _fold(lambda release: [*release, 0, 0, 0][places[name]], base)
    return base if name in ("release", "version", "base_version") else of(Tainted())


def fold_sum(left: Value, right: Value) -> Value:
    """Return the sum of two texts, or nothing; what hangs on the version stays marked."""
    given = _fold(_add, left, right)
    return given


def _add(left: object, right: object) -> str | int:
    if isinstance(left, str) and isinstance(right, str):
        return (left + right)[:LONGEST]
    return operator.add(left, right)  # type: ignore[no-any-return]


def _fold(function: Callable[..., Any], *values: Value) -> Value:
    """Apply a function to literals; where that fails, what hangs on the version stays marked so."""
    tainted = of(Tainted()) if hangs_on_version(*values) else NOTHING
    constants = []
    for value in values:
        things = [thing for thing in value if isinstance(thing, Const)]
        if len(things) != 1 or len(value) != 1:
            return tainted
        constants.append(things[0])
    try:
        given = function(*(each.value for each in constants))
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError):
        return tainted
    if isinstance(given, list):
        given = tuple(given)
    if not isinstance(given, str | int | float | bool | tuple):
        return tainted
    where = next((each.where for each in constants if each.where[0]), ("", 0))
    return of(Const(given, any(each.versioned for each in constants), where))


def _release(text: str) -> tuple[int, ...]:
    """Read a version's leading numbers, without zeros at the end: so 10 equals 10.0."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    if not found:
        raise ValueError(text)
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _literal(node: ast.expr | None) -> Any:  # noqa: ANN401 - any literal
    return None if node is None else ast.literal_eval(node)


def _fail(*_: object) -> Any:  # noqa: ANN401 - never returns
    raise ValueError("not folded")
