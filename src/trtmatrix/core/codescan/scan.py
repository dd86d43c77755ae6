"""Scans code for uses of what changes between two versions; the code is read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import basename

from trtmatrix.core.api import ApiChange, ApiUse, Behaviour, Surface
from trtmatrix.core.codescan.dockerfile import dockerfile_as_shell, makefile_as_shell
from trtmatrix.core.codescan.findings import Findings, Place
from trtmatrix.core.codescan.imports import Paths, imports_of, is_bindings
from trtmatrix.core.codescan.names import Names
from trtmatrix.core.codescan.notebook import read_notebook
from trtmatrix.core.codescan.program import Program, SourceFile
from trtmatrix.core.codescan.shell import scan_shell
from trtmatrix.core.codescan.statements import StatementReader

PASSES = 10
"""Times the program is read at most; what flows through more functions than that is not followed."""

RINGS, MOST_FILES = 3, 150
"""So far around the files that import TensorRT others are read, while they are no more than that."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a scan found. ``unread``: file and why it, or a part of it, could not be read."""

    uses: tuple[ApiUse, ...]
    unread: tuple[tuple[str, str], ...] = ()


class FileKind(str, Enum):
    """How a file is read."""

    PYTHON = "Python"
    NOTEBOOK = "notebook"
    SHELL = "shell"
    DOCKERFILE = "Dockerfile"
    MAKEFILE = "Makefile"


_ENDINGS = {
    ".py": FileKind.PYTHON, ".pyw": FileKind.PYTHON, ".pyi": FileKind.PYTHON, ".ipynb": FileKind.NOTEBOOK,
    ".sh": FileKind.SHELL, ".bash": FileKind.SHELL, ".zsh": FileKind.SHELL, ".ksh": FileKind.SHELL,
    ".dockerfile": FileKind.DOCKERFILE, ".mk": FileKind.MAKEFILE, ".mak": FileKind.MAKEFILE,
}  # fmt: skip


def kind_of_file(path: str, beginning: str = "") -> FileKind | None:
    """Return how a file is read, by its name or its first line; None where it is not looked at."""
    name = basename(path)
    lower = name.lower()
    if re.match(r"(dockerfile|containerfile)(\b|_|$)", lower) and not lower.endswith((".py", ".md", ".sh")):
        return FileKind.DOCKERFILE
    if lower in ("makefile", "gnumakefile"):
        return FileKind.MAKEFILE
    kind = _ENDINGS.get(name[name.rfind(".") :].lower() if "." in name else "")
    if kind is None and beginning.startswith("#!"):
        first = beginning.partition("\n")[0]
        if re.search(r"\bpython[\d.]*\b", first):
            return FileKind.PYTHON
        if re.search(r"\b(ba|z|k|da)?sh\b", first):
            return FileKind.SHELL
    return kind


def scan_code(
    files: Mapping[str, str], before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour],
    after: str = "",
) -> Scan:  # fmt: skip
    """Return every use of a changing name in files given by path (``/`` between folders) and text.

    ``after``: the version moved to, by which tests of ``tensorrt.__version__`` are decided; without it they
    only make what stands behind them possible.
    """
    names, findings, unread = Names(before, changes, behaviours, after), Findings(), []
    sources: dict[str, SourceFile] = {}
    for path in sorted(files):
        text = files[path].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        try:
            unread += _scan_one(path, text, names, findings, sources)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append((path, _reason(error)))
    python = Findings()
    unread += _scan_python(sources, names, python)
    findings.found.update(python.found)
    return Scan(uses=findings.listed(), unread=tuple(sorted(unread)))


def _scan_one(
    path: str, text: str, names: Names, findings: Findings, sources: dict[str, SourceFile]
) -> list[tuple[str, str]]:
    """Scan what is no Python at once; parse the rest. Return the parts that could not be read."""
    lines = text.split("\n")
    match kind_of_file(path, text[:200]):
        case FileKind.PYTHON:
            sources[path] = SourceFile(path, _parse(text), lines)
        case FileKind.NOTEBOOK:
            return _scan_notebook(path, text, names, findings, sources)
        case FileKind.SHELL:
            scan_shell(text, _places(path, lines), names, findings)
        case FileKind.DOCKERFILE:
            scan_shell(dockerfile_as_shell(text), _places(path, lines), names, findings)
        case FileKind.MAKEFILE:
            scan_shell(makefile_as_shell(text), _places(path, lines), names, findings)
        case None:
            pass
    return []


