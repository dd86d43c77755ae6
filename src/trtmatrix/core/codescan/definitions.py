"""Reads what defines names: functions, classes, imports; and runs the bodies of functions."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from trtmatrix.core.api import ChangeKind
from trtmatrix.core.codescan.expressions import ExpressionReader
from trtmatrix.core.codescan.guards import judge_test
from trtmatrix.core.codescan.imports import is_bindings
from trtmatrix.core.codescan.program import ClassInfo, FunctionInfo, Scope
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    Module,
    OwnClass,
    OwnFunction,
    OwnModule,
    OwnObject,
    Value,
    join,
    many,
    of,
)

_PROPERTIES = {
    "property",
    "cached_property",
    "abstractproperty",
    "functools.cached_property",
    "abc.abstractproperty",
}
_CONTEXTS = {"contextmanager", "asynccontextmanager"}
_RECORDS = {"dataclass", "define", "attrs", "attr.s", "frozen", "s"}
_RECORD_BASES = {"NamedTuple", "BaseModel", "TypedDict", "Struct"}

MOST_HANDED_IN = 5
"""Kinds of things in one parameter; a function that is given more of them says nothing of any."""


class DefinitionReader(ExpressionReader):
    """Reads definitions and runs functions."""

    @abstractmethod
    def read_block(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements one after the other."""

    def define(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    ) -> None:
        """Read a definition or an import."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.ClassDef():
                self._class(node)
            case ast.Import():
                self._import(node)
            case ast.ImportFrom():
                self._import_from(node)

    # Functions

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        guards = len(self.guards)
        decorators = [self._decorator(each) for each in node.decorator_list]
        value = self.function_value(node, node.name)
        del self.guards[guards:]
        info = next(self.program.functions[thing.key] for thing in value if isinstance(thing, OwnFunction))
        names = {name.rpartition(".")[2] for name, _ in decorators}
        info.static, info.of_class = "staticmethod" in names, "classmethod" in names
        info.is_property, info.is_context = bool(names & _PROPERTIES), bool(names & _CONTEXTS)
        if not info.scope.local and not info.scope.shared:
            info.scope.local, info.scope.shared = _local_names(node)
        for _, decorator in decorators:
            if any(isinstance(thing, OwnFunction) for thing in decorator):
                self.apply(decorator, [value], {}, None)
        if any(name in ("setter", "deleter") for name in names):
            return
        self._note_overriding(node)
        self.bind(node.name, value)

    def _decorator(self, node: ast.expr) -> tuple[str, Value]:
        """Return a decorator's name and value; one that skips by version stands guard over the function."""
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        if isinstance(node, ast.Call) and node.args and name.endswith(("skipif", "skipIf", "skipUnless")):
            self.evaluate(node.args[0])
            test = judge_test(self, node.args[0])
            guard = test.over_body if name.endswith("skipUnless") else test.over_else
            if guard:
                self.guards.append(guard)
        return name, self.evaluate(node)

    def _note_overriding(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note a method that overrides one of TensorRT's that changes."""
        if not self.scope.owner or self.scope.function or node.name.startswith("__"):
            return
        for base in self.program.trt_bases(self.scope.owner):
            for change in self.names.changes(f"{base}.{node.name}"):
                gone = change.kind is ChangeKind.REMOVED
                self.note(node, [change], why=f"{base} may still call an override" if gone else "")

    def run_function(self, key: str) -> None:
        """Read a function's body with what is known of its parameters."""
        info = self.program.functions[key]
        self.scope, self.dead = info.scope, False
        self.guards = list(self.program.guards_of(key))
        info.scope.flow = {}
        self._bind_parameters(info)
        if isinstance(info.node, ast.Lambda):
            self.note_return(self.evaluate(info.node.body))
        else:
            self.scope = info.around
            self.annotated(info.node.returns)
            self.scope = info.scope
            self.read_block(info.node.body)
        info.scope.flow, self.scope, self.guards = {}, self.file.scope, []

    def _bind_parameters(self, info: FunctionInfo) -> None:
        spec = info.node.args
        places = [*spec.posonlyargs, *spec.args]
        for place, arg in enumerate([*places, *spec.kwonlyargs]):
            self.scope = info.around  # annotations are read where the function is defined
            declared = self.annotated(arg.annotation)
            self.scope = info.scope
            value = declared or _telling(info.params.get(arg.arg, NOTHING))
            if place == 0 and info.owner and places and not info.static:
                value = of(OwnClass(info.owner)) if info.of_class else of(OwnObject(info.owner))
            self.bind(arg.arg, value)
        if spec.vararg:
            self.bind(spec.vararg.arg, many([info.params.get(f"*{spec.vararg.arg}", NOTHING)]))
        if spec.kwarg:
            fields = {name[2:]: value for name, value in info.params.items() if name.startswith("**")}
            self.bind(spec.kwarg.arg, many(fields.values(), fields, ordered=False))

    def note_return(self, value: Value) -> None:
        """Remember what a function returns."""
        info = self.program.functions.get(self.scope.function)
        if info is not None:
            after = join(info.gives, value)
            self.program.grew = self.program.grew or after != info.gives
            info.gives = after

    # Classes

    def _class(self, node: ast.ClassDef) -> None:
        key = f"{self.file.path}:{node.lineno}:{node.name}"
        bases = [self.evaluate(base) for base in node.bases]
        for word in node.keywords:
            self.evaluate(word.value)
        decorators = [
            ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
        ]
        for each in node.decorator_list:
            self.evaluate(each)
        info = self.program.classes.get(key)
        if info is None:
            info = self.program.classes[key] = ClassInfo(node.name, bases)
            self.program.grew = True
        info.bases = [join(*pair) for pair in zip(info.bases, bases, strict=True)]
        base_names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        info.is_record = bool(
            {name.rpartition(".")[2] for name in decorators} & _RECORDS or base_names & _RECORD_BASES
        )
        outer, self.scope = self.scope, Scope(self.file, self.scope, owner=key)
        self.read_block(node.body)
        self.scope, self.dead = outer, False
        self.bind(node.name, of(OwnClass(key)))

    # Imports

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                value = self.program.paths.imported(alias.name, 0, self.file.path)
                self.bind(alias.asname, value)
                continue
            first = alias.name.partition(".")[0]
            if is_bindings(first):
                self.bind(first, of(Module()))
            elif (own := self.program.paths.resolve(first, 0, self.file.path)) is not None:
                self.bind(first, of(OwnModule(own)))
            else:
                self.bind(first, self.program.paths.imported(first, 0, self.file.path))

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        source = self.program.paths.imported(module, node.level, self.file.path)
        for alias in node.names:
            if alias.name == "*":
                self._import_all(source)
                continue
            with self.guarded(self.import_guards[-1] if self.import_guards else ""):
                value = self._imported_name(source, alias)
            own = self.program.paths.resolve(f"{module}.{alias.name}".strip("."), node.level, self.file.path)
            if not value and own is not None:
                value = of(OwnModule(own))
            self.bind(alias.asname or alias.name, value)

    def _imported_name(self, source: Value, alias: ast.alias) -> Value:
        found = []
        for thing in source:
            match thing:
                case Module():
                    place = ast.copy_location(ast.Name(alias.name, ast.Load()), alias)
                    found.append(self.attribute_of(of(thing), alias.name, place))
                    self.file.taken.add(alias.asname or alias.name)
                case OwnModule():
                    found.append(self.of_own_module(thing.path, alias.name))
                case Foreign():
                    found.append(of(Foreign(f"{thing.name}.{alias.name}")))
                case _:
                    pass
        return join(*found)

    def _import_all(self, source: Value) -> None:
        """Bind every public name of a module."""
        for thing in source:
            if isinstance(thing, Module):
                for name in [*self.names.surface.classes, *self.names.surface.names]:
                    if not name.startswith("_"):
                        self.bind(name, self.names.value_of_name(name))
                        self.file.taken.add(name)
            elif isinstance(thing, OwnModule) and thing.path in self.program.files:
                for name, value in list(self.program.files[thing.path].scope.names.items()):
                    if not name.startswith("_") and "." not in name:
                        self.bind(name, value)


def _telling(value: Value) -> Value:
    """Return what callers hand in, unless it is so many things that the function is a helper for anything."""
    things = [thing for thing in value if not isinstance(thing, Const | Foreign)]
    return value if len(things) <= MOST_HANDED_IN else NOTHING


def _local_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a function binds itself, and those that it takes from outside to bind."""
    found, shared = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}, set()
    for each in _inside(node.body):
        match each:
            case ast.Name() if isinstance(each.ctx, ast.Store | ast.Del):
                found.add(each.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(each.name)
            case ast.Import() | ast.ImportFrom():
                found |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
            case ast.ExceptHandler() if each.name:
                found.add(each.name)
            case ast.Global() | ast.Nonlocal():
                shared |= set(each.names)
            case _:
                pass
    return frozenset(found - shared), frozenset(shared)


def _inside(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Return the nodes of a body, without those of functions and classes inside."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
