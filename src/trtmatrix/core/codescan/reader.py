"""What every part of reading Python shares: names in scopes, guards, and where uses are noted."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trtmatrix.core.api import ApiChange, ChangeKind
from trtmatrix.core.codescan.findings import Place
from trtmatrix.core.codescan.fits import fits
from trtmatrix.core.codescan.program import Program, Scope, SourceFile
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    Many,
    Module,
    OwnClass,
    OwnModule,
    OwnObject,
    Row,
    TrtObject,
    Value,
    join,
    many,
    of,
)

_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "get_ipython", "display"}

MOST_KINDS = 3
"""Things that a value can be, for its mere length or item to be worth telling."""


class Reader(ABC):
    """One pass over one file: the scope that is read now, and the guards in force."""

    def __init__(self, program: Program, file: SourceFile) -> None:
        """Start in the file's module."""
        self.program, self.file = program, file
        self.names, self.scope = program.names, file.scope
        self.guards: list[str] = []
        self.import_guards: list[str] = []
        self.dead = False
        """Behind a return, raise, break or continue."""
        self.loops = 0
        self.values: dict[int, Value] = {}
        """What expressions came out as last, by the node's identity."""
        self.waiting: list[str] = []
        """Keys of functions that were defined and are yet to be read."""

    @abstractmethod
    def evaluate(self, node: ast.expr | None) -> Value:
        """Return what an expression can be, noting the uses in it."""

    # Names

    def look_up(self, name: str) -> Value:
        """Return what a name stands for here."""
        scope: Scope | None = self.scope
        if scope is not None and name in scope.flow and name not in scope.shared:
            return scope.flow[name]
        while scope is not None:
            if name in scope.local and name not in scope.shared:
                return scope.names.get(name, NOTHING)
            if name in scope.names and not (scope.owner and scope is not self.scope and not scope.function):
                return scope.names[name]
            scope = scope.parent
        if name in _BUILTINS:
            return of(Foreign(f"builtins.{name}"))
        if name in ("trt", "tensorrt"):
            self.file.unbound = True
            return of(Module())
        return NOTHING

    def bind(self, name: str, value: Value) -> None:
        """Give a name a value from here on."""
        if Module() in value:
            self.file.about_tensorrt = True
        if name in self.scope.shared:
            self.program.grow(self._home(name).names, name, value)
            return
        self.scope.flow[name] = value
        self.program.grow(self.scope.names, name, value)
        if self.scope.owner and not self.scope.function:
            self.program.grow(self.program.classes[self.scope.owner].attributes, name, value)

    def _home(self, name: str) -> Scope:
        """Return the scope that a ``global`` or ``nonlocal`` name belongs to."""
        scope = self.scope.parent
        while scope is not None and scope.parent is not None:
            if name in scope.local:
                return scope
            scope = scope.parent
        return self.file.scope

    # Assignments

    def assign(self, target: ast.expr, value: Value) -> None:
        """Give a target a value: names, attributes, items, and tuples of them."""
        match target:
            case ast.Name():
                self.bind(target.id, value)
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, value)
            case ast.Starred():
                self.assign(target.value, many([value]))
            case ast.Attribute():
                self._store(target, value)
            case ast.Subscript():
                base = self.evaluate(target.value)
                self.evaluate(target.slice)
                if value:
                    self.widen(target.value, base, value, _key(target.slice))
            case _:
                pass

    def _unpack(self, targets: Sequence[ast.expr], value: Value) -> None:
        rows = [thing.items for thing in value if isinstance(thing, Row) and len(thing.items) == len(targets)]
        starred = any(isinstance(target, ast.Starred) for target in targets)
        if rows and not starred:
            for place, target in enumerate(targets):
                self.assign(target, join(*(items[place] for items in rows)))
            return
        item = self.iterate(value, None)
        for place, target in enumerate(targets):  # optional_import("tensorrt"): and whether it is there
            self.assign(target, value if Module() in value and not place else item)

    @abstractmethod
    def iterate(self, value: Value, node: ast.expr | None) -> Value:
        """Return what iterating gives."""

    def _store(self, target: ast.Attribute, value: Value) -> None:
        """Store an attribute; that of an object of TensorRT's is a use of it."""
        base = self.evaluate(target.value)
        self.attribute_of(base, target.attr, target, store=True)
        own = False
        for thing in base:
            if isinstance(thing, OwnObject):
                self.program.grow(self.program.classes[thing.key].attributes, target.attr, value)
                own = True
            own = self._store_elsewhere(thing, target.attr, value) or own
        if any(isinstance(thing, Many) for thing in base):
            self.widen(target.value, base, value, target.attr)
        elif not own:
            self.bind_path(target, value)

    def _store_elsewhere(self, thing: object, name: str, value: Value) -> bool:
        if isinstance(thing, OwnClass):
            self.program.grow(self.program.classes[thing.key].attributes, name, value)
            return True
        if isinstance(thing, OwnModule) and thing.path in self.program.files:
            self.program.grow(self.program.files[thing.path].scope.names, name, value)
            return True
        return False

    @abstractmethod
    def attribute_of(
        self, base: Value, name: str, node: ast.expr, *, call: ast.Call | None = None, store: bool = False,
        why: str = "",
    ) -> Value:  # fmt: skip
        """Return an attribute of a value, noting its use."""

    def bind_path(self, target: ast.Attribute, value: Value) -> None:
        """Remember ``args.engine = …`` by its text, where what ``args`` is cannot be told."""
        path = path_of(target)
        if path:
            self.scope.flow[path] = value
            self.program.grow(self.scope.names, path, value)

    def widen(self, node: ast.expr, base: Value, item: Value, key: str = "") -> None:
        """Add an item to the container that an expression stands for."""
        ordered = not any(isinstance(thing, Many) and not thing.ordered for thing in base)
        wider = join(base, many([item], {key: item} if key else None, ordered))
        match node:
            case ast.Name() if node.id in self.scope.flow:
                self.bind(node.id, wider)
            case ast.Name():
                scope: Scope | None = self.scope
                while scope is not None and node.id not in scope.names:
                    scope = scope.parent
                if scope is not None:
                    self.program.grow(scope.names, node.id, wider)
            case ast.Attribute():
                holder = self.evaluate(node.value)
                own = [thing for thing in holder if isinstance(thing, OwnObject)]
                for thing in own:
                    self.program.grow(self.program.classes[thing.key].attributes, node.attr, wider)
                others = [thing for thing in holder if self._store_elsewhere(thing, node.attr, wider)]
                if not own and not others:
                    self.bind_path(node, wider)
            case _:
                pass

    # Noting uses

    @contextmanager
    def guarded(self, guard: str) -> Iterator[None]:
        """Read what stands behind a guard; none where it is empty."""
        if guard:
            self.guards.append(guard)
        try:
            yield
        finally:
            if guard:
                self.guards.pop()

    def note(
        self, node: ast.AST, changes: Sequence[ApiChange], *, call: ast.Call | None = None, why: str = "",
        bound: bool = True,
    ) -> None:  # fmt: skip
        """Note a use at the end of a node, where the attribute's name stands."""
        if not changes:
            return
        place = self.place(node)
        for change in changes:
            self.program.findings.add(place, [change], self._why(change, call, why, bound))

    def note_special(self, node: ast.expr, name: str, value: Value) -> None:
        """Note ``len(x)``, ``with x`` and the like, unless x can be too many things for that to say much."""
        things = [thing for thing in value if not isinstance(thing, Const)]
        for thing in things if len(things) <= MOST_KINDS else ():
            if isinstance(thing, TrtObject):
                why = "it may also be of something else" if len(things) > 1 else ""
                self.note(node, self.names.changes(f"{thing.name}.{name}"), why=why)

    def place(self, node: ast.AST) -> Place:
        """Return where a node stands: the line of an attribute's own name."""
        line = getattr(node, "end_lineno" if isinstance(node, ast.Attribute) else "lineno", 1) or 1
        return self.place_of_line(line, getattr(node, "end_col_offset", 0) or 0)

    def place_of_line(self, line: int, column: int = 0, file: SourceFile | None = None) -> Place:
        """Return a place by the line within a file, or within a notebook's joined cells."""
        file = file or self.file
        text = file.lines[line - 1] if 0 < line <= len(file.lines) else ""
        if not file.cells:
            return Place(file=file.path, line=line, column=column, text=text)
        cell, inner = file.cells[line - 1] if line <= len(file.cells) else (0, line)
        return Place(file=file.path, line=inner, column=column, cell=cell, text=text)

    def _why(self, change: ApiChange, call: ast.Call | None, why: str, bound: bool) -> str:
        """Say why a use is only possible; nothing where it is sure."""
        if self.guards:
            return f"guarded by {self.guards[-1]}"
        if why:
            return why
        if self.file.unbound:
            return "no import in this file binds trt"
        if change.kind is ChangeKind.CHANGED and call is not None and fits(call, change.after, bound=bound):
            return "this call fits the new signature too"
        return ""


def path_of(node: ast.expr) -> str:
    """Return ``"args.engine"`` of names and attributes; nothing of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = path_of(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def _key(node: ast.expr) -> str:
    """Return an item's key where it is a literal text."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
