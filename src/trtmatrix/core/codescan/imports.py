"""Which file or library an import names."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from posixpath import dirname, normpath

from trtmatrix.core.codescan.values import NOTHING, Foreign, Module, OwnModule, Value, of

BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?$")
_ABOUT_TENSORRT = re.compile(r"(polygraphy|torch_tensorrt|torch2trt|tensorrt_llm|trtorch|common|common_runtime)$")
"""Libraries that hand out TensorRT's own objects, and the samples' helper: what they give is not known."""


def is_bindings(dotted: str) -> bool:
    """Say whether a module's name is that of TensorRT's bindings: ``tensorrt``, ``tensorrt_bindings`` …"""
    return bool(BINDINGS.match(dotted.partition(".")[0]))


def names_bindings(requirement: str) -> bool:
    """Say whether a text given to an importing function names the bindings: ``"tensorrt>=8.5"``."""
    return bool(re.match(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~]|$)", requirement))


class Paths:
    """The scanned files, and which of them an import names."""

    def __init__(self, files: Collection[str]) -> None:
        """Note the files and the folders that they lie in."""
        self.files, self.folders = frozenset(files), set[str]()
        for file in files:
            folder = dirname(file)
            while folder and folder not in self.folders:
                self.folders.add(folder)
                folder = dirname(folder)
        self._known: dict[tuple[str, int, str], str | None] = {}

    def resolve(self, dotted: str, level: int, importer: str) -> str | None:
        """Return the scanned file, or the folder, that an import names; None where it is none of them.

        Relative ones by the folder; absolute ones from the folder above the importer's package, from the
        importer's own folder where that is no package, and from the folders above, up to the scan's.
        """
        key = dotted, level, dirname(importer)
        if key not in self._known:
            self._known[key] = self._resolve(*key)
        return self._known[key]

    def _resolve(self, dotted: str, level: int, folder: str) -> str | None:
        tail = dotted.replace(".", "/")
        if level:
            for _ in range(level - 1):
                folder = dirname(folder)
            return self._at(_joined(folder, tail))
        for base in self._roots(folder):
            for inner in ("", "src"):
                found = self._at(_joined(_joined(base, inner), tail))
                if found is not None:
                    return found
        return None

    def imported(self, dotted: str, level: int, importer: str) -> Value:
        """Return what an import's module is: the bindings, a scanned file, another library, or not known."""
        if not level and is_bindings(dotted):
            return of(Module())
        own = self.resolve(dotted, level, importer)
        if own is not None:
            return of(OwnModule(own))
        if level or _ABOUT_TENSORRT.match(dotted.partition(".")[0]):
            return NOTHING
        return of(Foreign(dotted))

    def _roots(self, base: str) -> Iterator[str]:
        while base and f"{base}/__init__.py" in self.files:
            base = dirname(base)
        yield base
        while base:
            base = dirname(base)
            yield base

    def _at(self, path: str) -> str | None:
        for name in (f"{path}.py", f"{path}/__init__.py", f"{path}.ipynb"):
            if name in self.files:
                return name
        return path if path in self.folders else None


def imports_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return the modules that a file imports, wherever in it: dotted name and level; a package's parts too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            yield from ((f"{module}.{alias.name}".strip("."), node.level) for alias in node.names)
        elif isinstance(node, ast.Call):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and names_bindings(first.value):
                yield "tensorrt", 0


def _joined(base: str, tail: str) -> str:
    return normpath(f"{base}/{tail}") if base and tail else base or tail
