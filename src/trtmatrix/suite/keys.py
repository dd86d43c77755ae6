"""Files whose keys are declared as types: every mistake is named with its file, line, key and remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Tag, TypeAdapter, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import dataclass_transform

from trtmatrix.common.errors import shorten
from trtmatrix.suite.yamltext import Document, Path, dotted

T = TypeVar("T")
_UNKNOWN = "unexpected_keyword_argument"


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
    raise PydanticCustomError(_UNKNOWN, "no key of the file")


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


def keys_schema(kind: type[T]) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter(kind).json_schema()}


def _problem(kind: Any, detail: ErrorDetails, document: Document, at: Path) -> str:  # noqa: ANN401
    """Return one problem. A rule about several keys says first which one it means: ``min: is above max``."""
    inner, known = _place(kind, detail["loc"])
    path = (*at, *inner)
    if detail["type"] == _UNKNOWN:
        return problem_at(document, path, unknown_key(str(path[-1]), known))
    if detail["type"] == "value_error" and (named := re.match(r"Value error, (\w+): ", detail["msg"])):
        return problem_at(document, (*path, named[1]), detail["msg"][named.end() :])
    return problem_at(document, path, key_problem(detail, path, document))


def _place(kind: Any, loc: Sequence[str | int]) -> tuple[Path, list[str]]:  # noqa: ANN401 - a type
    """Return an error's path as the file has it, and the keys that may stand beside its last one."""
    path: list[str | int] = []
    known: list[str] = []
    for part in loc:
        if part == "[key]":
            continue
        kind = _plain(kind)
        tagged = {
            tag.tag: each for each in get_args(kind) for tag in get_args(each)[1:] if isinstance(tag, Tag)
        }
        if part in tagged:  # which of several types was meant, no key of the file
            kind = _plain(tagged[str(part)])
            continue
        hints = get_type_hints(kind, include_extras=True) if is_dataclass(kind) else {}
        allowed = {name: hint for name, hint in hints.items() if _REFUSED not in get_args(hint)}
        path.append(part)
        known = list(allowed)
        if is_dataclass(kind):
            kind = allowed.get(str(part), object)
        else:  # a dict's values come last, a list's items first
            kind = next(iter(get_args(kind)[isinstance(part, str) :]), object)
    return tuple(path), known


def _plain(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return a type without its rules, and without the None that it may be instead."""
    while get_origin(kind) is Annotated or type(None) in get_args(kind):
        kind = next(member for member in get_args(kind) if member is not type(None))
    return kind


_KINDS = {
    "model_type": "must be keys with values (key: value)",
    "dataclass_type": "must be keys with values (key: value)",
    "dict_type": "must be keys with values (key: value)",
    "tuple_type": "must be a list ([a, b])",
    "frozen_set_type": "must be a list ([a, b])",
    "too_short": "must have an item at least",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
}


def in_order(problems: Iterable[str], file: str) -> list[str]:
    """Return each problem once, by line."""
    return sorted(
        set(problems), key=lambda line: (int(line.removeprefix(f"{file}:").partition(":")[0]), line)
    )


def problem_at(document: Document, path: Path, text: str) -> str:
    """Return a problem with its file, line and key."""
    return f"{document.file}:{document.line_of(path)}: {dotted(path)}: {text}"


def key_problem(detail: ErrorDetails, path: Path, document: Document) -> str:
    """Return the words for what is wrong with a value, or with a key that is not there."""
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return f"is missing: write {path[-1]} here"
    if kind == "string_type":
        return _no_text(value, document.plain.get(path))
    if kind in {"enum", "literal_error"}:
        expected = detail.get("ctx", {}).get("expected", "")
        nearest = near(str(value), re.findall(r"'([^']+)'", expected))
        return f"{shorten(value)} is not one of {expected}{nearest}"
    text = _KINDS.get(kind) or detail["msg"].removeprefix("Value error, ")
    return f"{text[:1].lower()}{text[1:]} (found {shorten(value)})"


def unknown_key(key: str, allowed: Sequence[str]) -> str:
    """Return the words for a key that is not known among those that are."""
    return f"unknown key{near(key, allowed)}; known here: {', '.join(allowed)}"


def near(word: str, words: Sequence[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, words, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""


def _no_text(value: object, written: str | None) -> str:
    if value is None:
        return "is empty: write a value, or remove the key"
    if written is None:
        return f"must be text (found {shorten(value)})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            f"{written} without quotes is the YAML number {value!r}, and 10.10 would become 10.1: "
            f'write "{written}"'
        )
    return f'{written} without quotes is no text to YAML but {value!r}: write "{written}"'
