"""Reads the user's code: folders and single files, as text; nothing of it is run."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtmatrix.core.codescan.scan import kind_of_file

LARGEST = 4 << 20
"""Bytes of a file that is still read; notebooks with pictures in them are large."""
LEFT_OUT = {
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "virtualenv", "env", ".env", "node_modules",
    "site-packages", "dist-packages", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".eggs",
    ".ipynb_checkpoints",
}  # fmt: skip
"""Folders of other people's code and of caches; ``venv`` and the like only where they are environments."""
_MAYBE_ENVIRONMENTS = {"venv", "virtualenv", "env", ".env", ".venv"}


@dataclass(kw_only=True)
class CodeFiles:
    """Texts by path, ``/`` between folders; ``unread``: what was left out, and why."""

    texts: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)


def read_code(paths: Sequence[Path]) -> CodeFiles:
    """Read what the scanner can look at below folders, and single files.

    Names are relative to the folder; of several folders each begins with the folder's own name.
    """
    found = CodeFiles()
    for path in paths:
        several = f"{path.name or path.resolve().name}/" if len(paths) > 1 else ""
        if path.is_dir():
            for file, name in _below(path, found, several):
                _read(file, several + name, found)
        elif path.exists():
            _read(path, path.name if len(paths) == 1 else path.as_posix(), found, asked_for=True)
        else:
            found.unread.append((str(path), "there is no such file or folder: look at the name after --code"))
    return found


def _below(root: Path, found: CodeFiles, prefix: str) -> Iterator[tuple[Path, str]]:
    """Return the files of a folder with their names; links to folders are followed once each."""
    seen: set[str] = set()

    def tell(error: OSError) -> None:
        name = os.path.relpath(error.filename or root, root)
        found.unread.append((prefix + name, f"it cannot be read: {error.strerror}"))

    for folder, folders, files in os.walk(root, followlinks=True, onerror=tell):
        inside = Path(folder)
        real = str(inside.resolve())
        name = inside.relative_to(root).as_posix()
        if real in seen:
            folders.clear()
            found.unread.append((prefix + name, "it is a link to a folder that was read already"))
            continue
        seen.add(real)
        for each in sorted(folders):
            if _is_left_out(inside / each):
                folders.remove(each)
                where = (inside / each).relative_to(root).as_posix()
                found.unread.append((prefix + where, "left out: a cache, or other people's packages"))
        folders.sort()
        for file in sorted(files):
            yield inside / file, (inside / file).relative_to(root).as_posix()


def _is_left_out(folder: Path) -> bool:
    if folder.name in _MAYBE_ENVIRONMENTS:
        return (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()
    return folder.name in LEFT_OUT


def _read(file: Path, name: str, found: CodeFiles, *, asked_for: bool = False) -> None:
    """Read a file that is of a kind that is scanned; say why where it cannot be."""
    try:
        if not file.is_file():
            if file.is_symlink():
                found.unread.append((name, "it is a link to nothing, or in a circle"))
            return
        if kind_of_file(name, "" if file.suffix else _beginning(file)) is None:
            if asked_for:
                found.unread.append((name, "it is no Python, notebook, shell script, Makefile or Dockerfile"))
            return
        size = file.stat().st_size
        if size > LARGEST:
            found.unread.append(
                (name, f"it has {size >> 20} MiB, more than the {LARGEST >> 20} that are read")
            )
            return
        data = file.read_bytes()
    except OSError as error:
        found.unread.append((name, f"it cannot be read: {error.strerror or error}"))
        return
    if b"\0" in data:
        found.unread.append((name, "it is binary, or not in UTF-8"))
        return
    try:
        found.texts[name] = _declared(data) if file.suffix == ".py" else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found.unread.append((name, f"it is not in UTF-8: line {line}"))


def _declared(data: bytes) -> str:
    """Return Python code's text, in the encoding that it declares (PEP 263), else UTF-8."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:  # it declares what there is not, or is no UTF-8: told of below
        encoding = "utf-8-sig"
    return data.decode(encoding)


def _beginning(file: Path) -> str:
    """Return the first bytes of a file without an ending, which may name an interpreter."""
    with file.open("rb") as opened:
        return opened.read(200).decode("utf-8", errors="replace")
