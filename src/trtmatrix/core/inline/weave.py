"""Writes the pieces that are needed as one text: names without their modules, imports gathered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from trtmatrix.core.inline.reach import Reached, Symbol, methods, pieces_of
from trtmatrix.core.inline.settings import HEAD_NAMES
from trtmatrix.core.inline.source import InlineError, Module, Piece, end_of, imports_of

ROLE = re.compile(r":(?:class|func|meth|data|attr|mod):`[~.]?(?:[\w.]*\.)?(\w+)`")
"""How a docstring names another part of the documentation, which a single file does not have."""

NOTE = re.compile(r" *# (?:noqa|type: ignore|fmt: skip)\b[^#\n]*(#)?")
"""Remarks for the project's own checkers."""

Edit = tuple[int, int, int, int, str]
"""From line and column (in bytes) to line and column, and what stands there instead."""


def name_symbols(reached: Reached, kept: Sequence[str]) -> dict[Symbol, str]:
    """Return what each symbol is called: its own name, with its module's in front where that is taken.

    ``kept``: modules whose names stay in any case. :class:`InlineError` where even that does not help.
    """
    taken: dict[str, str] = {name: "an import" for name, _ in reached.outside}
    taken |= dict.fromkeys(reached.plain, "built in") | dict.fromkeys(HEAD_NAMES, "the script's head")
    symbols = sorted(reached.symbols, key=lambda symbol: symbol[0] not in kept)
    names: dict[Symbol, str] = {}
    for symbol in symbols:
        module, name = symbol
        wanted = name
        if wanted in taken and module not in kept:
            short = module.rpartition(".")[2]
            wanted = f"{short.upper() if name.isupper() else short}_{name.lstrip('_')}"
        if wanted in taken:
            raise InlineError(f"{module}: {name} clashes with {taken[wanted]}: rename it")
        taken[wanted] = f"{module}'s"
        names[symbol] = wanted
    return names


def write_imports(outside: Iterable[tuple[str, str]]) -> str:
    """Return the imports of all pieces, NumPy's last; ``from`` imports of a module are one."""
    plain, named = set(), dict[str, set[str]]()
    bound: dict[str, str] = {}
    for name, line in outside:
        if bound.setdefault(name, line) != line:
            raise InlineError(f"{name} is imported as two different things: {bound[name]}; {line}")
        if line.startswith("import "):
            plain.add(line)
        else:
            module, _, what = line.removeprefix("from ").partition(" import ")
            named.setdefault(module, set()).add(what)
    lines = sorted(plain) + [
        f"from {module} import {', '.join(sorted(named[module]))}" for module in sorted(named)
    ]
    own = [line for line in lines if not line.startswith("import numpy")]
    return "\n".join([*own, "", *(line for line in lines if line.startswith("import numpy"))]).strip()


def write_module(reached: Reached, name: str, names: Mapping[Symbol, str]) -> str:
    """Return a module's pieces with every name as it is called now; constants stand close together."""
    module = reached.modules[name]
    edits = _rewritten(reached, module, names)
    blocks: list[str] = []
    before: Piece | None = None
    for piece in pieces_of(reached, name):
        gone = _dead_lines(reached, module, piece)
        text = tidy(_cut(module, piece, [*edits, *_definitions(module, piece, names)], gone))
        blocks.append(_gap(before, piece) + text)
        before = piece
    return "".join(blocks).strip("\n")


def _gap(before: Piece | None, piece: Piece) -> str:
    """Return the line ends between two pieces: constants stand as close as they did."""
    constants = (ast.Assign, ast.AnnAssign)
    if before is None or not (isinstance(before.node, constants) and isinstance(piece.node, constants)):
        return "\n\n\n"
    return "\n" if piece.first == before.last + 1 else "\n\n"


def tidy(text: str) -> str:
    """Return source without what only the project's documentation and checkers read."""
    text = NOTE.sub(lambda found: "  #" if found[1] else "", ROLE.sub(r"\1", text))
    return re.sub(r":\n\n(?= )", ":\n", text)


def _rewritten(reached: Reached, module: Module, names: Mapping[Symbol, str]) -> list[Edit]:
    edits: list[Edit] = []
    for use, node, symbol in reached.uses.get(module.name, ()):
        new = names[symbol]
        if isinstance(node, ast.Name) and node.id == new:
            continue
        if new in use.bound:
            raise InlineError(f"{module.where(node)}: {new} is hidden there by a local name: rename one")
        edits.append((node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, new))
    return edits


def _definitions(module: Module, piece: Piece, names: Mapping[Symbol, str]) -> list[Edit]:
    """Return the edits that rename what a piece binds."""
    renamed = {name: names[module.name, name] for name in piece.names if names[module.name, name] != name}
    edits: list[Edit] = []
    for old, new in renamed.items():
        node = piece.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            line = module.lines[node.lineno - 1]
            at = line.index(old, line.index("def " if not isinstance(node, ast.ClassDef) else "class "))
            edits.append((node.lineno, at, node.lineno, at + len(old), new))
            continue
        edits += [
            (part.lineno, part.col_offset, part.lineno, part.end_col_offset or 0, new)
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and part.id == old and isinstance(part.ctx, ast.Store)
        ]
    return edits


def _dead_lines(reached: Reached, module: Module, piece: Piece) -> set[int]:
    """Return the lines of methods that nobody calls, and of imports of modules that are inlined."""
    gone: set[int] = set()
    if isinstance(piece.node, ast.ClassDef):
        for method in methods(piece.node):
            if not reached.is_live(method):
                first = min([method.lineno, *(one.lineno for one in method.decorator_list)])
                while module.lines[first - 2].strip().startswith("#"):
                    first -= 1
                gone |= set(range(first, end_of(method) + 1))
    for node in ast.walk(piece.node):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            ours = [imported.is_ours for _, imported in imports_of(node)]
            if any(ours) and not all(ours):
                raise InlineError(f"{module.where(node)}: an import of ours and of others at once")
            gone |= set(range(node.lineno, end_of(node) + 1)) if any(ours) else set()
    return gone


def _cut(module: Module, piece: Piece, edits: Sequence[Edit], gone: set[int]) -> str:
    lines = {number: module.lines[number - 1].encode() for number in range(piece.first, piece.last + 1)}
    for line, column, last, end, new in sorted(set(edits), reverse=True):
        if line not in lines:
            continue
        if line != last:
            raise InlineError(f"{module.name}:{line}: a name over two lines")
        lines[line] = lines[line][:column] + new.encode() + lines[line][end:]
    kept = [text.decode() for number, text in lines.items() if number not in gone]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).rstrip("\n")
