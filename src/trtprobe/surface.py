"""Reads the public surface of NVIDIA's bindings, as an imported module tells it: names, signatures, notes.

Nothing is called that opens a GPU: all of it stands in the docstrings that pybind11 writes. Members are
listed only at the class that defines them; private names and addresses are left out.

``python trtprobe surface MODULE`` imports bindings and prints their surface; the supervisor calls it
after the last cell, so it disturbs none. It needs no NumPy.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, Optional, Tuple

SCHEMA = 1

PROTOCOL = {
    "__init__", "__call__", "__len__", "__getitem__", "__setitem__", "__iter__", "__next__", "__contains__",
    "__enter__", "__exit__",
}  # fmt: skip
"""Names with underscores that code uses without writing them: ``engine[0]``, ``with builder:``."""

LEFTOVERS = {"attr", "value", "lib", "CURDIR", "find_lib", "try_load", "common_enter", "common_exit"}
"""What the package's own ``__init__`` leaves behind, which is no API."""

NOTE_LENGTH = 200


SECONDS = 60.0
"""More than the import takes from a cold disk; then it is given up, until the next run asks again."""


def ask_surface(module: str) -> Optional[Dict[str, Any]]:
    """Return the surface of a module, read in another process; failing is told and no trouble."""
    command = [sys.executable, "-B", str(Path(__file__).resolve().parent), "surface", module]
    try:
        printed = subprocess.check_output(command, timeout=SECONDS, stdin=subprocess.DEVNULL)
        surface: Dict[str, Any] = json.loads(printed.splitlines()[-1].decode())
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        print("the surface of %s was not read: %s" % (module, error), flush=True)
        return None
    return surface


def main(argv: List[str]) -> int:
    """Print the surface of a module as the last line."""
    surface = read_surface(importlib.import_module(argv[0]))
    surface["origin"] = {"python": "%d.%d" % sys.version_info[:2]}
    print("\n" + json.dumps(surface, sort_keys=True))
    return 0


def read_surface(module: ModuleType) -> Dict[str, Any]:
    """Return ``{"schema", "version", "classes", "names"}`` of a bindings module, as plain values.

    A class: ``{"bases": [...], "members": {name: member}, "deprecated": note}``. A member: ``{"kind",
    "signatures", "returns", "deprecated", "settable"}``; of these, and of a class, what is empty is left out.
    A nested class stands in ``classes`` under its dotted name; a second name for a class in ``names`` (or
    in the members) as ``{"kind": "class", "returns": its name}``.
    """
    reader = _Reader(module)
    classes = {name: reader.one_class(cls) for name, cls in sorted(reader.classes.items())}
    names = {name: found for name, found in sorted(reader.names()) if found}
    version = str(getattr(module, "__version__", ""))
    return {"schema": SCHEMA, "version": version, "classes": classes, "names": names}


