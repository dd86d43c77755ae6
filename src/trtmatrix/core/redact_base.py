"""What a rule of redaction is, and where names and paths may start in a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trtmatrix.core.privacy import PLACEHOLDERS, Private


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is private: ``group`` of a match, where ``accept`` agrees. Earlier rules have the first claim.

    ``kind``: None where it is the contrary, and stays as it is whatever else says. ``needs``: a text without
    this has no match; ``words``: nor has one with none of these, in lower case.
    """

    kind: Private | None
    pattern: re.Pattern[str]
    group: str | int = 0
    needs: str = ""
    words: tuple[str, ...] = ()
    accept: Callable[[re.Match[str]], bool] | None = None


def said(
    kind: Private,
    pattern: str,
    needs: str = "",
    accept: Callable[[re.Match[str]], bool] | None = None,
    words: tuple[str, ...] = (),
) -> Rule:
    """Return the rule of a value, the group ``v``, that what stands beside it gives away."""
    compiled = re.compile(pattern)
    return Rule(kind=kind, pattern=compiled, group="v", needs=needs, accept=accept, words=words)


LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%2[Ff]))"
"""Where a name may start: at no letter's end, but for an escaped line end's."""
RIGHT = r"(?![A-Za-z0-9])"
PATH = r"(?:(?<![A-Za-z0-9_.])|(?<=\\[nrt])|(?<=%2[Ff]))"
"""Where an absolute path may start."""
SLASH = r"(?:/|\\/|%2[Ff])"
IS = r"(?:\\?[\"'])?\]?\s{0,3}[:=]\s{0,3}(?:[rbfu]{0,2}\\?[\"'])?"
"""What stands between a name and its value: of a shell, a header, JSON, Python, also where it is escaped."""

PLACEHOLDER = "|".join(map(re.escape, PLACEHOLDERS.values()))

HARMLESS = frozenset({"none", "null", "true", "false", "yes", "no", "unset", "empty", "redacted"})
"""Values that say that there is none."""
