"""Finds trtexec's options, pins of packages, images and names of C++ in texts that are read line by line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trtmatrix.api.names import Names, Page
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

_PROGRAM = r"(?:trtexec(?:\.exe)?|\$[({]?(?:\w*TRT_?EXEC\w*)[)}]?)[\"']?(?=[\s,]|$)"
_CALL = rf"(?P<before>^.*?)(?<![\w.-]){_PROGRAM}(?P<options>(?:[\\^]\s*\n|[^\n;|#]|\n\s+(?=--))*)"
"""A command that calls trtexec, with all its lines."""
_COMMAND = re.compile(
    rf"(?:^|[;&|\"'!]|\bsudo|\btime|=\S+)\s*(?:[\w./~${{}}()-]*/)?{_PROGRAM}", re.IGNORECASE | re.MULTILINE
)
"""Such a command in a string of Python's, or the beginning of one."""
_NAMED = re.compile(r"^[ \t]*(?:ENV )?(\w+)\s*:?=.*trtexec[\"']?\s*$", re.MULTILINE)
_WRITTEN = re.compile(r"\bcat\b[^\n]*<<-?\s*['\"]?(\w+)[\s\S]*?^[ \t]*\1$", re.MULTILINE)
_SAID = re.compile(r"(^|\s)#|^\s*[@!-]*\s*(?:RUN\s+)?(?:echo|printf|which|COPY)\b|\bcat\s*>")
_TELLS = re.compile(
    r"\s*([bfr]*[\"']|([\w.]+ *(: *[^=]+)?= *)?([\w.]*\.)?"
    r"(print|log\w*|debug|info|warn\w*|error|critical|exception|add_argument|\w*Error|Field|option)\()"
)
"""A docstring, or a statement of Python's that tells a person something."""
_OPTION = re.compile(r"(?<![\w=-])--\w+")
_EXAMPLE = re.compile(r"--(fp16|int8|best|saveEngine|verbose)\b")
_PINNED = re.compile(r"tensorrt|nvinfer|nvonnxparser|nvparsers|nvcr\.io|version|\}")
"""Lines that a pin, or the version of one, can stand in."""
_CPP = re.compile(r"(?:(?<=->)|(?<=\.))\w+(?=\s*\()|\b(?:[Ik]|create)[A-Z]\w+")
"""Methods that are called, and names of classes, of their makers and of constants."""
_SPEAKS = "an option in a file that speaks of trtexec"


def _note_options(text: str, line: int, page: Page, names: Names, why: str) -> None:
    """Note trtexec's options in a text that begins in a line."""
    for option in _OPTION.finditer(text):
        if change := names.changes.get(f"trtexec {option[0]}"):
            page.note(line + text.count("\n", 0, option.start()), change, why)


def scan_script(page: Page, names: Names, why: str) -> None:
    """Find trtexec's options in commands that call it, and in variables of such a file."""
    if "trtexec" not in page.code:
        return
    text = _WRITTEN.sub(lambda found: "\n" * found[0].count("\n"), page.code)
    pattern = _CALL.replace(r"\w*TRT_?EXEC\w*", "|".join([r"\w*TRT_?EXEC\w*", *_NAMED.findall(text)]))
    for found in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE):
        if not _SAID.search(found["before"]):
            before = text.count("\n", 0, found.start("options"))
            _note_options(found["options"], before + 1, page, names, why)
    for number, line in enumerate(text.split("\n"), 1):
        if not why and re.match(r"\s*(\w+ )?\w+\s*\+?[:?]?=", line):
            _note_options(line, number, page, names, _SPEAKS)


def scan_commands(nodes: Iterable[ast.AST], page: Page, names: Names) -> None:
    """Find trtexec's options in Python statements that run it, put a command together, or tell of it."""
    for node in nodes:
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise) or hasattr(node, "body"):
            continue
        text = "\n".join(page.lines[node.lineno - 1 : node.end_lineno])
        told, prepares = _TELLS.match(text), re.match(r"[^\"']*[\"'] *--", text)
        runs = not told and _COMMAND.search(text)
        if runs or (prepares and not told) or _EXAMPLE.search(text):
            _note_options(text, node.lineno, page, names, "" if runs else _SPEAKS)


def scan_pins(page: Page, names: Names) -> None:
    """Find packages and images that hold another TensorRT than the version moved to, where that is known."""
    target, hints = ".".join(map(str, numbers_of(names.after)[:3])), names.hints
    kept = "\n".join(line if _PINNED.search(line) else "" for line in page.lines)
    code = re.sub(r"(^|\s)(#|//).*", lambda found: found[1], kept, flags=re.MULTILINE)

    def note(place: int, name: str, says: str, why: str = "") -> None:
        change = ApiChange(
            name=name, kind=ChangeKind.CHANGED, note=f"{says} {names.after}", source="this line itself",
            replacement=f"one of TensorRT {names.after}",
        )  # fmt: skip
        page.note(code.count("\n", 0, place) + 1, change, why)

    for pattern in hints["pins"]:
        for found in re.finditer(pattern.strip().replace("WHEEL", hints["wheel"]), code, re.MULTILINE):
            name, pin = found[1], re.sub(r"[\s,]+$", "", found[2])
            if not pin:
                note(found.end(), f"pin {name}", "is a name that no wheel has of")
            elif not _allows(pin, target):
                joined = pin[0] in "=<>!~" or found.end(1) == found.start(2)
                equals = "" if joined else "=" * (1 + ("\n" in found[0]))
                note(found.end(2), f"pin {name}{equals}{pin}", "does not allow")
    for found in re.finditer(hints["image"], code):
        months = [month for month in hints["images"] if month >= found[1]]
        held = hints["images"][months[0] if months else max(hints["images"])]  # or an older, or newer one
        exact, older = found[1] in months, numbers_of(held) < numbers_of(target)
        if not exact or numbers_of(held)[:2] != numbers_of(target)[:2]:
            why = "" if exact or (months and older) else "what it holds is not known exactly"
            note(found.end(), f"image {found[0]}", f"holds {'about ' * (not exact)}TensorRT {held}, not", why)


def _allows(pin: str, target: str) -> bool:
    """Say whether a pin allows the version moved to; an exact one in the numbers that it has, of three."""
    try:
        several = re.sub(r"^={0,3}\s*(\d+(?:\.\d+){0,2})[^,]*$", r"==\1.*", pin)
        return SpecifierSet(several).contains(target, prereleases=True)
    except InvalidSpecifier:
        return True


def scan_cpp(page: Page, names: Names) -> bool:
    """Find C++ names that are gone, by name alone; say whether the file is about TensorRT at all."""
    if not re.search(r"\b(NvInfer|nvinfer1|nvonnxparser)", page.code):
        return False
    for number, line in enumerate(page.lines, 1):
        for word in set(_CPP.findall(line.partition("//")[0])):
            if change := names.cpp.get(names.hints["cpp"].get(word, word.replace("_", "").lower())):
                page.note(number, replace(change, name=f"C++ {word}"), "C++ is searched by name only")
    return True