class _Reader:
    """Knows the module's own classes, and how each is called."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.root = module.__name__.partition(".")[0]
        self.classes: Dict[str, type] = {}
        self.called: Dict[type, str] = {}
        self._prefix = re.compile(r"\b%s(?:\.tensorrt\w*)?\.(?=\w)" % re.escape(self.root))
        public = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
        for name, value in sorted(public, key=lambda pair: getattr(pair[1], "__name__", "") != pair[0]):
            self._take(name, value)  # a class first under its own name

    def _take(self, name: str, value: Any) -> None:
        """Note a class of the module under its first name, and the classes in it."""
        if not isinstance(value, type) or not value.__module__.startswith(self.root) or value in self.called:
            return
        self.classes[name], self.called[value] = value, name
        for inner, found in sorted(vars(value).items()):
            if not inner.startswith("_"):
                self._take("%s.%s" % (name, inner), found)

    def names(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """Yield the functions and values of the module itself, and second names of classes."""
        for name, value in vars(self.module).items():
            if name.startswith("_") or name in LEFTOVERS or isinstance(value, ModuleType):
                continue
            if isinstance(value, type):
                if self.called.get(value, name) != name:
                    yield name, {"kind": "class", "returns": self.called[value]}
            elif type(value) in self.called:
                yield name, {"kind": "value", "returns": self.called[type(value)]}
            elif callable(value):
                yield name, self._function("function", value)

    def one_class(self, cls: type) -> Dict[str, Any]:
        """Return a class with what it defines itself."""
        bases = [self.called[base] for base in cls.__bases__ if base in self.called]
        head, notes = _class_notes(cls.__doc__ or "")
        members = {}
        for name, value in sorted(vars(cls).items()):
            found = self._member(value) if name in PROTOCOL or not name.startswith("_") else {}
            if found:
                members[name] = {**({"deprecated": notes[name]} if name in notes else {}), **found}
        return _filled(bases=bases, members=members, deprecated=head)

    def _member(self, value: Any) -> Dict[str, Any]:
        """Return a member as plain values, nothing for what says nothing (an inherited ``__init__``)."""
        if isinstance(value, property):
            text = (value.fget.__doc__ if value.fget else "") or ""
            note, settable = find_note(value.__doc__ or "") or find_note(text), value.fset is not None
            returns = self._returned(_signatures(text))
            return _filled(kind="property", returns=returns, deprecated=note, settable=settable)
        if isinstance(value, type):
            return {"kind": "class", "returns": self.called[value]} if value in self.called else {}
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if type(value) in self.called:  # of its own class: an enum's member; the doc is the class's
            return {"kind": "value", "returns": self.called[type(value)]}
        if not callable(value):
            return {"kind": "value", "returns": type(value).__name__}
        return {} if str(value.__doc__).startswith("Initialize self.") else self._function("method", value)

    def _function(self, kind: str, value: Any) -> Dict[str, Any]:
        text, code = value.__doc__ or "", getattr(value, "__code__", None)
        found = _signatures(text)
        if not found and code is not None:  # it is written in Python
            found = ["(%s)" % ", ".join(code.co_varnames[: code.co_argcount])]
        signatures, returns = [self._clean(signature) for signature in found], self._returned(found)
        return _filled(kind=kind, signatures=signatures, returns=returns, deprecated=find_note(text))

    def _returned(self, signatures: List[str]) -> str:
        """Return what the first signature returns; nothing where it says nothing."""
        return self._clean(signatures[0]).rpartition(" -> ")[2] if " -> " in "".join(signatures[:1]) else ""

    def _clean(self, signature: str) -> str:
        """Write a signature without its first ``self``, the module's name and addresses."""
        text = _without_self(self._prefix.sub("", signature))
        return re.sub(r"<[^<>]* at 0x[0-9a-fA-F]+>", "...", text)


def _without_self(text: str) -> str:
    """Leave out the object itself, however its type is written: ``self: List[Tuple[int, bool]]`` too."""
    start = re.match(r"\((?:self|this|arg0: [A-Z]\w*(?=[,)]))", text)
    if start is None:
        return text
    depth, place = 0, start.end()
    while depth or text[place] not in ",)":
        depth += (text[place] == "[") - (text[place] == "]")
        place += 1
    return "(" + text[place:].lstrip(", ")


def _filled(**found: Any) -> Dict[str, Any]:
    """Leave out what is empty."""
    return {key: value for key, value in found.items() if value}


def _signatures(doc: str) -> List[str]:
    """Return pybind11's signatures in a docstring, from the bracket on: one, or one an overload."""
    lines = doc.splitlines() or [""]
    if "Overloaded function." in lines[1:2]:
        found = [re.match(r"\d+\. \w+(\(.*)$", line) for line in lines[2:]]
    else:
        found = [re.match(r"\w*(\(.*\)(?: -> .*)?)$", lines[0])]
    return [match.group(1) for match in found if match]


def _class_notes(doc: str) -> Tuple[str, Dict[str, str]]:
    """Return a class's own note, and those of its properties (``:ivar x:``) and values (``X : …``)."""
    head, _, members = doc.partition("\nMembers:\n")
    parts = re.split(r"^\s*:iva[rl] (\w+):", head, flags=re.MULTILINE)
    entries = re.split(r"^  (\w+)(?: :|$)", members, flags=re.MULTILINE)
    texts = {**dict(zip(parts[1::2], parts[2::2])), **dict(zip(entries[1::2], entries[2::2]))}
    return find_note(parts[0]), _filled(**{name: find_note(text) for name, text in texts.items()})


MARK = re.compile(r"(?<!\()\[DEPRECATED\b|\(Deprecated\)|(?:^|(?<=\. ))[ \t]*Deprecated[ ,:]", re.MULTILINE)
"""A note on the name itself: ``([DEPRECATED] …)`` behind another name is about that one."""


def find_note(doc: str) -> str:
    """Return what a docstring says of its own deprecation, from there to the paragraph's end; or nothing."""
    found = MARK.search(doc)
    if found is None:
        return ""
    text = re.split(r"\n\s*\n|\n\s*:", doc[found.start() :].lstrip(), maxsplit=1)[0]
    text = " ".join(text.split()).replace(":class:", "").replace("`", "")
    return text if len(text) <= NOTE_LENGTH else text[: NOTE_LENGTH - 1].rpartition(" ")[0] + "…"
