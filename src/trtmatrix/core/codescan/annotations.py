"""What annotations say of values, and functions as values."""

from __future__ import annotations

import ast

from trtmatrix.core.codescan.calls import CallReader
from trtmatrix.core.codescan.program import FunctionInfo, Scope
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    OwnClass,
    OwnFunction,
    OwnObject,
    TrtClass,
    TrtObject,
    Value,
    join,
    many,
    of,
    row,
)

_WRAPPERS = {
    "List", "list", "Sequence", "Iterable", "Iterator", "Generator", "Set", "set", "Tuple", "tuple", "Deque",
    "deque",
    "FrozenSet", "frozenset", "Collection", "MutableSequence", "AsyncIterator",
}  # fmt: skip
_MAPPINGS = {"Dict", "dict", "Mapping", "MutableMapping", "DefaultDict", "defaultdict", "OrderedDict"}
_SAME = {
    "Optional",
    "Union",
    "Annotated",
    "ClassVar",
    "Final",
    "InitVar",
    "ContextManager",
    "Awaitable",
    "Required",
}


class AnnotationReader(CallReader):
    """Reads annotations."""

    def annotated(self, node: ast.expr | None) -> Value:
        """Return what an annotation says a value is; a text is read as the code that it holds."""
        match node:
            case None:
                return NOTHING
            case ast.Constant() if isinstance(node.value, str):
                try:
                    inner = ast.parse(node.value.strip(), mode="eval").body
                except (SyntaxError, ValueError):
                    return NOTHING
                return self.annotated(ast.fix_missing_locations(_moved(inner, node)))
            case ast.BinOp() if isinstance(node.op, ast.BitOr):
                return join(self.annotated(node.left), self.annotated(node.right))
            case ast.Subscript():
                return self._annotated_item(node)
            case ast.Name() | ast.Attribute():
                return join(*(_instance(thing) for thing in self.evaluate(node)))
            case _:
                return NOTHING

    def _annotated_item(self, node: ast.Subscript) -> Value:
        outer = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        values = [self.annotated(each) for each in inner]
        if outer in _SAME:
            return join(*(values[:1] if outer == "Annotated" else values))
        if outer in _MAPPINGS:
            return many(values[1:], ordered=False)
        if outer in ("Tuple", "tuple") and not any(getattr(each, "value", 0) is ... for each in inner):
            return row(values)
        if outer in _WRAPPERS:
            return many(values)
        return (
            NOTHING
            if outer in ("Type", "type", "Callable")
            else join(*(_instance(t) for t in self.evaluate(node.value)))
        )

    # Functions as values

    def function_value(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> Value:
        """Note a function that is defined here, and return it as a value."""
        key = f"{self.file.path}:{node.lineno}:{name}"
        info = self.program.functions.get(key)
        if info is None:
            scope = Scope(self.file, self.scope, function=key, owner=self.scope.owner)
            in_class = bool(self.scope.owner) and not self.scope.function
            info = FunctionInfo(node, self.scope, self.scope.owner if in_class else "", scope)
            self.program.functions[key] = info
            self.program.grew = True
        info.guards = tuple(self.guards)
        self._read_defaults(info, node.args)
        if key not in self.waiting:
            self.waiting.append(key)
        return of(OwnFunction(key))

    def _read_defaults(self, info: FunctionInfo, args: ast.arguments) -> None:
        names = [arg.arg for arg in [*args.posonlyargs, *args.args]]
        pairs: list[tuple[str, ast.expr | None]] = []
        if args.defaults:
            pairs += list(zip(names[-len(args.defaults) :], args.defaults, strict=True))
        pairs += list(zip((arg.arg for arg in args.kwonlyargs), args.kw_defaults, strict=True))
        for name, default in pairs:
            value = self.evaluate(default)
            self.program.grow(info.params, name, frozenset(t for t in value if not isinstance(t, Const)))


def _moved(node: ast.expr, place: ast.expr) -> ast.expr:
    """Give an expression out of a text the text's own place."""
    for each in ast.walk(node):
        if isinstance(each, ast.expr):
            each.lineno, each.end_lineno = place.lineno, place.end_lineno
            each.col_offset, each.end_col_offset = place.col_offset, place.end_col_offset
    return node


def _instance(thing: object) -> Value:
    """Return an object of the class that an annotation names."""
    match thing:
        case TrtClass():
            return of(TrtObject(thing.name))
        case OwnClass():
            return of(OwnObject(thing.key))
        case Foreign() if thing.name not in _ANYTHING:
            return of(Foreign(thing.name))
        case _:
            return NOTHING


_ANYTHING = {"typing.Any", "builtins.object", "typing.Protocol", "typing.TypeVar"}
