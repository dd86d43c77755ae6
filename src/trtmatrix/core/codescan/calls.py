"""What a call gives, and what it hands to the functions of the scanned files."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence

from trtmatrix.core.codescan.attributes import AttributeReader
from trtmatrix.core.codescan.commands import CommandReader
from trtmatrix.core.codescan.fold import fold_call, fold_method, hangs_on_version, reads_versions
from trtmatrix.core.codescan.imports import names_bindings
from trtmatrix.core.codescan.library import from_library
from trtmatrix.core.codescan.program import FunctionInfo
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    Many,
    Module,
    OwnClass,
    OwnFunction,
    OwnObject,
    Partial,
    Row,
    Super,
    Thing,
    TrtCallable,
    TrtClass,
    TrtObject,
    Value,
    items_of,
    join,
    many,
    of,
    row,
    texts,
)

_ADDING = {"append": 0, "add": 0, "appendleft": 0, "put": 0, "put_nowait": 0, "insert": 1, "push": 0}
_GETTING = ("get", "pop", "popleft", "setdefault", "popitem", "get_nowait", "result")


class CallReader(CommandReader, AttributeReader):
    """Reads calls."""

    def call(self, node: ast.Call) -> Value:
        """Return what a call gives, noting the uses in it."""
        base = NOTHING
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value)
            function = self.attribute_of(base, node.func.attr, node.func, call=node)
        else:
            function = self.called(node.func, node)
        args = [self.evaluate(arg) for arg in node.args]
        keywords = {word.arg or "**": self.evaluate(word.value) for word in node.keywords}
        self._note_handed_on(args, keywords)
        self.run_command(function, args, keywords, node)
        if isinstance(node.func, ast.Attribute):
            special = self._method(base, node.func, args, keywords)
            if special is not None:
                return special
        if not function:
            return self._unknown(node, args)
        given = self.apply(function, args, keywords, node)
        return self._imported(_name_called(node), args) or given

    @abstractmethod
    def called(self, node: ast.expr, call: ast.Call) -> Value:
        """Return the callable of a call."""

    def _unknown(self, node: ast.Call, args: list[Value]) -> Value:
        """Return what a call of something unknown gives: the bindings, if it imports them by name."""
        name = _name_called(node)
        return self._imported(name, args) or (fold_call(name, args) if hangs_on_version(*args) else NOTHING)

    def _imported(self, name: str, args: Sequence[Value]) -> Value:
        named = [str(text.value) for text in texts(args[0])] if args and "import" in name.lower() else []
        return of(Module()) if any(names_bindings(text) for text in named) else NOTHING

    def _note_handed_on(self, args: Sequence[Value], keywords: dict[str, Value]) -> None:
        """Functions that are handed on may be called from anywhere, unguarded."""
        for value in [*args, *keywords.values()]:
            for thing in value:
                if isinstance(thing, OwnFunction) and thing.key in self.program.functions:
                    self.program.functions[thing.key].calls.add(self.guards[-1] if self.guards else "")

    # Methods of containers and texts

    def _method(
        self, base: Value, func: ast.Attribute, args: list[Value], keywords: dict[str, Value]
    ) -> Value | None:
        """Return what a container's or a text's method gives; None where it is none of these."""
        name = func.attr
        if name in ("enter_context", "enter_async_context", "push") and args and not _is_own(base):
            return self.entered(args[0], None)
        if hangs_on_version(base) and any(isinstance(thing, Const) for thing in base):
            return fold_method(base, name, args)
        if name in ("submit", "apply_async", "run_in_executor", "map") and args and not _is_own(base):
            callables = [
                arg for arg in args if any(isinstance(thing, OwnFunction | Partial) for thing in arg)
            ]
            if callables:
                rest = args[args.index(callables[0]) + 1 :]
                rest = [items_of(arg) for arg in rest] if name in ("map", "apply_async") else rest
                return many([self.apply(callables[0], rest, {}, None)])
        if not any(isinstance(thing, Many | Row) for thing in base):
            return self._on_text(base, name, args)
        return self._of_container(base, func, args, keywords)

    def _on_text(self, base: Value, name: str, args: list[Value]) -> Value | None:
        if name == "split" and any(isinstance(thing, Const) for thing in base):
            return base if texts(base) else None
        if name == "join" and args and base and all(isinstance(thing, Const) for thing in base):
            return frozenset(texts(args[0]))
        if name in ("format", "strip") and any(isinstance(thing, Const) for thing in base):
            return base
        return None

    def _of_container(
        self, base: Value, func: ast.Attribute, args: list[Value], keywords: dict[str, Value]
    ) -> Value | None:
        name, items = func.attr, items_of(base)
        if name in _ADDING and len(args) > _ADDING[name]:
            self.widen(func.value, base, args[_ADDING[name]])
            return NOTHING
        if name in ("extend", "update") and args:
            self.widen(
                func.value, base, self.iterate(args[0], None) if name == "extend" else items_of(args[0])
            )
            return NOTHING
        if name == "update":
            for key, value in keywords.items():
                self.widen(func.value, base, value, key)
            return NOTHING
        if name in _GETTING:
            return self._got(func, base, args)
        if name in ("values", "copy", "items"):
            pairs = row((of(Foreign("key")), items))
            return base if name == "copy" else many([pairs if name == "items" else items])
        return None

    def _got(self, func: ast.Attribute, base: Value, args: list[Value]) -> Value:
        """Return an item by ``get``, ``pop`` or ``setdefault``, with the default that is given."""
        default = args[1] if len(args) > 1 else NOTHING
        if func.attr == "setdefault" and default:
            self.widen(func.value, base, default)
        keys = [thing.value for thing in args[0] if isinstance(thing, Const)] if args else []
        fields = {name: value for thing in base if isinstance(thing, Many) for name, value in thing.fields}
        known = fields.get(str(keys[0])) if len(keys) == 1 else None
        return join(known if known is not None else items_of(base), default)

    # Calls

    def apply(
        self, function: Value, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
    ) -> Value:
        """Return what calling a value gives."""
        given = [self._apply_one(thing, args, keywords, node) for thing in sorted(function, key=repr)]
        return join(*given)

    def _apply_one(
        self, thing: Thing, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
    ) -> Value:
        match thing:
            case TrtClass():
                if node is not None:
                    self.note(node.func, self.names.changes(f"{thing.name}.__init__"), call=node)
                return of(TrtObject(thing.name))
            case TrtCallable():
                return self.names.result_of(thing.name)
            case OwnClass():
                return self._made(thing, args, keywords, node)
            case OwnFunction():
                return self._own(thing, args, keywords, node)
            case OwnObject():
                method = self.program.method(thing.key, "__call__")
                bound = of(OwnFunction(method.key, bound=True)) if method else NOTHING
                return self.apply(bound, args, keywords, node) if method else NOTHING
            case Partial():
                return self.apply(
                    thing.function, [*thing.args, *args], {**dict(thing.keywords), **keywords}, node
                )
            case Foreign():
                return self._foreign(thing, args, keywords, node)
            case Module() | Super() | TrtObject() | Many() | Row() | Const():
                return NOTHING
            case _:
                return of(thing) if hangs_on_version(of(thing)) else NOTHING

    def _foreign(
        self, thing: Foreign, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
    ) -> Value:
        imported = self._imported(thing.name.rpartition(".")[2], args)
        if imported:
            return imported
        known = from_library(self, thing.name, args, keywords, node)
        if known is not None:
            return known
        if hangs_on_version(*args) or (reads_versions(thing.name) and texts(join(*args[:1]))):
            return fold_call(thing.name, args)
        return of(Foreign(f"{thing.name}()" if len(thing.name) < 80 else thing.name))

    def _made(
        self, thing: OwnClass, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
    ) -> Value:
        """Make an object of an own class: its constructor gets the arguments, or its fields do."""
        program = self.program
        info = program.classes[thing.key]
        made = program.method(thing.key, "__init__")
        if made is not None:
            self._own(OwnFunction(made.key, bound=True), args, keywords, node)
        elif info.is_record:
            for name, value in [*zip(info.fields, args, strict=False), *keywords.items()]:
                program.grow(info.attributes, name, value)
        else:
            for base in program.trt_bases(thing.key):
                if node is not None:
                    self.note(node.func, self.names.changes(f"{base}.__init__"), call=node)
        return of(OwnObject(thing.key))

    def _own(
        self, thing: OwnFunction, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call | None
    ) -> Value:
        """Hand arguments to a function of the scanned files and return what it gives so far."""
        info = self.program.functions.get(thing.key)
        if info is None:
            return NOTHING
        info.calls.add(self.guards[-1] if self.guards else "")
        self._hand_over(info, thing, args, keywords, node)
        given = info.gives
        if not isinstance(info.node, ast.Lambda):
            given = join(given, self.annotated(info.node.returns)) if info.node.returns else given
        if info.yields:
            return many([info.yields])
        if info.is_context and given:
            return many([items_of(given)])
        return given

    def _hand_over(
        self, info: FunctionInfo, thing: OwnFunction, args: Sequence[Value], keywords: dict[str, Value],
        node: ast.Call | None,
    ) -> None:  # fmt: skip
        spec = info.node.args
        places = [arg.arg for arg in [*spec.posonlyargs, *spec.args]][1 if thing.bound else 0 :]
        starred = [isinstance(arg, ast.Starred) for arg in node.args] if node is not None else []
        if len(starred) != len(args):
            starred = [False] * len(args)
        for place, (value, is_starred) in enumerate(zip(args, starred, strict=True)):
            if is_starred:
                rest = [*places[place:], *([f"*{spec.vararg.arg}"] if spec.vararg else [])]
                for name in rest:
                    self.program.grow(info.params, name, self.iterate(value, None))
                break
            if place < len(places):
                self.program.grow(info.params, places[place], value)
            elif spec.vararg:
                self.program.grow(info.params, f"*{spec.vararg.arg}", value)
        allowed = {*places, *(arg.arg for arg in spec.kwonlyargs)}
        for name, value in keywords.items():
            if name in allowed:
                self.program.grow(info.params, name, value)
            elif spec.kwarg and name != "**":
                self.program.grow(info.params, f"**{name}", value)

    def entered(self, value: Value, node: ast.expr | None) -> Value:
        """Return what ``with value as x`` binds."""
        found: list[Value] = []
        for thing in value:
            match thing:
                case Many():  # of a function that contextlib made a context of: what it yields
                    found.append(thing.items)
                case OwnObject():
                    found.append(self._entered_own(thing))
                case TrtObject():
                    if node is not None:
                        self.note_special(node, "__enter__", value)
                        self.note_special(node, "__exit__", value)
                    found.append(of(thing))
                case _:
                    found.append(of(thing))
        return join(*found)

    def _entered_own(self, thing: OwnObject) -> Value:
        method = self.program.method(thing.key, "__enter__") or self.program.method(thing.key, "__aenter__")
        if method is None:
            return of(thing)
        return self.apply(of(OwnFunction(method.key, bound=True)), [], {}, None)


def _name_called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_own(value: Value) -> bool:
    return any(isinstance(thing, OwnObject | OwnClass | TrtObject) for thing in value)