def _scan_notebook(
    path: str, text: str, names: Names, findings: Findings, sources: dict[str, SourceFile]
) -> list[tuple[str, str]]:
    notebook = read_notebook(text)
    sources[path] = SourceFile(path, _parse("\n".join(notebook.python)), notebook.python, notebook.cells)
    for piece, cell, start in notebook.shell:
        scan_shell(piece, _places(path, notebook.lines[cell], cell, start), names, findings)
    return [(path, reason) for reason in notebook.unread]


def _places(path: str, lines: list[str], cell: int = 0, start: int = 1) -> Callable[[int], Place]:
    """Return what makes a place of a line of a piece that begins on the line ``start``."""

    def place(line: int) -> Place:
        at = min(max(line + start - 1, 1), len(lines))
        return Place(file=path, line=at, cell=cell, text=lines[at - 1])

    return place


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's escapes in texts: not our concern
        return ast.parse(text)


def _scan_python(sources: dict[str, SourceFile], names: Names, findings: Findings) -> list[tuple[str, str]]:
    """Read all Python files over and over, until nothing new flows between them."""
    sources = _those_that_matter(sources)
    program = Program(sources, names, findings)
    unread: dict[str, str] = {}
    for _ in range(PASSES):
        program.start_pass()
        for path, file in sources.items():
            if path not in unread:
                try:
                    _read_file(program, file)
                except (RecursionError, MemoryError) as error:
                    unread[path] = _reason(error)
        if program.is_settled():
            break
    return list(unread.items())


def _read_file(program: Program, file: SourceFile) -> None:
    """Read a file's module, then the bodies of the functions that it defines."""
    reader = StatementReader(program, file)
    file.scope.flow = {}
    reader.read_block(file.tree.body)
    file.scope.flow = {}
    done: set[str] = set()
    while reader.waiting:
        key = reader.waiting.pop(0)
        if key not in done:
            done.add(key)
            reader.run_function(key)


def _those_that_matter(sources: dict[str, SourceFile]) -> dict[str, SourceFile]:
    """Return the files near one that imports TensorRT, and those that name trtexec.

    Near is what imports it, what it imports, and once more so while that is not too much: objects of
    TensorRT's reach no other files. The nearest are marked as being about TensorRT.
    """
    paths, neighbours = Paths(sources), {path: set[str]() for path in sources}
    direct = set()
    for path, file in sources.items():
        modules = list(imports_of(file.tree))
        if any(is_bindings(name) and not level for name, level in modules):
            direct.add(path)
        for name, level in modules:
            other = paths.resolve(name, level, path)
            if other in neighbours and other != path:
                neighbours[path].add(other)
                neighbours[other].add(path)
    for path, file in sources.items():
        file.neighbours = neighbours[path]
    chosen = set(direct)
    for ring in range(RINGS):
        wider = chosen.union(*(neighbours[path] for path in chosen))
        if len(wider) > MOST_FILES and ring:
            break
        chosen = wider
        if not ring:
            for path in chosen:
                sources[path].about_tensorrt = True
    named = {path for path, file in sources.items() if any("trtexec" in line for line in file.lines)}
    return {path: file for path, file in sources.items() if path in chosen | named}


def _reason(error: BaseException) -> str:
    """Say in one line why a file could not be read."""
    match error:
        case SyntaxError():
            hint = ": Python 2?" if "print" in str(error.msg) or "exec" in str(error.msg) else ""
            return f"it does not parse as Python 3, line {error.lineno}: {error.msg}{hint}"
        case RecursionError() | MemoryError():
            return "its expressions are nested too deeply to be read"
        case _:
            return " ".join(str(error).split())
