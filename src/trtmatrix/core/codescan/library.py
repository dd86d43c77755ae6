"""What functions of Python's own library give, as far as objects pass through them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trtmatrix.core.codescan.fold import hangs_on_version
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    OwnClass,
    OwnObject,
    Partial,
    Super,
    TrtClass,
    TrtObject,
    Value,
    items_of,
    join,
    many,
    of,
    row,
)

if TYPE_CHECKING:
    from trtmatrix.core.codescan.calls import CallReader

_LISTS = {"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "deque", "cycle", "islice", "tqdm"}
_SAME = {"copy", "deepcopy", "closing", "nullcontext", "proxy", "aclosing"}
_RECORDS = {"SimpleNamespace", "Namespace", "dict", "OrderedDict", "EasyDict", "DotMap"}
_ROOTS = {
    "builtins", "copy", "contextlib", "weakref", "types", "argparse", "collections", "functools", "typing",
    "itertools", "threading", "multiprocessing", "queue", "tqdm", "easydict",
}  # fmt: skip


def from_library(
    reader: CallReader, dotted: str, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    """Return what a library's function gives; None where it is not one that hands objects through."""
    root, name = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if root not in _ROOTS:
        return None
    first = args[0] if args else NOTHING
    if name in _SAME:
        return first
    if name in _LISTS and not hangs_on_version(first):
        return many([reader.iterate(first, _arg(node))])
    if name in _RECORDS:
        return many([*keywords.values(), items_of(first)], keywords, ordered=False)
    if name in _TELLING:
        return _TELLING[name](reader, args, keywords, node)
    return _iterated(reader, name, args, node)


def _iterated(reader: CallReader, name: str, args: Sequence[Value], node: ast.Call | None) -> Value | None:
    first = args[0] if args else NOTHING
    match name:
        case "range":
            return many([of(Foreign("builtins.int()"))])
        case "enumerate":
            return many([row((of(Foreign("builtins.int()")), reader.iterate(first, _arg(node))))])
        case "zip" | "product" | "zip_longest":
            places = node.args if node is not None and len(node.args) == len(args) else [None] * len(args)
            return many([row(reader.iterate(arg, place) for arg, place in zip(args, places, strict=True))])
        case "chain":
            return many([reader.iterate(arg, None) for arg in args])
        case "next" | "min" | "max":
            return join(reader.iterate(first, None), *args[1:])
        case "map" if len(args) > 1 and not hangs_on_version(*args):
            return many([reader.apply(first, [reader.iterate(arg, None) for arg in args[1:]], {}, None)])
        case "filter" if len(args) == 2:
            reader.apply(first, [reader.iterate(args[1], None)], {}, None)
            return many([reader.iterate(args[1], None)])
        case "len":
            for thing in first:
                if isinstance(thing, TrtObject) and node is not None:
                    reader.note(node, reader.names.changes(f"{thing.name}.__len__"))
            return None
        case _:
            return None


def _getattr(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    """Read ``getattr(x, "name")``: a use; with a default one that may do without."""
    del keywords
    named = [thing.value for thing in args[1] if isinstance(thing, Const)] if len(args) > 1 else []
    if node is None or not named:
        return NOTHING
    found = []
    for name in named:
        why = "guarded by getattr's default" if len(args) > 2 else ""
        found.append(reader.attribute_of(args[0], str(name), node, why=why))
    return join(*found, *args[2:])


def _setattr(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    """Read ``setattr(x, "name", value)`` as an assignment."""
    del keywords
    named = [thing.value for thing in args[1] if isinstance(thing, Const)] if len(args) == 3 else []
    if node is not None and len(named) == 1:
        target = ast.copy_location(ast.Attribute(node.args[0], str(named[0]), ast.Store()), node)
        ast.fix_missing_locations(target)
        reader.assign(target, args[2])
    return NOTHING


def _partial(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    del reader, node
    known = tuple(sorted((name, value) for name, value in keywords.items() if name != "**"))
    return of(Partial(args[0], tuple(args[1:]), known)) if args and args[0] else NOTHING


def _thread(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    """Read ``Thread(target=f, args=(engine,))`` as a call of f."""
    del args, node
    handed = [thing for thing in keywords.get("args", NOTHING)]
    rows = [list(thing.items) for thing in handed if hasattr(thing, "items") and isinstance(thing.items, tuple)]
    reader.apply(keywords.get("target", NOTHING), rows[0] if rows else [], {}, None)
    return of(Foreign("threading.Thread()"))


def _cast(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    del args, keywords
    return reader.annotated(node.args[0]) if node is not None and node.args else NOTHING


def _super(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    del args, keywords, node
    return of(Super(reader.scope.owner)) if reader.scope.owner else NOTHING


def _type(
    reader: CallReader, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
) -> Value | None:
    """Read ``type(x)`` and ``x.__class__`` as x's class."""
    del reader, keywords, node
    if len(args) != 1:
        return None
    found = [of(OwnClass(thing.key)) for thing in args[0] if isinstance(thing, OwnObject)]
    found += [of(TrtClass(thing.name)) for thing in args[0] if isinstance(thing, TrtObject)]
    return join(*found) if found else None


_TELLING: dict[
    str, Callable[[CallReader, Sequence[Value], dict[str, Value], ast.Call | None], Value | None]
] = {
    "getattr": _getattr, "setattr": _setattr, "partial": _partial, "partialmethod": _partial, "Thread": _thread,
    "Process": _thread, "cast": _cast, "super": _super, "type": _type,
}  # fmt: skip


def _arg(node: ast.Call | None) -> ast.expr | None:
    return node.args[0] if node is not None and node.args else None
