"""YAML files whose keys are declared as types: every mistake is named with its file, line, key and remedy."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails
from typing_extensions import dataclass_transform
from yaml.constructor import ConstructorError

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


NotInFile = Annotated[T, SkipJsonSchema()]  # a field that the program sets, whatever a file says
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
    cross_check: Callable[[T], Iterable[tuple[Path, str]]] = lambda _: (),
) -> T:  # fmt: skip
    """Read a YAML file as ``kind``; :class:`ConfigError` lists every mistake with line and remedy.

    ``cross_check`` yields what no single key shows, where all keys are right: its place, and what is wrong.
    """
    document = parse_yaml(text, file)
    value, problems = check_keys(kind, document)
    if value is not None:
        problems = [document.problem(path, words) for path, words in cross_check(value)]
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
        case "string_type" if value is not None and isinstance(
            node := document.find(path)[1], yaml.ScalarNode
        ):
            text = f'{node.value} without quotes is no text to YAML but {value!r}: write "{node.value}"'
        case _:
            words = detail["msg"].removeprefix("Value error, ").replace("tuple", "list")
            words = words.replace("Input should be", "must be")
            expected = re.findall(r"'([^']+)'", str(detail.get("ctx", {}).get("expected", "")))
            text = f"{words[:1].lower()}{words[1:]} (found {shorten(value)}){near(str(value), expected)}"
    return document.problem(path, text)


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
    return sorted(set(problems), key=lambda text: (int(text[len(file) + 1 :].partition(":")[0]), text))


Path = tuple[str | int, ...]


def dotted(path: Path) -> str:
    """Write a path as ``versions[3].origin.image``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file's value, and YAML's nodes that it was made of, or else the line that it begins on."""

    file: str
    value: Any
    root: yaml.Node | None = None
    line: int = 1

    def find(self, path: Path) -> tuple[int, yaml.Node | None]:
        """Return the 1-based line of a path, or of its nearest parent, and its node where it is there."""
        node, line = self.root, self.line
        for part in path:
            inner: dict[object, tuple[yaml.Node, yaml.Node]] = {}
            if isinstance(node, yaml.MappingNode):
                inner = {str(key.value): (key, value) for key, value in node.value}
            elif isinstance(node, yaml.SequenceNode):
                inner = {i: (item, item) for i, item in enumerate(node.value)}
            if part not in inner:
                return line, None
            start, node = inner[part]
            line = start.start_mark.line + 1
        return line, node

    def problem(self, path: Path, text: str) -> str:
        """Return a problem with its file, line and key."""
        return f"{self.file}:{self.find(path)[0]}: {dotted(path)}: {text}"


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]  # either
    """YAML 1.1 whose keys are text and stand once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        first: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if first.setdefault(str(key.value), line) != line:
                before = first[str(key.value)]
                words = f"the key {key.value} stands twice (first on line {before}): remove one"
                raise ConstructorError(None, None, words, key.start_mark)
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML 1.1 text; :class:`ConfigError` names line and remedy where it cannot be."""
    try:
        loader = _Loader(text)
        if (root := loader.get_single_node()) is None:
            raise ConfigError([f"{file}:1: the file is empty; take the one that the project ships"])
        return Document(file=file, value=loader.construct_document(root), root=root)
    except (yaml.YAMLError, AttributeError, LookupError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        words = " ".join(str(getattr(error, "problem", "") or error).split())
        raise ConfigError([f"{file}:{mark.line + 1 if mark else 1}: not valid YAML: {words}"]) from error
