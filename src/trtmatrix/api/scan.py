"""Scans code for uses of what changes between two versions of TensorRT; the code is read, never run."""

from __future__ import annotations

import io
import json
import os
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trtmatrix.api.compare import Bracket
from trtmatrix.api.names import Names, Page, list_uses
from trtmatrix.api.python_scan import parse, reason, scan_python
from trtmatrix.api.text_scan import scan_cpp, scan_pins, scan_script
from trtmatrix.api.types import ApiChange, ApiUse, Behaviour

LARGEST = 4 << 20
"""Bytes of a file that is still read; notebooks with pictures in them are large."""
_MATTERS = (b"tensorrt", b"trt", b"nvinfer", b"nvcr.io")


class Scan(NamedTuple):
    """What a scan found. ``unread``: file and why it, or a part of it, could not be read."""

    uses: tuple[ApiUse, ...]
    unread: tuple[tuple[str, str], ...]


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


def kind_of_file(path: str, beginning: str = "") -> str:
    """Return how a file is read, by its name or its first line; nothing where it is not looked at."""
    for kind, pattern in read_hints()["kinds"].items():
        if re.search(pattern, path.lower()):
            return str(kind)
    named = re.match(r"#!.*\b(python|sh|bash|zsh|dash)", beginning)
    return "" if named is None else "Python" if named[1] == "python" else "script"


def scan_code(
    files: Mapping[str, str], bracket: Bracket, changes: Sequence[ApiChange],
    behaviours: Sequence[Behaviour] = (),
) -> Scan:  # fmt: skip
    """Return every use of a changing name in files given by path (``/`` between folders) and text."""
    names = Names(bracket, changes, behaviours, read_hints())
    python, found, unread, cpp = list[Page](), list[ApiUse](), list[tuple[str, str]](), 0
    for path in sorted(files):
        text = files[path].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        page = Page(file=path, code=text, lines=text.split("\n"), found=found)
        kind = kind_of_file(path, text[:200])
        if kind == "notebook":
            try:
                page, text = _read_notebook(page, unread)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                unread.append((path, f"it is no notebook: {' '.join(str(error).split())[:80]}"))
                continue
        if kind in ("Python", "notebook"):
            python.append(page)
        if kind in ("script", "text", "notebook"):
            scan_script(text, page, names, "an instruction in a text" * (kind == "text"))
        if kind == "C++":
            cpp += scan_cpp(page, names)
        else:
            scan_pins(text, page, names)
    unread += scan_python(names, python)
    if cpp:
        by_name = "searched by name only: what a name is used on is not known"
        unread.append((f"{cpp} C++ file{'s' * (cpp != 1)}", by_name))
    return Scan(uses=list_uses(found), unread=tuple(sorted(unread)))


def _read_notebook(page: Page, unread: list[tuple[str, str]]) -> tuple[Page, str]:
    """Return a notebook's Python with the cell and line of each line, and what it gives to a shell."""
    python, shell, shown, places = list[str](), list[str](), list[str](), list[tuple[int, int]]()
    for number, cell in enumerate(json.loads(page.code)["cells"], 1):
        source = cell.get("source", "") if cell.get("cell_type") == "code" else ""
        lines = ("".join(map(str, source)) if isinstance(source, list) else str(source)).split("\n")
        code, other = _split_cell(lines)
        try:
            parse("\n".join(code))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append((page.file, f"cell {number}: {reason(error)}"))
            code = [""] * len(code)
        python += code
        shell += other
        shown += lines
        places += [(number, inner) for inner in range(1, len(code) + 1)]
    return replace(page, code="\n".join(python), lines=shown, cells=places), "\n".join(shell)


def _split_cell(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a cell's lines of Python, and those of a shell; each has blanks for the lines of the other."""
    first = re.match(r"\s*%%(?!time|capture)(\w+|!)", lines[0])
    is_shell = first is None or first[1] in ("bash", "sh", "script", "!")
    code, shell, carried = list[str](), list[str](), False
    for line in lines:
        timed = re.sub(r"^\s*%%?(time|timeit|capture)\b\s*", "", line)
        blank = bool(first) or carried
        magic = blank or bool(re.match(r"\s*([!%]|[\w, ]+=\s*[!%])|[\w.]*\w\?+$", timed))
        carried = magic and line.rstrip().endswith("\\")
        code.append("" if blank else re.sub(r"\S.*", "pass", line) if magic else timed)
        shell.append(line if magic and is_shell else "")
    return code, shell


def read_code(paths: Sequence[Path]) -> CodeFiles:
    """Read what the scanner can look at below folders, and single files.

    Names are relative to the folder; of several folders each begins with the folder's own name.
    """
    found = CodeFiles()
    for path in paths:
        several = f"{path.name or path.resolve().name}/" if len(paths) > 1 else ""
        if path.is_dir():
            for file in _walk(path, found, several):
                _read(file, several + file.relative_to(path).as_posix(), found)
        elif not path.exists():
            found.unread.append((str(path), "there is no such file or folder: look at the name after --code"))
        elif not _read(path, path.as_posix() if several else path.name, found):
            found.unread.append((path.name, "it is of no kind that is scanned, such as Python, shell or C++"))
    return found


def _walk(root: Path, found: CodeFiles, prefix: str) -> Iterator[Path]:
    """Yield the files of a folder without caches and other people's; no link to a folder is followed."""

    def tell(error: OSError) -> None:
        where = os.path.relpath(error.filename or root, root)
        found.unread.append((prefix + where, f"it cannot be read: {error.strerror}"))

    for folder, folders, files in os.walk(root, onerror=tell):
        inside = Path(folder)
        for each in sorted(folders):
            environment = (inside / each / "pyvenv.cfg").exists() or (inside / each / "conda-meta").exists()
            if each in read_hints()["left_out"] or environment:
                folders.remove(each)
                where = prefix + (inside / each).relative_to(root).as_posix()
                found.unread.append((where, "left out: a cache, or other people's packages"))
        folders.sort()
        yield from (inside / file for file in sorted(files))


def _read(file: Path, name: str, found: CodeFiles) -> bool:
    """Read a file if it can matter, or tell why not; False where it is of no kind that is scanned."""
    try:
        if not file.is_file():
            return True
        with file.open("rb") as opened:
            if not kind_of_file(name) and (
                file.suffix or not kind_of_file(name, str(opened.read(99), "latin1"))
            ):
                return False
            opened.seek(0)
            data = opened.read(LARGEST + 1)
        found.seen += 1
        if len(data) > LARGEST:
            found.unread.append((name, f"it has more than the {LARGEST >> 20} MiB that are read"))
        elif any(word in data.lower() for word in _MATTERS):
            declared = file.suffix == ".py" and tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            found.texts[name] = data.decode(declared or "utf-8-sig")
    except OSError as error:
        found.unread.append((name, f"it cannot be read: {error.strerror or error}"))
    except (UnicodeDecodeError, SyntaxError) as error:
        line = data.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 1
        found.unread.append((name, f"it is not in UTF-8: line {line}"))
    return True
