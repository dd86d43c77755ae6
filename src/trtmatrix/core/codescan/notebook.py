"""Takes notebooks apart: Python cells joined in their order, shell lines and cells apart."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import Any

_SHELL_CELL = re.compile(r"%%(bash|sh|script\s+(bash|sh)|system|!)\b|!!")
_PYTHON_CELL = re.compile(r"%%(time|timeit|capture|prun|python3?|writefile\s+\S+\.py|memit|mprun|debug)\b")
_SHELL_LINE = re.compile(r"^(\s*)(?:[\w, ]+=\s*)?(!|%sx\b|%system\b)(.*)$", re.DOTALL)
_MAGIC_LINE = re.compile(r"^(\s*)(?:[\w, ]+=\s*)?(%(?!%)\w+.*|\?.*|[\w.]+\?+)$", re.DOTALL)
_RUNNING_MAGIC = re.compile(r"^\s*%(?:time|timeit|prun|memit)\b(?:\s+-\w+(?:\s+\d+)?)*\s*(.*)$", re.DOTALL)


@dataclass
class Notebook:
    """A notebook's code. ``cells``: of each Python line the cell (from 1, all cells counted) and its line there.

    ``shell``: pieces of shell text with the cell and the line that they begin on. ``unread``: cells that do
    not parse, and why.
    """

    python: list[str] = field(default_factory=list)
    cells: list[tuple[int, int]] = field(default_factory=list)
    shell: list[tuple[str, int, int]] = field(default_factory=list)
    lines: dict[int, list[str]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def read_notebook(text: str) -> Notebook:
    """Read a notebook of any format up to 4.

    Raises:
        ValueError: It is no JSON, or no notebook.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    cells = _cells(document)
    if cells is None:
        raise ValueError("it is JSON but no notebook: it has no list of cells")
    found = Notebook()
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            _take(found, number, _source(cell))
    return found


def _cells(document: Any) -> list[Any] | None:  # noqa: ANN401 - any JSON
    if not isinstance(document, dict):
        return None
    sheets = document.get("worksheets")
    if isinstance(sheets, list) and sheets and isinstance(sheets[0], dict):  # format 3
        document = sheets[0]
    cells = document.get("cells")
    return cells if isinstance(cells, list) else None


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return "".join(str(line) for line in source) if isinstance(source, list) else str(source)


def _take(found: Notebook, number: int, source: str) -> None:
    lines = source.split("\n")
    found.lines[number] = lines
    first = next((place for place, line in enumerate(lines) if line.strip()), 0)
    head = lines[first].strip() if lines else ""
    if head.startswith("%%") or head.startswith("!!"):
        if _SHELL_CELL.match(head):
            found.shell.append(("\n".join(lines[first + 1 :]), number, first + 2))
            return
        if not _PYTHON_CELL.match(head):
            return
        lines = [*lines[:first], "", *lines[first + 1 :]]
    python = _without_magics(found, number, lines)
    try:
        ast.parse("\n".join(python))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        found.unread.append(f"cell {number}{f', line {line}' if line else ''}: {getattr(error, 'msg', error)}")
        return
    found.python += python
    found.cells += [(number, line) for line in range(1, len(python) + 1)]


def _without_magics(found: Notebook, number: int, lines: list[str]) -> list[str]:
    """Return the lines with ``pass`` for magics; shell lines, with what continues them, are kept apart."""
    given: list[str] = []
    place = 0
    while place < len(lines):
        shell, magic = _SHELL_LINE.match(lines[place]), _MAGIC_LINE.match(lines[place])
        running = _RUNNING_MAGIC.match(lines[place])
        if shell:
            end = place
            while lines[end].rstrip().endswith("\\") and end + 1 < len(lines):
                end += 1
            found.shell.append(("\n".join([shell[3], *lines[place + 1 : end + 1]]), number, place + 1))
            given += [f"{shell[1]}pass", *[""] * (end - place)]
            place = end
        elif running:
            given.append(running[1])
        elif magic:
            given.append(f"{magic[1]}pass")
        else:
            given.append(lines[place])
        place += 1
    return given
