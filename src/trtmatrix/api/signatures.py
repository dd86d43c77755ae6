"""Signatures of the bindings as parameters, and what in a change of one breaks a caller."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

SAME = {
    "SupportsInt": "int", "SupportsIndex": "int", "SupportsFloat": "float", "CapsuleType": "capsule",
    "Buffer": "buffer", "List": "list", "Sequence": "list", "Iterable": "list", "Tuple": "tuple",
    "Dict": "dict", "FallbackString": "str", "Any": "object", "handle": "object",
    "function": "Callable", "NodeIndices": "list[int]", "SubGraphCollection": "list[tuple[list[int],bool]]",
}  # fmt: skip
"""How releases of pybind11 write one and the same type; a list is taken wherever a sequence is."""

_INNERMOST = re.compile(r"[(\[{<][^()\[\]{}<>]*[)\]}>]")
UNKNOWN = "object"
"""A type that says nothing, as also a C++ name says that the bindings know no class of it."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter; ``name`` is empty where the bindings name none, ``types`` where they say no type."""

    name: str
    types: frozenset[str]
    optional: bool


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A function's parameters without ``self``, and the types that it may return (None left out)."""

    parameters: tuple[Parameter, ...]
    returns: frozenset[str]


@lru_cache(maxsize=8192)
def parse_signature(text: str) -> Signature:
    """Read ``"(index: int, name: str = '') -> ITensor"``."""
    inside, returned = _brackets(text)
    parameters = [_parameter(part) for part in split_top(inside, ",") if part.strip() not in {"", "*", "/"}]
    return Signature(parameters=tuple(parameters), returns=parse_type(returned) - {"None"})


def _mask(text: str) -> str:
    """Return a text with ``_`` for each sign that stands in quotes or brackets, these included."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"|->", lambda found: "_" * len(found[0]), text)
    while text != (less := _INNERMOST.sub(lambda found: "_" * len(found[0]), text)):
        text = less
    return text


def _brackets(text: str) -> tuple[str, str]:
    """Return what stands between the outer brackets, and what behind the arrow."""
    end = len(_mask(text)) - len(_mask(text).lstrip("_"))
    return text[1 : end - 1], text[end:].partition("->")[2].strip()


def split_top(text: str, separator: str) -> list[str]:
    """Split at a sign that stands in no brackets and no quotes."""
    places = [found.start() for found in re.finditer(re.escape(separator), _mask(text))]
    starts, ends = [0, *(place + 1 for place in places)], [*places, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _parameter(text: str) -> Parameter:
    head, *default = split_top(text, "=")
    name, _, kind = head.strip().partition(":")
    named = "" if re.fullmatch(r"arg\d+", name.strip()) else name.strip()
    optional = bool(default) or named.startswith("*")
    return Parameter(name=named, types=parse_type(kind), optional=optional)


def parse_type(text: str) -> frozenset[str]:
    """Return the types that an annotation allows, each in one way of writing."""
    found: set[str] = set()
    for part in split_top(text.strip(), "|"):
        word = part.strip()
        match = re.fullmatch(r"(?:typing\.)?(Optional|Union)\[(.*)\]", word)
        if match is not None:
            found |= {kind for inner in split_top(match[2], ",") for kind in parse_type(inner)}
            found |= {"None"} if match[1] == "Optional" else set()
        elif word:
            found.add(re.sub(r"[\w:.]*\w", _plain, word).replace(" ", ""))
    return frozenset(found)


def _plain(match: re.Match[str]) -> str:
    """Write one name without its modules and outer classes (``ILogger.Severity``)."""
    name = UNKNOWN if "::" in match[0] else match[0].rpartition(".")[2]
    return SAME.get(name, name)


IsA = Callable[[str, str], bool]
"""Whether a class of the bindings is another, or derives from it."""


def differ(given: frozenset[str], wanted: frozenset[str], is_a: IsA) -> bool:
    """Whether what is given is known to be of no type that is wanted."""
    if not given or not wanted or any(UNKNOWN in kind for kind in given | wanted):
        return False
    return not any(_fits(had, has, is_a) for had in given for has in wanted)


def _fits(given: str, wanted: str, is_a: IsA) -> bool:
    """Whether a type will do for another; ``tuple`` says no less than ``tuple[int]``, only less of it."""
    heads = given.partition("[")[0], wanted.partition("[")[0]
    bare = "[" not in given or "[" not in wanted
    return given == wanted or (bare and heads[0] == heads[1]) or is_a(given, wanted)


def breaks(before: str, after: str, is_a: IsA) -> str:
    """Say what a caller written for one signature trips over in another; nothing where all goes on."""
    old, new = parse_signature(before), parse_signature(after)
    if any(p.name.startswith("*") for p in new.parameters):
        return ""
    for place, had in enumerate(old.parameters):
        if place >= len(new.parameters):
            return f"takes no {had.name or f'argument {place + 1}'} any more"
        trouble = _parameter_breaks(had, new.parameters[place], new, is_a)
        if trouble:
            return trouble
    required = [p for p in new.parameters[len(old.parameters) :] if not p.optional]
    if required:
        return f"asks for {required[0].name or 'one argument more'}"
    if differ(new.returns, old.returns, is_a):
        return f"returns {' | '.join(sorted(new.returns))} instead of {' | '.join(sorted(old.returns))}"
    return ""


def _parameter_breaks(had: Parameter, has: Parameter, new: Signature, is_a: IsA) -> str:
    if had.name and has.name and had.name != has.name:
        if any(p.name == had.name for p in new.parameters):
            return f"{had.name} stands elsewhere"
        return f"{has.name} instead of {had.name}"
    if had.optional and not has.optional:
        return f"asks for {has.name or 'an argument'}, which could be left out"
    if differ(had.types, has.types, is_a):
        name = has.name or "the argument"
        return f"{name} is {' | '.join(sorted(has.types))} instead of {' | '.join(sorted(had.types))}"
    return ""
