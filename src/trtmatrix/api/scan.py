"""Scans code for uses of what changes between two versions of TensorRT; the code is read, never run."""

from __future__ import annotations

import io
import json
import os
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trtmatrix.api.python_scan import parse, reason, scan_python
from trtmatrix.api.scan_names import Names, Page, list_uses
from trtmatrix.api.text_scan import scan_cpp, scan_pins, scan_script
from trtmatrix.api.types import ApiChange, ApiUse, Behaviour, Surface

LARGEST = 4 << 20
"""Bytes of a file that is still read; notebooks with pictures in them are large."""
LEFT_OUT = {
    ".git", ".hg", ".svn", ".tox", ".nox", "node_modules", "site-packages", "dist-packages", "__pycache__",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".eggs", ".ipynb_checkpoints",
}  # fmt: skip
"""Folders of other people's code and of caches; environments of Python are told by their own files."""
_MATTERS = (b"tensorrt", b"trt", b"nvinfer", b"nvcr.io")


class FileKind(str, Enum):
    """How a file is read."""

    PYTHON = "Python"
    NOTEBOOK = "notebook"
    SCRIPT = "script"
    TEXT = "text"
    PINS = "list of packages"
    CPP = "C++"


_KINDS = {
    FileKind.PYTHON: r"\.pyw?i?$",
    FileKind.NOTEBOOK: r"\.ipynb$",
    FileKind.TEXT: r"\.(?:md|rst|markdown)$",
    FileKind.PINS: r"\.(?:toml|cfg|lock)$|(?<![^/])(?:(?:requirements?|constraints?)[^/]*\.(?:txt|in)"
    r"|requirements/[^/]*\.txt|pipfile|metadata|requires\.txt)$",
    FileKind.CPP: r"\.(?:cpp|cc|cxx|cu|h|hpp|cuh|inl)$",
    FileKind.SCRIPT: r"\.(?:sh|bash|zsh|ksh|mk|mak|ya?ml|bat|ps1|dockerfile)$"
    r"|(?<![^/])(?:(?:gnu)?makefile|(?:dockerfile|containerfile)[^/]*(?<!\.py))$",
}
_KIND = re.compile("|".join(f"(?P<{kind.name}>{pattern})" for kind, pattern in _KINDS.items()), re.IGNORECASE)


