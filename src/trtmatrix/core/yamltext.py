"""YAML text to plain values, with the line of every key, and without YAML's traps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from trtmatrix.core.errors import ConfigError

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed YAML text: its value, the line of each path, the text of each unquoted number."""

    file: str
    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    numbers: dict[Path, str] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Return the 1-based line of a path, or of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML 1.1 text; :class:`ConfigError` names line and remedy for syntax and double keys."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError([f"{where}: not valid YAML: {error.problem or error.context}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{file}: not valid YAML: {error}"]) from error
    if root is None:
        raise ConfigError([f"{file}:1: the file is empty; see README.md for its shape"])
    document = Document(file=file, value=None)
    problems: list[str] = []
    value = _value(root, (), document, problems)
    if problems:
        raise ConfigError(problems)
    return Document(file=file, value=value, lines=document.lines, numbers=document.numbers)


def _value(node: yaml.Node, path: Path, document: Document, problems: list[str]) -> Any:  # noqa: ANN401
    """Build the value of a node, noting lines; aliases share their anchor's value."""
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document, problems)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), document, problems) for i, item in enumerate(node.value)]
    value = yaml.SafeLoader("")
    try:
        built = value.construct_object(node)
    finally:
        value.dispose()
    if isinstance(built, (int, float)) and not isinstance(built, bool):
        document.numbers[path] = str(node.value)
    return built


def _mapping(node: yaml.MappingNode, path: Path, document: Document, problems: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    first: dict[str, int] = {}
    for key_node, value_node in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in first:
            problems.append(
                f"{document.file}:{line}: {_dotted((*path, key))}: the key stands twice "
                f"(first on line {first[key]}); YAML would silently keep the last: remove one"
            )
            continue
        first[key] = line
        document.lines[(*path, key)] = line
        result[key] = _value(value_node, (*path, key), document, problems)
    return result


def _dotted(path: Path) -> str:
    """Write a path as ``versions[3].origin.image``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "(top)"


def dotted(path: Path) -> str:
    """Write a path as ``versions[3].origin.image``."""
    return _dotted(path)
