"""Names and lists of words as bash reads them back: what a script is told stands in its first lines alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

PLAIN = re.compile(r"[A-Za-z0-9_./=:@%+-]+")


def quote(text: str) -> str:
    """Return a word as bash reads it back; more is quoted than must be, since linters doubt commas."""
    return text if PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def assign(name: str, value: str | int) -> str:
    """Return the line that gives a variable of a script its value, whatever that holds."""
    return f"{name}={quote(str(value))}"


def assign_words(name: str, words: Iterable[str]) -> str:
    """Return the line that gives an array of a script its words, one on each line."""
    return "\n".join([f"{name}=(", *(f"    {quote(word)}" for word in words), ")"])
