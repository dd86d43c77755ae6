"""Takes private text out of a text: known values of a host, and what looks private anywhere. Pure."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator

from trtmatrix.core.privacy import PLACEHOLDERS, Private, Redacted, Secrets
from trtmatrix.core.redact_base import PLACEHOLDER, Rule
from trtmatrix.core.redact_rules import rules_for
from trtmatrix.core.redact_tokens import is_secret, is_secret_name

__all__ = [
    "PLACEHOLDERS",
    "Private",
    "Redacted",
    "Secrets",
    "as_markdown",
    "redact",
    "redact_code",
    "redact_json",
]

Span = tuple[int, int, Private]


def redact(text: str, secrets: Secrets, *, before: str = "", script: bool = False) -> Redacted:
    """Put a placeholder in the place of each private part of a plain text.

    What it returns, it leaves alone when given again. ``before``: what stands before the text, which says
    what it is (``"serial: "``). ``script``: it is run, or builds an image: ``/root`` is no home there.
    """
    rules = rules_for(secrets, script)
    counts: Counter[Private] = Counter()
    while spans := _find(before + text, rules, len(before)):
        text = _replace(text, [(start - len(before), end - len(before), kind) for start, end, kind in spans])
        counts.update(kind for _, _, kind in spans)
    return Redacted(text=text, counts=dict(counts))


def as_markdown(text: str) -> str:
    """Return a text with the placeholders in square brackets: Markdown takes the others for HTML."""
    return re.sub(PLACEHOLDER, lambda match: f"[{match.group()[1:-1]}]", text)


def _find(text: str, rules: tuple[Rule, ...], first: int) -> list[Span]:
    """Return the private parts from a position on; of two that overlap, that of the earlier rule."""
    taken = bytearray(len(text))
    spans: list[Span] = []
    lower = text.lower()
    for rule in rules:
        if rule.needs not in text or (rule.words and not any(word in lower for word in rule.words)):
            continue
        for match in rule.pattern.finditer(text):
            start, end = match.span(rule.group)
            if start < first or start == end or 1 in taken[start:end]:
                continue
            if rule.accept is not None and not rule.accept(match):
                continue
            taken[start:end] = b"\1" * (end - start)
            if rule.kind is not None:
                spans.append((start, end, rule.kind))
    return sorted(spans)


def _replace(text: str, spans: list[Span]) -> str:
    pieces, at = [], 0
    for start, end, kind in spans:
        pieces += [text[at:start], PLACEHOLDERS[kind]]
        at = end
    return "".join([*pieces, text[at:]])


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}\[\],]')
_COLON = re.compile(r"[ \t\r\n]*:")
_BY_NAME = {Private.SERIAL, Private.TOKEN, Private.VARIABLE}
_SAYS = re.compile(r"(?i)serial|tag|id|pass|secret|token|key")
"""What a JSON number can be, if its name says so."""
_DEVICE = re.compile(
    r"(?i)^(?:serials?|serial[ _-]?numbers?|macs?|mac[ _-]?addr(?:ess)?(?:es)?|hwaddr|uuids?)$"
)
_PERSON = re.compile(r"(?i)^(?:users?|hosts?|owner|author|node_?list|host_?names?)$")
_OF_PERSON = re.compile(r"(?i)^(?:name|login|id|fqdn|full_?name|v|value)$")


def redact_json(text: str, secrets: Secrets) -> Redacted:
    """The same for JSON, which stays JSON: strings are decoded before they are looked at.

    A value's name says what it is (``"serial"``), also for what lies below it. What is no JSON is taken as
    plain text.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return redact(text, secrets)
    counts: Counter[Private] = Counter()
    seen: dict[tuple[str, str], Redacted] = {}
    pieces, at, names = [], 0, [""]
    name = ""
    for match in _PIECE.finditer(text):
        literal = match.group()
        if literal in "{}[],":
            name = _step(literal, name, names)
            continue
        is_name = _COLON.match(text, match.end()) is not None
        key = (literal, "" if is_name else name)
        if key not in seen:
            seen[key] = _redact_value(*key, secrets)
        found = seen[key]
        if is_name:
            name = _handed_down(names[-1], found.text)
        if found.counts:
            pieces += [text[at : match.start()], json.dumps(found.text, ensure_ascii=literal.isascii())]
            at = match.end()
            counts.update(found.counts)
    return Redacted(text="".join([*pieces, text[at:]]), counts=dict(counts))


