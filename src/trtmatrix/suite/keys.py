"""YAML files whose keys are declared as types: every mistake is named with its file, line, key and remedy."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails
from typing_extensions import dataclass_transform
from yaml.constructor import SafeConstructor

from trtmatrix.common.errors import ConfigError, shorten

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def keys(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose fields are the keys of a file, and no others.

    The rules in its annotations hold for what is read (:func:`check_keys`), not for what the program makes.
    """
    made = dataclass(frozen=True, kw_only=True)(kind)
    made.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # read by pydantic
    return made


NotInFile = Annotated[T, SkipJsonSchema()]
"""A field that the program sets, whatever a file says."""
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def check_keys(kind: type[T], document: Document, at: Path = ()) -> tuple[T | None, list[str]]:
    """Return a document's value as ``kind``, or None and every problem; ``at``: where in the file it is."""
    try:
        return _adapter(kind).validate_python(document.value), []
    except ValidationError as error:
        # a list of wrong items is too short besides, as pydantic counts its right items alone
        details = [d for d in error.errors(include_url=False) if d["type"] != "too_short" or not d["input"]]
        return None, [_problem(kind, detail, document, at) for detail in details]


def parse_keys(
    kind: type[T], text: str, file: str,
    cross_check: Callable[[Document], Iterable[tuple[Path, str]]] = lambda _: (),
) -> T:  # fmt: skip
    """Read a YAML file as ``kind``; :class:`ConfigError` lists every mistake with line and remedy.

    ``cross_check`` yields what no single key shows: where it is, and what is wrong.
    """
    document = parse_yaml(text, file)
    value, problems = check_keys(kind, document)
    problems += [problem_at(document, path, words) for path, words in cross_check(document)]
    problems += document.problems
    if value is None or problems:
        raise ConfigError(in_order(problems, file))
    return value


def keys_schema(kind: type[T]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter(kind).json_schema()}


def _problem(kind: Any, detail: ErrorDetails, document: Document, at: Path) -> str:  # noqa: ANN401
    """Return one problem. A rule about several keys says first which one it means: ``min: is above max``."""
    *outer, last = detail["loc"] or ("[key]",)
    inner = [part for part in outer if not str(part).startswith("(")]
    path, value = (*at, *inner, *([last] if last != "[key]" else [])), detail["input"]
    rule = re.match(r"Value error, (\w+): (.*)", detail["msg"], re.DOTALL)
    match detail["type"]:
        case "unexpected_keyword_argument":
            text = f"unknown key{near(str(path[-1]), _known_keys(kind)) or ': remove it'}"
        case "value_error" if rule:
            path, text = (*path, rule[1]), rule[2]
        case "missing":
            text = f"is missing: write {path[-1]} here"
        case "string_type" if written := document.plain.get(path):
            text = f'{written} without quotes is no text to YAML but {value!r}: write "{written}"'
        case _:
            words = detail["msg"].removeprefix("Value error, ").replace("tuple", "list")
            words = words.replace("Input should be", "must be")
            expected = re.findall(r"'([^']+)'", str(detail.get("ctx", {}).get("expected", "")))
            text = f"{words[:1].lower()}{words[1:]} (found {shorten(value)}){near(str(value), expected)}"
    return problem_at(document, path, text)


def _known_keys(kind: Any) -> list[str]:  # noqa: ANN401 - a type
    """Return all keys of a file, whatever they belong to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of defaults that JSON cannot hold
        schema = _adapter(kind).json_schema()
    parts = (schema, *schema.get("$defs", {}).values())
    return [name for part in parts for name in part.get("properties", {})]


def near(word: str, words: Sequence[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, words, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""


def in_order(problems: Iterable[str], file: str) -> list[str]:
    """Return each problem once, by line."""
    return sorted(
        set(problems), key=lambda line: (int(line.removeprefix(f"{file}:").partition(":")[0]), line)
    )


def problem_at(document: Document, path: Path, text: str) -> str:
    """Return a problem with its file, line and key."""
    return f"{document.file}:{document.line_of(path)}: {dotted(path)}: {text}"


Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    """Write a path as ``versions[3].origin.image``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file's value, the line of each path, and the text of each unquoted scalar.

    ``plain`` holds what is no text to YAML although it may have been meant so: numbers, dates,
    yes and no. ``problems`` are the keys that stand twice, which leave the rest readable.
    """

    file: str
    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    plain: Mapping[Path, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def line_of(self, path: Path) -> int:
        """Return the 1-based line of a path, or of its nearest parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML 1.1 text; :class:`ConfigError` names line and remedy where it cannot be."""
    reader = _Reader()
    try:
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            raise ConfigError([f"{file}:1: the file is empty; take the one that the project ships"])
        value = reader.read(root, ())
    except (yaml.YAMLError, AttributeError, LookupError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        words = " ".join(str(getattr(error, "problem", "") or error).split())
        raise ConfigError([f"{file}:{mark.line + 1 if mark else 1}: not valid YAML: {words}"]) from error
    problems = [f"{file}:{problem}" for problem in reader.problems]
    return Document(file=file, value=value, lines=reader.lines, plain=reader.plain, problems=problems)


_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Reader(SafeConstructor):
    """Builds values from YAML's nodes and notes where each stands; keys are always text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[Path, int] = {}
        self.plain: dict[Path, str] = {}
        self.problems: list[str] = []

    def read(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            value = self.construct_object(node)
            if value is not None and not isinstance(value, str):
                self.plain[path] = node.value
            return value
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            here = (*path, key)
            if key in result:
                words = f"the key stands twice (first on line {self.lines[here]}): remove one"
                self.problems.append(f"{line}: {dotted(here)}: {words}")
                continue
            self.lines[here] = line
            result[key] = self.read(value_node, here)
        return result
