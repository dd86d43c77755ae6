"""YAML files whose keys are declared as types: every mistake is named with its file, line, key and remedy."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError
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


def _refuse(value: object) -> object:
    del value
    raise PydanticCustomError("unexpected_keyword_argument", "no key of the file")


_REFUSED = BeforeValidator(_refuse)
NotInFile = Annotated[SkipJsonSchema[T], _REFUSED]
"""A field that the program sets; as a key of the file it is unknown."""


def schema_number(value: object) -> object:
    """Refuse ``true`` and ``1.0``, which Python takes for 1."""
    if type(value) is not int or value != 1:
        raise ValueError("this trtmatrix reads schema: 1; update it if the file is newer")
    return value


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
    inner = (*(p for p in outer if not str(p).startswith("(")), *([last] if last != "[key]" else []))
    path, value = (*at, *inner), detail["input"]
    rule = re.match(r"Value error, (\w+): (.*)", detail["msg"], re.DOTALL)
    match detail["type"]:
        case "unexpected_keyword_argument":
            known = _known_keys(kind, inner)
            text = f"unknown key{near(str(path[-1]), known)}; known here: {', '.join(known)}"
        case "value_error" if rule:
            path, text = (*path, rule[1]), rule[2]
        case "missing":
            text = f"is missing: write {path[-1]} here"
        case "string_type" if value is None:
            text = "is empty: write a value, or remove the key"
        case "string_type" if written := document.plain.get(path):
            text = f'{written} without quotes is no text to YAML but {value!r}: write "{written}"'
        case "string_type":
            text = f"must be text (found {shorten(value)})"
        case "string_pattern_mismatch":
            text = f"{shorten(value)} must match {detail['ctx']['pattern'].strip('^$')}"
        case "enum" | "literal_error":
            expected = detail.get("ctx", {}).get("expected", "")
            nearest = near(str(value), re.findall(r"'([^']+)'", expected))
            text = f"{shorten(value)} is not one of {expected}{nearest}"
        case other:
            words = _KINDS.get(other) or detail["msg"].removeprefix("Value error, ")
            text = f"{words[:1].lower()}{words[1:]} (found {shorten(value)})"
    return problem_at(document, path, text)


def _known_keys(kind: Any, path: Path) -> list[str]:  # noqa: ANN401 - a type
    """Return the keys that may stand where a path ends; of several types all of theirs."""
    kinds = _members(kind)
    for part in path[:-1]:
        inner = [
            _hints(each).get(str(part)) if is_dataclass(each) else get_args(each)[isinstance(part, str)]
            for each in kinds
            if is_dataclass(each) or get_args(each)  # a dict's values come last, a list's items first
        ]
        kinds = [member for each in inner for member in _members(each)]
    return [name for each in kinds if is_dataclass(each) for name in _hints(each)]


def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a type
    """Return the keys of a file's type with the types of their values."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if _REFUSED not in get_args(hint)}


def _members(kind: Any) -> list[Any]:  # noqa: ANN401 - a type
    """Return what a type may be, without its rules."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in {Union, UnionType}:
        return [member for each in get_args(kind) for member in _members(each)]
    return [kind]


_KINDS = {
    **dict.fromkeys(("model_type", "dataclass_type", "dict_type"), "must be keys with values (key: value)"),
    **dict.fromkeys(("tuple_type", "frozen_set_type"), "must be a list ([a, b])"),
    "too_short": "must have an item at least", "string_too_short": "must not be empty",
    "bool_type": "must be true or false", "int_type": "must be a whole number",
}  # fmt: skip


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


MOST_VALUES = 100_000
"""More than any real file has: aliases inside aliases multiply without end."""


def parse_yaml(text: str, file: str) -> Document:
    """Read YAML 1.1 text; :class:`ConfigError` names line and remedy where it cannot be."""
    reader = _Reader()
    root: yaml.Node | None = None
    try:
        with contextlib.suppress(yaml.YAMLError):  # Python's own reader says better what is wrong
            if yaml.__with_libyaml__:  # that takes a tenth of the time
                root = yaml.compose(text, Loader=yaml.CSafeLoader)
        root = root or yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError([f"{file}:1: the file is empty; take the one that the project ships"])
        value = reader.read(root, ())
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        words = f"the character #x{error.character:04x} may not occur: remove it"
        raise ConfigError([f"{file}:{line}: not valid YAML: {words}"]) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ": ".join(part for part in (error.context, error.problem) if part)
        tabs = "; indent with blanks, YAML allows no tabs" if "'\\t'" in words else ""
        line = mark.line + 1 if mark else 1
        raise ConfigError([f"{file}:{line}: not valid YAML: {words}{tabs}"]) from error
    except (yaml.YAMLError, RecursionError) as error:
        words = "nested too deeply, or an alias stands inside what it names"
        raise ConfigError([f"{file}:1: not valid YAML: {words}"]) from error
    problems = [f"{file}:{problem}" for problem in reader.problems]
    return Document(file=file, value=value, lines=reader.lines, plain=reader.plain, problems=problems)


class _Reader(SafeConstructor):
    """Builds values from YAML's nodes and notes where each stands; keys are always text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[Path, int] = {}
        self.plain: dict[Path, str] = {}
        self.problems: list[str] = []

    def read(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MOST_VALUES:
            raise _wrong(node, "aliases (*name) multiply without end: write the values out")
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            try:
                value = self.construct_object(node)
                repr(value)  # Python refuses to print an integer of thousands of digits
            except (ValueError, KeyError, AttributeError) as error:
                what = f"{shorten(node.value)} is no {node.tag.rpartition(':')[2]} that can be read ({error})"
                raise _wrong(node, f"{what}: quote it if it is text") from error
            if value is not None and not isinstance(value, str):
                self.plain[path] = node.value
            return value
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.endswith(":merge"):
                raise _wrong(key_node, "a key must be plain text; merge keys (<<) are not read")
            here = (*path, key)
            if key in result:
                self.problems.append(
                    f"{line}: {dotted(here)}: the key stands twice (first on line {self.lines[here]}); "
                    "YAML would silently keep the last: remove one"
                )
                continue
            self.lines[here] = line
            result[key] = self.read(value_node, here)
        return result


def _wrong(node: yaml.Node, words: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=words, problem_mark=node.start_mark)