def _step(mark: str, name: str, names: list[str]) -> str:
    """Go into or out of an object or array; return by which name the next value goes."""
    if mark in "{[":
        names.append(name)
    elif mark in "}]":
        return names.pop()
    return names[-1]


def _handed_down(outer: str, own: str) -> str:
    """Return what a value goes by: its own name, or that of what it lies in, where that is private."""
    if is_secret_name(own) or _DEVICE.search(own):
        return own
    if is_secret_name(outer) or _DEVICE.search(outer):
        return outer
    return outer if _PERSON.search(outer) and _OF_PERSON.search(own) else own


def _redact_value(literal: str, name: str, secrets: Secrets) -> Redacted:
    """Look at a string or number of JSON that stands under a name; most numbers stay."""
    if literal[0] == '"':
        value: str = json.loads(literal)
        if is_secret(name, value):
            return Redacted(text=PLACEHOLDERS[Private.TOKEN], counts={Private.TOKEN: 1})
        return redact(value, secrets, before=f"{name}: " if name else "")
    found = redact(literal, secrets, before=f"{name}: ") if _SAYS.search(name) else Redacted(text=literal)
    return found if set(found.counts) <= _BY_NAME else Redacted(text=literal)


def redact_code(text: str, secrets: Secrets) -> Redacted:
    """The same for Python source, in its comments and strings alone: a name in the code is never touched.

    What is no Python is taken as plain text.
    """
    try:
        ast.parse(text)  # before Python 3.12 tokenize takes what is none
        places = list(_strings(text))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return redact(text, secrets, script=True)
    counts: Counter[Private] = Counter()
    pieces, at = [], 0
    for begin, end, is_key in places:
        start = max(begin, at)  # inside of an f-string places overlap
        line = text.rfind("\n", 0, start) + 1
        found = _hidden(text[start:end]) if is_key else None
        if found is None:
            found = redact(text[start:end], secrets, before=text[line:start], script=True)
        pieces += [text[at:start], found.text]
        at = end
        counts.update(found.counts)
    return Redacted(text="".join([*pieces, text[at:]]), counts=dict(counts))


_LITERAL = re.compile(r"(?s)([A-Za-z]{0,2})(\"\"\"|\'\'\'|\"|\')(.*)\2")
_NAMED = re.compile(r"(\w+)[\"\'\]]*\s*(?::\s*[\w.\[\]| ]+)?[=:][ \t]*(?:[\\(\[]\s*)*$")
_QUOTED = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}


def _hidden(literal: str) -> Redacted | None:
    """Return a string of Python with a placeholder in it."""
    match = _LITERAL.fullmatch(literal)
    secret = PLACEHOLDERS[Private.TOKEN]
    if match is None or secret in match[3] or not match[3]:
        return None
    return Redacted(text=f"{match[1]}{match[2]}{secret}{match[2]}", counts={Private.TOKEN: 1})


def _strings(source: str) -> Iterator[tuple[int, int, bool]]:
    """Yield where comments and strings stand, in characters, and whether a string is secret by its name."""
    starts = [0]
    for line in io.StringIO(source):
        starts.append(starts[-1] + len(line))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    secret = _secret_strings(source, tokens, starts)
    for index, token in enumerate(tokens):
        if token.type in _QUOTED:
            yield *_place(token, starts), index in secret


def _place(token: tokenize.TokenInfo, starts: list[int]) -> tuple[int, int]:
    (row, column), (last, end) = token.start, token.end
    return starts[row - 1] + column, starts[last - 1] + end


def _secret_strings(source: str, tokens: list[tokenize.TokenInfo], starts: list[int]) -> set[int]:
    """Return which strings are passwords and keys by their name; strings that stand together are one."""
    found: set[int] = set()
    group: list[int] = []
    for index, token in enumerate(tokens):
        if token.type == tokenize.STRING:
            group.append(index)
        elif token.type not in _BLANK and group:
            first = _place(tokens[group[0]], starts)[0]
            name = _NAMED.search(source[max(0, first - 200) : first])
            if name and is_secret(name[1], "".join(map(_content, (tokens[one].string for one in group)))):
                found.update(group)
            group = []
    return found


def _content(literal: str) -> str:
    match = _LITERAL.fullmatch(literal)
    return match[3] if match else ""
