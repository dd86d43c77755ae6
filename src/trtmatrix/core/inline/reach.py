"""What a set of roots reaches: pieces by name, methods by the names of attributes that are read."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trtmatrix.core.inline.source import Imported, InlineError, Module, Piece
from trtmatrix.core.inline.uses import Use, attributes_of, uses_of

Symbol = tuple[str, str]
"""A module's name and a name that it binds."""

MODULE_NAMES = frozenset({*vars(builtins), "__file__", "__name__", "__doc__"})


@dataclass(kw_only=True)
class Reached:
    """What is needed: pieces by symbol, imports from outside, and the uses that are to be rewritten.

    ``needs``: by module those that must stand before it.
    """

    modules: Mapping[str, Module]
    swaps: Mapping[Symbol, Symbol]
    symbols: dict[Symbol, None] = field(default_factory=dict)
    outside: dict[tuple[str, str], set[Symbol]] = field(default_factory=dict)
    uses: dict[str, list[tuple[Use, ast.expr, Symbol]]] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    statements: list[Piece] = field(default_factory=list)
    needs: dict[str, dict[str, None]] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def add(self, symbol: Symbol) -> None:
        """Take a symbol in with all that it uses; :class:`InlineError` where something is not known."""
        symbol = self.swaps.get(symbol, symbol)
        if symbol in self.symbols:
            return
        module = self.modules[symbol[0]]
        if symbol[1] not in module.owner:
            raise InlineError(f"{symbol[0]} has no {symbol[1]}")
        self.symbols[symbol] = None
        for piece in module.owner[symbol[1]]:
            for other in piece.names:
                self.add((symbol[0], other))
            if not isinstance(piece.node, ast.ClassDef):
                self._look(module, piece.node)
                continue
            for part in class_frame(piece.node):
                self._look(module, part)

    def add_statement(self, module: Module, piece: Piece) -> None:
        """Take in a statement at the top that binds nothing and is there for what it does."""
        self._look(module, piece.node)
        self.statements.append(piece)

    def settle(self) -> None:
        """Take in the methods whose names are read anywhere, until there are no more."""
        before = -1
        while before != len(self._seen):
            before = len(self._seen)
            for module_name, name in list(self.symbols):
                module = self.modules[module_name]
                for piece in module.owner[name]:
                    if isinstance(piece.node, ast.ClassDef):
                        for method in methods(piece.node):
                            if self.is_live(method):
                                self._look(module, method)

    def is_live(self, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a method may be called."""
        special = method.name.startswith("__") and method.name.endswith("__")
        return special or method.name in self.attributes

    def _look(self, module: Module, node: ast.AST) -> None:
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        self.attributes |= attributes_of(node)
        for use in uses_of(module, node):
            self._resolve(module, use)

    def _resolve(self, module: Module, use: Use) -> None:
        if use.name in module.owner:
            symbol = (module.name, use.name)
            self._note(module, use, _name_of(use), symbol)
        elif (imported := module.imports.get(use.name)) is not None:
            self._resolve_import(module, use, imported)
        elif use.name in MODULE_NAMES:
            self.plain.add(use.name)
        else:
            raise InlineError(f"{module.where(use.node)}: {use.name} is bound nowhere")

    def _resolve_import(self, module: Module, use: Use, imported: Imported) -> None:
        if not imported.is_ours:
            self.outside.setdefault((use.name, _import_line(use.name, imported)), set()).add(
                (module.name, use.name)
            )
            return
        inner = f"{imported.module}.{imported.name}" if imported.name else imported.module
        if inner in self.modules:
            if not isinstance(use.node, ast.Attribute):
                raise InlineError(
                    f"{module.where(use.node)}: {use.name} is a module: only its names can be used"
                )
            self._note(module, use, use.node, (inner, use.attribute))
        elif imported.module in self.modules:
            self._note(module, use, _name_of(use), (imported.module, imported.name))
        else:
            raise InlineError(f"{module.where(use.node)}: there is no source of {imported.module}")

    def _note(self, module: Module, use: Use, node: ast.expr, symbol: Symbol) -> None:
        symbol = self._origin(self.swaps.get(symbol, symbol))
        self.uses.setdefault(module.name, []).append((use, node, symbol))
        if use.at_once and symbol[0] != module.name:
            self.needs.setdefault(module.name, {})[symbol[0]] = None
        self.add(symbol)

    def _origin(self, symbol: Symbol) -> Symbol:
        """Return where a name is bound, through modules that only pass it on."""
        module = self.modules[symbol[0]]
        passed = module.imports.get(symbol[1])
        if symbol[1] in module.owner or passed is None or passed.module not in self.modules:
            return symbol
        return self._origin((passed.module, passed.name))

    def order(self, first: Sequence[str], last: str) -> list[str]:
        """Return the modules in reading order: the ``first``, what they use, ``last`` at the end.

        What a module needs while it is read (base classes, defaults, decorators) stands before it.
        """
        found: dict[str, None] = {}
        needed = {name for name, _ in self.symbols}
        near = [used for module in first for used in self._near(module)]
        for name in [*first, *near, *self._near(last)[::-1]]:
            if name in needed:
                self._put(name, found, ())
        return list(found)

    def _put(self, name: str, found: dict[str, None], above: tuple[str, ...]) -> None:
        if name in above:
            raise InlineError(f"{name} and {above[-1]} need each other while they are read")
        for needed in self.needs.get(name, {}):
            if needed not in found and needed != name:
                self._put(needed, found, (*above, name))
        found[name] = None

    def _near(self, name: str) -> list[str]:
        """Return a module and all that it uses, the nearest first."""
        found = {name: None}
        for module in (queue := [name]):
            for _, _, (used, _) in self.uses.get(module, ()):
                if used not in found:
                    found[used] = None
                    queue.append(used)
        return queue


def _name_of(use: Use) -> ast.expr:
    """Return the node of the name alone."""
    return use.node.value if isinstance(use.node, ast.Attribute) else use.node


def _import_line(bound: str, imported: Imported) -> str:
    if not imported.name:
        return f"import {imported.module}" + (f" as {bound}" if bound != imported.module else "")
    return f"from {imported.module} import {imported.name}" + (
        f" as {bound}" if bound != imported.name else ""
    )


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a class."""
    for part in node.body:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield part


def class_frame(node: ast.ClassDef) -> list[ast.AST]:
    """Return what of a class is always needed: its bases, decorators and all but its functions."""
    rest = [part for part in node.body if not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords), *rest]


def pieces_of(reached: Reached, name: str) -> list[Piece]:
    """Return a module's pieces that are needed, in order."""
    module = reached.modules[name]
    return [
        piece for piece in module.pieces
        if piece in reached.statements or any((name, own) in reached.symbols for own in piece.names)
    ]  # fmt: skip