def kind_of_file(path: str, beginning: str = "") -> FileKind | None:
    """Return how a file is read, by its name or its first line; None where it is not looked at."""
    if (found := _KIND.search(path)) is not None:
        return FileKind[found.lastgroup or ""]
    named = re.match(r"#!.*\b(python3?|sh|bash|zsh|dash)\b", beginning)
    return None if named is None else FileKind.PYTHON if named[1].startswith("python") else FileKind.SCRIPT


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a scan found. ``unread``: file and why it, or a part of it, could not be read."""

    uses: tuple[ApiUse, ...]
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(kw_only=True)
class CodeFiles:
    """Texts of files that can matter, by path with ``/`` between folders.

    ``unread``: what was left out, and why; ``seen``: how many files were looked at.
    """

    texts: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
    seen: int = 0


@cache
def read_hints() -> Mapping[str, Any]:
    """Return what the scan knows besides the surfaces, by topic."""
    hints: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("scan.yaml").read_bytes())
    return hints


def scan_code(
    files: Mapping[str, str], before: Surface, changes: Sequence[ApiChange], behaviours: Sequence[Behaviour],
    after: str = "",
) -> Scan:  # fmt: skip
    """Return every use of a changing name in files given by path (``/`` between folders) and text.

    ``after``: the version moved to, by which tests of ``tensorrt.__version__`` are decided; without it they
    only make what stands behind them possible.
    """
    names = Names(before, changes, behaviours, after, read_hints())
    python, found, unread = list[Page](), list[ApiUse](), list[tuple[str, str]]()
    cpp = 0
    for path in sorted(files):
        text = files[path].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        kind, page = (
            kind_of_file(path, text[:200]),
            Page(file=path, code=text, lines=text.split("\n"), found=found),
        )
        if kind is FileKind.NOTEBOOK:
            try:
                page, text = _read_notebook(page, text, unread)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                unread.append((path, f"it is no notebook: {' '.join(str(error).split())[:80]}"))
                continue
        if kind in (FileKind.PYTHON, FileKind.NOTEBOOK):
            python.append(page)
        elif kind is FileKind.CPP:
            cpp += scan_cpp(text, page, names)
        if kind in (FileKind.SCRIPT, FileKind.TEXT, FileKind.NOTEBOOK):
            scan_script(text, page, names, "an instruction in a text" * (kind is FileKind.TEXT))
        if kind is not FileKind.CPP:
            scan_pins(text, page, names)
    unread += scan_python(names, python)
    if cpp:
        by_name = "searched by name only: what a name is used on is not known"
        unread.append((f"{cpp} C++ file{'s' * (cpp != 1)}", by_name))
    return Scan(uses=list_uses(found), unread=tuple(sorted(unread)))


def _read_notebook(page: Page, text: str, unread: list[tuple[str, str]]) -> tuple[Page, str]:
    """Return a notebook's Python with the cell and line of each line, and what it gives to a shell."""
    python, shell, shown, places = list[str](), list[str](), list[str](), list[tuple[int, int]]()
    cells = [cell for cell in json.loads(text)["cells"] if isinstance(cell, dict)]
    for number, cell in enumerate(cells, 1):
        source = cell.get("source", "") if cell.get("cell_type") == "code" else ""
        lines = ("".join(map(str, source)) if isinstance(source, list) else str(source)).split("\n")
        first = re.match(r"\s*%%(?!time|capture)(\w+|!)", lines[0])
        carried, code = False, []
        for line in lines:
            timed = re.sub(r"^\s*%%?(time|timeit|capture)\b\s*", "", line)
            blank = bool(first) or carried
            magic = blank or bool(re.match(r"\s*([!%]|[\w, ]+=\s*[!%])|[\w.]*\w\?+$", timed))
            carried = magic and line.rstrip().endswith("\\")
            code.append("" if blank else re.sub(r"\S.*", "pass", line) if magic else timed)
            shell.append(line if magic and (not first or first[1] in ("bash", "sh", "script", "!")) else "")
        try:
            parse("\n".join(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append((page.file, f"cell {number}: {reason(error)}"))
            code = [""] * len(code)
        python += code
        shown += lines
        places += [(number, inner) for inner in range(1, len(code) + 1)]
    return replace(page, code="\n".join(python), lines=shown, cells=places), "\n".join(shell)


def read_code(paths: Sequence[Path]) -> CodeFiles:
    """Read what the scanner can look at below folders, and single files.

    Names are relative to the folder; of several folders each begins with the folder's own name.
    """
    found = CodeFiles()
    for path in paths:
        several = f"{path.name or path.resolve().name}/" if len(paths) > 1 else ""
        if path.is_dir():
            _read_below(path, found, several)
        elif path.exists():
            _read(path, path.as_posix() if several else path.name, found, asked_for=True)
        else:
            found.unread.append((str(path), "there is no such file or folder: look at the name after --code"))
    return found


def _read_below(root: Path, found: CodeFiles, prefix: str) -> None:
    """Read the files of a folder; links to folders are followed once each."""
    seen: set[str] = set()

    def tell(error: OSError) -> None:
        where = os.path.relpath(error.filename or root, root)
        found.unread.append((prefix + where, f"it cannot be read: {error.strerror}"))

    for folder, folders, files in os.walk(root, followlinks=True, onerror=tell):
        inside, real = Path(folder), os.path.realpath(folder)
        where = prefix + (inside.relative_to(root).as_posix() + "/").removeprefix("./")
        if real in seen:
            folders.clear()
            found.unread.append((where[:-1], "it is a link to a folder that was read already"))
            continue
        seen.add(real)
        for each in sorted(folders):
            environment = (inside / each / "pyvenv.cfg").exists() or (inside / each / "conda-meta").exists()
            if each in LEFT_OUT or environment:
                folders.remove(each)
                found.unread.append((where + each, "left out: a cache, or other people's packages"))
        folders.sort()
        for file in sorted(files):
            _read(inside / file, where + file, found)


def _read(file: Path, name: str, found: CodeFiles, *, asked_for: bool = False) -> None:
    """Read a file that is of a kind that is scanned and that can matter; say why where it cannot be read."""
    try:
        if not file.is_file():
            found.unread += [(name, "it is a link to nothing, or in a circle")] * file.is_symlink()
            return
        if kind_of_file(name) is None and (file.suffix or kind_of_file(name, _beginning(file)) is None):
            no_kind = "it is of no kind that is scanned, such as Python, shell or C++"
            found.unread += [(name, no_kind)] * asked_for
            return
        found.seen += 1
        if (size := file.stat().st_size) > LARGEST:
            why = f"it has {size >> 20} MiB, more than the {LARGEST >> 20} that are read"
            found.unread.append((name, why))
            return
        data = file.read_bytes()
        small = data.lower()
        if not any(word in small for word in _MATTERS):
            return
        declared = file.suffix == ".py" and tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        found.texts[name] = data.decode(declared or "utf-8-sig")
        if b"\0" in data:
            del found.texts[name]
            found.unread.append((name, "it is binary, or not in UTF-8"))
    except OSError as error:
        found.unread.append((name, f"it cannot be read: {error.strerror or error}"))
    except (UnicodeDecodeError, SyntaxError) as error:
        line = data.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 1
        found.unread.append((name, f"it is not in UTF-8: line {line}"))


def _beginning(file: Path) -> str:
    """Return the beginning of a file without an ending, which may name an interpreter."""
    with file.open("rb") as opened:
        return opened.read(200).decode("utf-8", errors="replace")
