"""Options of commands: a field of a command's dataclass declares one, with its type, default and help.

A dataclass that is a field's type brings its own options with it. A field without any keeps its default.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

# --- How values are read


def read_size(text: str) -> int:
    """Read ``512m``, ``4g`` or ``4GB`` as bytes, by powers of two; ``ArgumentTypeError`` where it is none."""
    match = re.fullmatch(r"0*([1-9]\d*)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512m or 4GB")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]


def _path(text: str) -> Path:
    if not text:  # Python would take it for the folder that one is in
        raise argparse.ArgumentTypeError("'' names no file or folder; leave the option out")
    return Path(text)


def number(kind: type[float], least: float, what: str, most: float = math.inf) -> Callable[[str], float]:
    """Return what reads an ``int`` or ``float`` of a range; ``ArgumentTypeError`` where it is none."""

    def read(text: str) -> float:
        try:
            value = kind(text) if kind is float or text.isdecimal() else math.nan
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
        return value

    return read


read_seconds = number(float, 1e-9, "number of seconds")
read_count = number(int, 1, "number from 1", 10**9)


# --- How a field declares its option


def flag(names: str, text: str, group: str = "", *, default: bool = False) -> Any:  # noqa: ANN401 - a field
    """Return a field that is True where its option is given, or False where True is its default."""
    action = "store_false" if default else "store_true"
    return _field(names.split(), text, group, default, {"action": action})


def value(words: str, text: str | None = None, group: str = "", *, default: Any = None, **more: Any) -> Any:  # noqa: ANN401
    """Return a field with a value; ``words``: names and, last, what stands for it, unless it has choices.

    A word without a dash is no option but an argument. ``more``: what argparse takes.
    """
    *found, last = words.split()
    if last.startswith("-"):
        found, last = [*found, last], ""
    required = more.get("required") or not (found or "nargs" in more)
    return _field(found, text, group, MISSING if required else default, {"metavar": last or None, **more})


def many(words: str, text: str, group: str = "", **more: Any) -> Any:  # noqa: ANN401
    """Return a field with a tuple of values, for an option that may be repeated."""
    return value(words, text, group, default=(), action="append", **more)


def names(words: str, text: str, group: str = "", known: Sequence[str] = ()) -> Any:  # noqa: ANN401
    """Return a field with a tuple of names, of which one value may have several with commas between."""

    def read(given: str) -> list[str]:
        found = [name.strip() for name in given.split(",") if name.strip()]
        if not found:  # an empty variable of a script must not mean all
            raise argparse.ArgumentTypeError(f"{given!r} names nothing; leave the option out for all")
        if known and (wrong := [name for name in found if name not in known]):
            raise argparse.ArgumentTypeError(f"{wrong[0]}: known are {', '.join(known)}")
        return found

    return value(words, text, group, default=(), action="extend", type=read)


def _field(
    names: Sequence[str], text: str | None, group: str, default: object, settings: Mapping[str, Any]
) -> Any:  # noqa: ANN401
    declared = {"names": names, "group": group, "settings": {"help": text, **settings}}
    return field(default=default, metadata=declared)


# --- How a parser takes them


def find_options(kind: type, place: str = "") -> Iterator[tuple[str, Sequence[str], Mapping[str, Any]]]:
    """Yield each option of a dataclass and of its parts: its group, its names, and what argparse takes.

    Its value goes where the field is: ``project.matrix``.
    """
    types = get_type_hints(kind)
    for each in fields(kind):
        wanted, here = types[each.name], f"{place}{each.name}"
        if isinstance(wanted, type) and is_dataclass(wanted):
            yield from find_options(wanted, f"{here}.")
        elif each.metadata:
            settings, found = dict(each.metadata["settings"]), each.metadata["names"]
            if isinstance(wanted, type) and issubclass(wanted, Enum):
                settings["choices"] = [member.value for member in wanted]
            elif Path in (wanted, *get_args(wanted)):
                settings["type"] = _path
            settings["help"] = _help(settings["help"] or "", each.default)
            settings |= {"dest": here, "default": argparse.SUPPRESS} if found else {}
            yield each.metadata["group"], found or [here], settings


def _help(text: str, default: Any) -> str:  # noqa: ANN401
    """Return an option's help with the default, where it has one and does not say it."""
    shown = default.value if isinstance(default, Enum) else default
    if "default" in text or isinstance(shown, bool) or shown in (None, "", 0, (), MISSING):
        return text
    shown = f"{shown >> 30}g" if isinstance(shown, int) and shown >= 1 << 30 else shown
    return f"{text} (default: {shown})".strip()


def make_options(kind: type[T], given: Mapping[str, Any], place: str = "") -> T:
    """Return a dataclass with the values that were given, by their places."""
    types, found = get_type_hints(kind), dict[str, Any]()
    for name in (each.name for each in fields(kind)):  # type: ignore[arg-type] # a dataclass
        wanted, here = types[name], f"{place}{name}"
        if isinstance(wanted, type) and is_dataclass(wanted):
            found[name] = make_options(wanted, given, f"{here}.")
        elif here in given:
            one = given[here]
            if isinstance(one, list) and get_origin(wanted) is not tuple:
                if len(one) > 1:
                    raise argparse.ArgumentTypeError(f"--{name} {one[1]}: one {name} at a time")
                found[name] = one[0]
            elif isinstance(one, list):
                found[name] = tuple(one)
            else:
                found[name] = wanted(one) if isinstance(wanted, type) and issubclass(wanted, Enum) else one
    return kind(**found)
