"""What an expression can be: names, operators, containers, comprehensions, annotations."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trtmatrix.core.api import ChangeKind
from trtmatrix.core.codescan.calls import CallReader
from trtmatrix.core.codescan.fold import fold_compare, fold_item, fold_sum, hangs_on_version
from trtmatrix.core.codescan.program import FunctionInfo, Scope
from trtmatrix.core.codescan.guards import judge_test
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    Many,
    OwnClass,
    OwnFunction,
    OwnObject,
    Row,
    TrtCallable,
    TrtClass,
    TrtObject,
    Value,
    join,
    many,
    of,
    row,
)

_WRAPPERS = {
    "List", "list", "Sequence", "Iterable", "Iterator", "Generator", "Set", "set", "Tuple", "tuple", "Deque", "deque",
    "FrozenSet", "frozenset", "Collection", "MutableSequence", "AsyncIterator",
}  # fmt: skip
_MAPPINGS = {"Dict", "dict", "Mapping", "MutableMapping", "DefaultDict", "defaultdict", "OrderedDict"}
_SAME = {"Optional", "Union", "Annotated", "ClassVar", "Final", "InitVar", "ContextManager", "Awaitable", "Required"}


class ExpressionReader(CallReader):
    """Reads expressions."""

    def evaluate(self, node: ast.expr | None) -> Value:
        """Return what an expression can be, noting the uses in it."""
        value = self._evaluate(node)
        self.values[id(node)] = value
        return value

    def _evaluate(self, node: ast.expr | None) -> Value:
        match node:
            case None:
                return NOTHING
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self.attribute_of(self.evaluate(node.value), node.attr, node)
            case ast.Call():
                return self.call(node)
            case ast.Constant():
                return self._constant(node)
            case ast.NamedExpr():
                value = self.evaluate(node.value)
                self.assign(node.target, value)
                return value
            case ast.IfExp() | ast.BoolOp() | ast.Compare() | ast.UnaryOp() | ast.BinOp():
                return self._operator(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Lambda():
                return self.function_value(node, f"lambda:{node.col_offset}")
            case _:
                return self._display(node)

    def _display(self, node: ast.expr) -> Value:
        match node:
            case ast.Tuple():
                if any(isinstance(item, ast.Starred) for item in node.elts):
                    return many([self._element(item) for item in node.elts])
                return self.command_list(node, row(self.evaluate(item) for item in node.elts))
            case ast.List() | ast.Set():
                return self.command_list(node, many([self._element(item) for item in node.elts]))
            case ast.Dict():
                return self._dict(node)
            case ast.JoinedStr():
                return self._joined_text(node)
            case ast.Await() | ast.Starred() | ast.FormattedValue():
                return self.evaluate(node.value)
            case ast.Yield():
                self.note_yield(self.evaluate(node.value))
                return NOTHING
            case ast.YieldFrom():
                self.note_yield(self.iterate(self.evaluate(node.value), node.value))
                return NOTHING
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.evaluate(child)
                return NOTHING

    def _element(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Starred):
            return self.iterate(self.evaluate(node.value), node.value)
        return self.evaluate(node)

    def note_yield(self, value: Value) -> None:
        """Remember what a generator yields."""
        info = self.program.functions.get(self.scope.function)
        if info is not None:
            after = join(info.yields, value)
            self.program.grew = self.program.grew or after != info.yields
            info.yields = after

    def _name(self, node: ast.Name, call: ast.Call | None = None) -> Value:
        value = self.look_up(node.id)
        for thing in value:
            if isinstance(thing, TrtClass | TrtCallable) and "." not in thing.name:
                others = any(isinstance(other, Foreign | OwnClass) for other in value)
                why = "it may also be of another library" if others else ""
                self.note(node, self.names.changes(thing.name), call=call, why=why)
        return value

    def called(self, node: ast.expr, call: ast.Call) -> Value:
        """Return the callable of a call, noting its use as one that is called."""
        if isinstance(node, ast.Name):
            return self._name(node, call)
        return self.evaluate(node)

    def _constant(self, node: ast.Constant) -> Value:
        if not isinstance(node.value, str | int | float):
            return NOTHING
        worth = isinstance(node.value, str) and (node.value.lstrip().startswith("-") or "trtexec" in node.value)
        return of(Const(node.value, where=(self.file.path, node.lineno) if worth else ("", 0)))

    def _joined_text(self, node: ast.JoinedStr) -> Value:
        """Put an f-string together; what is not known of it becomes ``{}``."""
        whole = of(Const("", where=(self.file.path, node.lineno)))
        for part in node.values:
            value = self.evaluate(part)
            known = [thing for thing in value if isinstance(thing, Const) and isinstance(thing.value, str)]
            whole = fold_sum(whole, of(Const(str(known[0].value))) if len(known) == 1 else of(Const("{}")))
        return whole

    def _operator(self, node: ast.IfExp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.BinOp) -> Value:
        match node:
            case ast.IfExp():
                self.evaluate(node.test)
                test = judge_test(self, node.test)
                with self.guarded(test.over_body):
                    body = self.evaluate(node.body)
                with self.guarded(test.over_else):
                    return join(body, self.evaluate(node.orelse))
            case ast.BoolOp():
                return self._bool(node)
            case ast.Compare():
                return self._compare(node)
            case ast.UnaryOp():
                value = self.evaluate(node.operand)
                return value if hangs_on_version(value) else NOTHING
            case ast.BinOp():
                left, right = self.evaluate(node.left), self.evaluate(node.right)
                folded = fold_sum(left, right) if isinstance(node.op, ast.Add) else NOTHING
                if folded:
                    return folded
                return frozenset(thing for thing in join(left, right) if isinstance(thing, Many | Row | Const | Foreign))

    def _bool(self, node: ast.BoolOp) -> Value:
        """Read ``a and b``: b stands behind a's test, as in ``hasattr(x, "y") and x.y``."""
        found, added = [], 0
        for operand in node.values:
            found.append(self.evaluate(operand))
            test = judge_test(self, operand)
            guard = test.over_body if isinstance(node.op, ast.And) else test.over_else
            if guard:
                self.guards.append(guard)
                added += 1
        del self.guards[len(self.guards) - added :]
        return join(*found)

    def _compare(self, node: ast.Compare) -> Value:
        values = [self.evaluate(node.left), *(self.evaluate(each) for each in node.comparators)]
        if len(values) == 2 and hangs_on_version(*values):
            return fold_compare(values[0], node.ops[0], values[1])
        return NOTHING

    def _subscript(self, node: ast.Subscript) -> Value:
        base, index = self.evaluate(node.value), self.evaluate(node.slice)
        if hangs_on_version(base):
            return fold_item(base, node.slice, index)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(base)
        return join(*(self._item(thing, node, index) for thing in base))

    def _note_index(self, thing: TrtObject, node: ast.Subscript, index: Value) -> None:
        """Note an index whose type no overload takes any more; of an unknown type, as possible."""
        types = {_plain_type(each) for each in index} - {""}
        for change in self.names.changes(f"{thing.name}.__getitem__"):
            if change.kind is not ChangeKind.CHANGED or not change.after:
                self.note(node, [change])
            elif not types:
                self.note(node, [change], why="what the index is cannot be told")
            elif not any(kind in line.partition("->")[0] for kind in types for line in change.after.splitlines()):
                self.note(node, [change])

    def _sliced(self, base: Value) -> Value:
        rows = [many(thing.items) for thing in base if isinstance(thing, Row)]
        return join(frozenset(thing for thing in base if not isinstance(thing, Row)), *rows)

    def _item(self, thing: object, node: ast.Subscript, index: Value) -> Value:
        keys = [each.value for each in index if isinstance(each, Const)]
        match thing:
            case TrtObject():
                self._note_index(thing, node, index)
                return self.names.item_of(thing.name)
            case TrtClass() if len(keys) == 1 and isinstance(keys[0], str):
                return self.attribute_of(of(thing), keys[0], node)
            case Row():
                place = keys[0] if len(keys) == 1 and isinstance(keys[0], int) else None
                if place is not None and -len(thing.items) <= place < len(thing.items):
                    return thing.items[place]
                return join(*thing.items)
            case Many():
                known = dict(thing.fields)
                return known[str(keys[0])] if len(keys) == 1 and keys[0] in known else thing.items
            case Foreign():
                return of(thing)
            case OwnObject():
                method = self.program.method(thing.key, "__getitem__")
                return self.apply(of(OwnFunction(method.key, bound=True)), [index], {}, None) if method else NOTHING
            case _:
                return NOTHING

    def _dict(self, node: ast.Dict) -> Value:
        fields: dict[str, Value] = {}
        items: list[Value] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.evaluate(item)
            self.evaluate(key)
            if key is None:
                items.append(self.iterate(value, None))
                continue
            items.append(value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                fields[key.value] = join(fields.get(key.value, NOTHING), value)
        return many(items, fields, ordered=False)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        before, guards = dict(self.scope.flow), len(self.guards)
        folded = NOTHING
        for each in node.generators:
            value = self.evaluate(each.iter)
            folded = folded or self._folded(node, value)
            items = self.iterate(value, each.iter)
            self.assign(each.target, items)
            for test in each.ifs:
                self.evaluate(test)
                guard = judge_test(self, test).over_body
                if guard:
                    self.guards.append(guard)
        if isinstance(node, ast.DictComp):
            self.evaluate(node.key)
            given = many([self.evaluate(node.value)], ordered=False)
        else:
            given = many([self.evaluate(node.elt)])
        del self.guards[guards:]
        self.scope.flow = before
        return folded or given

    def _folded(self, node: ast.expr, value: Value) -> Value:
        """Return ``[int(part) for part in version.split(".")]`` item by item."""
        if not isinstance(node, ast.ListComp | ast.GeneratorExp) or len(node.generators) != 1:
            return NOTHING
        if not hangs_on_version(value):
            return NOTHING
        found: list[int | str] = []
        for thing in value:
            for part in thing.value if isinstance(thing, Const) and isinstance(thing.value, tuple) else ():
                self.assign(node.generators[0].target, of(Const(part, versioned=True)))
                given = [each.value for each in self.evaluate(node.elt) if isinstance(each, Const)]
                found += [each for each in given if isinstance(each, int | str)]
        return of(Const(tuple(found), versioned=True)) if found else NOTHING

    def iterate(self, value: Value, node: ast.expr | None) -> Value:
        """Return what iterating gives; over an object of TensorRT's it is a use of its items."""
        found: list[Value] = []
        for thing in value:
            match thing:
                case Many():
                    found.append(thing.items if thing.ordered else of(Foreign("key")))
                case Row():
                    found += thing.items
                case TrtObject():
                    if node is not None:
                        self.note(node, self.names.changes(f"{thing.name}.__iter__"))
                    found.append(self.names.item_of(thing.name))
                case TrtClass():
                    found.append(of(TrtObject(thing.name)))
                case Foreign():
                    found.append(of(thing))
                case OwnObject():
                    found.append(self._iterated_own(thing))
                case _:
                    pass
        return join(*found)

    def _iterated_own(self, thing: OwnObject) -> Value:
        for name in ("__iter__", "__next__", "__getitem__"):
            method = self.program.method(thing.key, name)
            if method is not None:
                given = self.apply(of(OwnFunction(method.key, bound=True)), [], {}, None)
                return self.iterate(given, None) if name == "__iter__" and given != of(thing) else given
        return NOTHING

    # Annotations

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
        return NOTHING if outer in ("Type", "type", "Callable") else join(*(_instance(t) for t in self.evaluate(node.value)))

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


def _plain_type(thing: object) -> str:
    """Return ``"int"`` or ``"str"`` where a thing is surely that."""
    if isinstance(thing, Const) and isinstance(thing.value, int | str):
        return type(thing.value).__name__
    found = thing.name.removeprefix("builtins.").removesuffix("()") if isinstance(thing, Foreign) else ""
    return found if found in ("int", "str") else ""


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
            return of(Foreign(thing.name)) if thing.name not in ("builtins.object",) else NOTHING
        case _:
            return NOTHING


_ANYTHING = {"typing.Any", "builtins.object", "typing.Protocol", "typing.TypeVar"}


def positional(arguments: ast.arguments) -> Sequence[ast.arg]:
    """Return the parameters that take arguments by place."""
    return [*arguments.posonlyargs, *arguments.args]
