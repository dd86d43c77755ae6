"""What pydantic finds wrong in a YAML file, in this project's words: file, line, key, remedy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from pydantic_core import ErrorDetails

from trtmatrix.core.errors import shorten
from trtmatrix.core.yamltext import Document, Path, dotted

_KINDS = {
    "model_type": "must be keys with values (key: value)",
    "dict_type": "must be keys with values (key: value)",
    "tuple_type": "must be a list ([a, b])",
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


def is_echo(detail: ErrorDetails) -> bool:
    """Whether an error only repeats others: a list is too short, as pydantic counts its right items alone."""
    return detail["type"] == "too_short" and bool(detail["input"])


def key_problem(detail: ErrorDetails, path: Path, document: Document) -> str:
    """Return the words for what is wrong with a value, or with a key that is not there."""
    kind, value = detail["type"], detail["input"]
    if kind == "missing":
        return f"is missing: write {path[-1]} here"
    if kind == "string_type":
        return _no_text(value, document.plain.get(path))
    if kind == "enum":
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
