"""What a piece of source uses of its module: global names, with the names that are bound around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from trtmatrix.core.inline.source import Imported, Module, bound_by, imports_of

Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, kw_only=True)
class Use:
    """A global name that is used, or an attribute of one (``ends.RAN``), where it stands.

    ``bound``: the names of the scopes around it, which hide globals. ``at_once``: it is looked up when the
    module is read, not when a function is called.
    """

    node: ast.Name | ast.Attribute
    name: str
    attribute: str
    bound: frozenset[str]
    at_once: bool = False


@lru_cache(maxsize=8192)
def uses_of(module: Module, node: ast.AST) -> tuple[Use, ...]:
    """Return the uses of global names in a piece of a module, which is looked through once."""
    return tuple(_find_uses(node, module.imports))


def _find_uses(node: ast.AST, imports: Mapping[str, Imported]) -> Iterator[Use]:
    late = {id(part) for body in _looked_up_later(node) for part in ast.walk(body)}
    for use in _visit(node, frozenset(), imports):
        yield replace(use, at_once=id(use.node) not in late)


def _looked_up_later(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is not looked up when the module is read: bodies of functions, and annotations."""
    for part in ast.walk(node):
        if isinstance(part, ast.Lambda):
            yield part.body
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from part.body
            yield from (part.returns,) if part.returns else ()
        elif isinstance(part, (ast.arg, ast.AnnAssign)) and part.annotation:
            yield part.annotation


@lru_cache(maxsize=8192)
def attributes_of(node: ast.AST) -> frozenset[str]:
    """Return the names of attributes that a piece reads: a method of such a name may be called."""
    return frozenset(part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute))


def _visit(node: ast.AST, bound: frozenset[str], imports: Mapping[str, Imported]) -> Iterator[Use]:
    if isinstance(node, Scope):
        inner = bound | _locals(node)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        yield from _visit_all(_header(node), bound, imports)
        yield from _visit_all(body, inner, imports)
    elif isinstance(node, Comprehension):
        targets = {
            part.id for generator in node.generators for part in ast.walk(generator.target)
            if isinstance(part, ast.Name)
        }  # fmt: skip
        yield from _visit_all(ast.iter_child_nodes(node), bound | targets, imports)
    elif isinstance(node, ast.ClassDef):
        yield from _visit_all([*node.decorator_list, *node.bases, *node.keywords], bound, imports)
        yield from _visit_class(node, bound, imports)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        name = node.value.id
        if name in bound:
            return
        is_module = name in imports and imports[name].is_ours
        yield Use(node=node if is_module else node.value, name=name, attribute=node.attr, bound=bound)
    elif isinstance(node, ast.Name):
        if node.id not in bound and isinstance(node.ctx, ast.Load):
            yield Use(node=node, name=node.id, attribute="", bound=bound)
    else:
        yield from _visit_all(ast.iter_child_nodes(node), bound, imports)


def _visit_all(
    nodes: Iterator[ast.AST] | list[ast.AST] | list[ast.expr] | list[ast.stmt], bound: frozenset[str],
    imports: Mapping[str, Imported],
) -> Iterator[Use]:  # fmt: skip
    for node in nodes:
        yield from _visit(node, bound, imports)


def _visit_class(node: ast.ClassDef, bound: frozenset[str], imports: Mapping[str, Imported]) -> Iterator[Use]:
    """Visit a class's body: its methods do not see the names that it binds."""
    own = bound | {name for part in node.body for name in bound_by(part)}
    for part in node.body:
        yield from _visit(part, bound if isinstance(part, Scope) else own, imports)


def _header(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.AST]:
    """Return what of a function is looked up outside of it: decorators, defaults and annotations."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one]
    found: list[ast.AST | None] = [*(one.annotation for one in every)]
    found += [*arguments.defaults, *arguments.kw_defaults]
    if not isinstance(node, ast.Lambda):
        found += [*node.decorator_list, node.returns]
    return [one for one in found if one is not None]


def _locals(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the names that a function binds; imports of our own modules are none: they go."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = {one.arg for one in [*every, arguments.vararg, arguments.kwarg] if one}
    if isinstance(node, ast.Lambda):
        return names
    names |= {name for part in node.body for name in bound_by(part)}
    for part in ast.walk(node):
        if isinstance(part, ast.Global):
            names -= set(part.names)
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            names -= {bound for bound, imported in imports_of(part) if imported.is_ours}
    return names
