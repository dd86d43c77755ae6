"""YAML text to plain values, with the line of every key, and without YAML's traps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from trtmatrix.common.errors import ConfigError, shorten

Path = tuple[str | int, ...]

MOST_VALUES = 100_000
"""More than any real file has: aliases inside aliases multiply without end."""

LONGEST_NUMBER = 40
"""Characters of a number; Python itself refuses to print some longer ones."""

_PLAIN_TAGS = {"map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value"}


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed YAML text: its value, the line of each path, the text of each unquoted scalar.

    ``plain`` holds what is no text to YAML although it may have been meant so: numbers, dates,
    yes and no. ``problems`` are the keys that stand twice, which leave the rest readable.
    """

    file: str
    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    plain: dict[Path, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def line_of(self, path: Path) -> int:
        """Return the 1-based line of a path, or of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML 1.1 text; :class:`ConfigError` names the line and the remedy where it cannot be."""
    try:
        root = _compose(text)
        if root is None:
            raise ConfigError(
                [f"{file}:1: the file is empty; take the one that the project ships (git checkout)"]
            )
        reader = _Reader(file)
        value = reader.read(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError([f"{where}: not valid YAML: {_words(error)}"]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        found = f"the character #x{error.character:04x} may not occur: remove it"
        raise ConfigError([f"{file}:{line}: not valid YAML: {found}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}:1: nested too deeply: see README.md for its shape"]) from error
    return Document(
        file=file, value=value, lines=reader.lines, plain=reader.plain, problems=tuple(reader.problems)
    )


def _compose(text: str) -> yaml.Node | None:
    """Return the nodes of a text, by libyaml where it is there: that takes a tenth of the time."""
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError):  # Python's own reader says better what is wrong
            return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _words(error: yaml.MarkedYAMLError) -> str:
    text = ": ".join(part for part in (error.context, error.problem) if part)
    return text + ("; indent with blanks, YAML allows no tabs" if "'\\t'" in text else "")


class _Reader:
    """Builds values from YAML's nodes and notes where each stands; aliases share a value."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.plain: dict[Path, str] = {}
        self.problems: list[str] = []
        self._above: set[int] = set()
        self._count = 0
        self._values = SafeConstructor()

    def read(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401
        """Build the value of a node; :class:`ConfigError` where nothing sensible can be built."""
        line = self.lines.setdefault(path, node.start_mark.line + 1)
        self._count += 1
        if self._count > MOST_VALUES:
            raise self._error(line, path, "aliases (*name) multiply without end: write the values out")
        if id(node) in self._above:
            raise self._error(line, path, "an alias (*name) stands inside what it names: write it out")
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
            raise self._error(line, path, f"the tag {node.tag} is not read: remove it")
        self._above.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._above.discard(id(node))

    def _scalar(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401
        line, text = node.start_mark.line + 1, str(node.value)
        try:
            if node.tag.endswith((":int", ":float")) and len(text) > LONGEST_NUMBER:
                raise ValueError("a number of so many digits")  # noqa: TRY301
            built = self._values.construct_object(node)
        except (ValueError, KeyError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            words = f"{shorten(text)} is no {kind} that can be read ({error}): quote it if it is text"
            raise self._error(line, path, words) from error
        if built is not None and not isinstance(built, str):
            self.plain[path] = text
        return built

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            here: Path = (*path, str(key_node.value))
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(line, path, "a key must be plain text")
            key = str(key_node.value)
            if key_node.tag.endswith(":merge"):
                text = "merge keys are not read: write the keys out (an alias may stand for a whole value)"
                raise self._error(line, here, text)
            if key in first:
                self.problems.append(
                    f"{self.file}:{line}: {dotted(here)}: the key stands twice "
                    f"(first on line {first[key]}); YAML would silently keep the last: remove one"
                )
                continue
            first[key] = line
            self.lines[here] = line
            result[key] = self.read(value_node, here)
        return result

    def _error(self, line: int, path: Path, text: str) -> ConfigError:
        return ConfigError([*self.problems, f"{self.file}:{line}: {dotted(path)}: {text}"])


def dotted(path: Path) -> str:
    """Write a path as ``versions[3].origin.image``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "(top)"
