"""A module's source as pieces: what each top-level statement binds, where it stands, and what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

OURS = ("trtprobe", "trtmatrix.standalone")
"""Packages whose modules are inlined; all others are imported."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class InlineError(ValueError):
    """A source cannot be inlined; the message names module and line."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A top-level statement with the comment above it and the text below it: lines ``first`` to ``last``."""

    node: ast.stmt
    names: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import binds: a module, or a name of one. ``name``: empty for the module itself."""

    module: str
    name: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is inlined."""
        return any(self.module == package or self.module.startswith(f"{package}.") for package in OURS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Module:
    """A module's pieces in order, and what it imports, by the name that it gives it."""

    name: str
    lines: Sequence[str]
    tree: ast.Module
    pieces: Sequence[Piece]
    imports: Mapping[str, Imported]
    owner: Mapping[str, tuple[Piece, ...]] = field(repr=False)

    def where(self, node: ast.AST) -> str:
        """Return the place of a node in words."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"


@lru_cache(maxsize=256)
def read_module(name: str, source: str) -> Module:
    """Split a module; :class:`InlineError` where it is no Python or imports what cannot be inlined."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise InlineError(f"{name}: not valid Python: {error}") from error
    lines = source.splitlines()
    pieces = tuple(_pieces(tree, lines))
    owner: dict[str, tuple[Piece, ...]] = {}
    for piece in pieces:
        for bound in piece.names:
            owner[bound] = (*owner.get(bound, ()), piece)
    module = Module(
        name=name, lines=lines, tree=tree, pieces=pieces, imports=_imports(name, tree), owner=owner
    )
    if both := sorted(set(owner) & set(module.imports)):
        raise InlineError(f"{name}: {', '.join(both)}: imported and bound at the top as well")
    return module


def _pieces(tree: ast.Module, lines: Sequence[str]) -> Iterator[Piece]:
    for index, node in enumerate(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_text(node) or _is_main(node):
            continue
        first = node.lineno
        if isinstance(node, (*_DEFS, ast.ClassDef)) and node.decorator_list:
            first = node.decorator_list[0].lineno
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        following = tree.body[index + 1] if index + 1 < len(tree.body) else None
        last = following if isinstance(node, (ast.Assign, ast.AnnAssign)) and is_text(following) else node
        yield Piece(node=node, names=tuple(bound_by(node)), first=first, last=end_of(last))


_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


def end_of(node: ast.AST | None) -> int:
    """Return the last line of a node."""
    return int(getattr(node, "end_lineno", None) or 0)


def is_text(node: ast.stmt | None) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(
        node.value.value, str
    )  # fmt: skip


def _is_main(node: ast.stmt) -> bool:
    """Whether it is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds in its own scope, without those of functions inside."""
    if isinstance(node, (*_DEFS, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from bound_by(child)


def imports_of(node: ast.AST) -> Iterator[tuple[str, Imported]]:
    """Yield what an import statement binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            yield bound, Imported(module=alias.name if alias.asname else bound)
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
        for alias in node.names:
            yield alias.asname or alias.name, Imported(module=node.module or "", name=alias.name)


def _imports(name: str, tree: ast.Module) -> dict[str, Imported]:
    """Return the imports at the top, and those of our own modules wherever they stand."""
    found: dict[str, Imported] = {}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.ImportFrom) and (
            node.level or any(alias.name == "*" for alias in node.names)
        ):
            raise InlineError(f"{name}:{node.lineno}: relative and star imports cannot be inlined")
        for bound, imported in imports_of(node):
            if node not in tree.body and not imported.is_ours:
                continue
            if found.setdefault(bound, imported) != imported:
                raise InlineError(f"{name}:{node.lineno}: {bound} is imported as two different things")
    return found
