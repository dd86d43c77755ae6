"""Finds trtexec's options, pins of packages, images and names of C++ in texts that are read line by line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trtmatrix.api.names import Names, Page, dotted_name
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

_PROGRAM = r"(?:trtexec(?:\.exe)?|\$[({]?(?:\w*TRT_?EXEC\w*)[)}]?)[\"']?(?=[\s,]|$)"
_CALL = rf"(?P<before>^.*?)(?<![\w.-]){_PROGRAM}(?P<options>(?:[\\^]\s*\n|[^\n;|#]|\n\s+(?=--))*)"
"""A command that calls trtexec, with all its lines."""
_COMMAND = re.compile(rf"(?:^|[;&|]|\bsudo|\btime|=\S+)\s*(?:[\w./~${{}}()-]*/)?{_PROGRAM}", re.IGNORECASE)
"""A string of Python's that is such a command, or begins one."""
_NAMED = re.compile(r"^[ \t]*(?:ENV )?(\w+)\s*:?=.*trtexec[\"']?\s*$", re.MULTILINE)
_WRITTEN = re.compile(r"\bcat\b[^\n]*<<-?\s*['\"]?(\w+)[\s\S]*?^[ \t]*\1$", re.MULTILINE)
_SAID = re.compile(r"(^|\s)#|^\s*[@!-]*\s*(?:RUN\s+)?(?:echo|printf|which|COPY)\b|\bcat\s*>")
_TELLS = re.compile(
    r"print|log\w*|debug|info|warn\w*|error|critical|exception|add_argument|\w*Error|Field|option"
)
_OPTION = re.compile(r"(?<![\w=-])--\w+")
_PINNED = re.compile(r"tensorrt|nvinfer|nvonnxparser|nvparsers|nvcr\.io|version|\}")
"""Lines that a pin, or the version of one, can stand in."""
_CPP = re.compile(r"(?:(?<=->)|(?<=\.))\w+(?=\s*\()|\b(?:[Ik]|create)[A-Z]\w+")
"""Methods that are called, and names of classes, of their makers and of constants."""
_SPEAKS = "an option in a file that speaks of trtexec"


def scan_script(text: str, page: Page, names: Names, why: str = "") -> None:
    """Find trtexec's options in commands that call it, and in variables of such a file."""
    if "trtexec" not in text:
        return
    text = _WRITTEN.sub(lambda found: "\n" * found[0].count("\n"), text)
    variables = "|".join([r"\w*TRT_?EXEC\w*", *_NAMED.findall(text)])
    pattern = _CALL.replace(r"\w*TRT_?EXEC\w*", variables)
    for found in re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE):
        start = found.start("options")
        for option in _OPTION.finditer(found["options"]) if not _SAID.search(found["before"]) else ():
            if option[0] in names.flags:
                page.note(text.count("\n", 0, start + option.start()) + 1, names.flags[option[0]], why)
    for number, line in enumerate(text.split("\n"), 1):
        for option in _OPTION.findall(line) if re.match(r"\s*(\w+ )?\w+\s*\+?[:?]?=", line) else ():
            if option in names.flags:
                page.note(number, names.flags[option], _SPEAKS)


def scan_commands(nodes: Iterable[ast.AST], page: Page, names: Names) -> None:
    """Find trtexec's options in Python statements that run it, put a command together, or tell of it."""
    for node in nodes:
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise) or hasattr(node, "body"):
            continue
        inside = list(ast.walk(node))
        calls = [each for each in inside if isinstance(each, ast.Call)]
        telling = [each for each in calls if _TELLS.fullmatch(dotted_name(each.func).rpartition(".")[2])]
        told = {part for each in telling for part in ast.walk(each)}
        texts = [each for each in inside if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        texts.sort(key=lambda each: (each.lineno, each.col_offset))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told |= {*texts}  # a docstring
        said = [str(each.value) for each in texts if each not in told]
        runs = any(map(_COMMAND.search, said)) and not _SAID.match(said[0])
        given = runs or (said and said[0].lstrip().startswith("--"))
        for text in texts:
            for line in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                shown = page.lines[line - 1]
                example = re.search(r"--(fp16|int8|best|saveEngine|verbose)\b", shown)
                for option in _OPTION.findall(shown) if example or (given and text not in told) else ():
                    if option in str(text.value) and option in names.flags:
                        page.note(line, names.flags[option], "" if runs else _SPEAKS)


def scan_pins(text: str, page: Page, names: Names) -> None:
    """Find packages and images that hold another TensorRT than the version moved to, where that is known."""
    target, hints = ".".join(map(str, numbers_of(names.after)[:3])), names.hints
    kept = "\n".join(line if _PINNED.search(line) else "" for line in text.split("\n"))
    code = re.sub(r"(^|\s)(#|//).*", lambda found: found[1], kept, flags=re.MULTILINE)

    def note(place: int, name: str, says: str, why: str = "") -> None:
        change = ApiChange(
            name=name, kind=ChangeKind.CHANGED, note=f"{says} {names.after}", source="this line itself",
            replacement=f"one of TensorRT {names.after}",
        )  # fmt: skip
        page.note(code.count("\n", 0, place) + 1, change, why)

    for pattern in hints["pins"]:
        wheel, library = hints["words"]["WHEEL"], hints["words"]["LIBRARY"]
        whole = pattern.strip().replace("WHEEL", wheel).replace("LIBRARY", library)
        for found in re.finditer(whole, code, re.MULTILINE):
            pin = re.sub(r"[\s,]+$", "", found[2])
            numbered = re.search(r"\d+$", pin) if pin == found[1] else None
            if not pin:
                note(found.end(), f"pin {found[1]}", "is a name that no wheel has of")
            elif numbered and int(numbered[0]) != numbers_of(target)[0]:
                note(found.end(), f"pin {pin}", "is not of")
            elif not numbered and not _allows(pin, target):
                equals = "" if pin[0] in "=<>!~" else "=" * (1 + ("\n" in found[0]))
                note(found.end(2), f"pin {found[1]}{equals}{pin}", "does not allow")
    for found in re.finditer(hints["image"], code):
        months = [month for month in hints["images"] if month >= found[1]]
        held = hints["images"][months[0] if months else max(hints["images"])]  # or an older, or newer one
        exact, older = found[1] in months, numbers_of(held) < numbers_of(target)
        if not exact or numbers_of(held)[:2] != numbers_of(target)[:2]:
            says = f"holds {'' if exact else 'about '}TensorRT {held}, not"
            why = "" if exact or (months and older) else "what it holds is not known exactly"
            note(found.end(), f"image {found[0]}", says, why)


def _allows(pin: str, target: str) -> bool:
    """Say whether a pin allows the version moved to; an exact one in the numbers that it has, of three."""
    exact = re.fullmatch(r"={0,3}\s*(\d[\d.]*).*", pin)
    try:
        if exact and "," not in pin:
            return f"{target}.".startswith(".".join(exact[1].rstrip(".").split(".")[:3]) + ".")
        return SpecifierSet(pin).contains(target, prereleases=True)
    except InvalidSpecifier:
        return True


def scan_cpp(page: Page, names: Names) -> bool:
    """Find C++ names that are gone, by name alone; say whether the file is about TensorRT at all."""
    if not re.search(r"\b(NvInfer|nvinfer1|nvonnxparser)", page.code):
        return False
    wanted = _cpp_names(names)
    for number, line in enumerate(page.lines, 1):
        for word in set(_CPP.findall(line.partition("//")[0])):
            if change := wanted.get(names.hints["cpp"].get(word, word.lower())):
                page.note(number, replace(change, name=f"C++ {word}"), "C++ is searched by name only")
    return True


@lru_cache(maxsize=1)
def _cpp_names(names: Names) -> dict[str, ApiChange]:
    """Return what happens to names of C++, in small letters: ``setmaxworkspacesize``, ``kint8``."""
    known: dict[str, ApiChange] = {}
    for dotted, change in names.changes.items():
        owner, _, name = dotted.rpartition(".")
        alone = names.is_own(name) or name in names.hints["cpp_too"] or not owner
        if alone and change.kind is not ChangeKind.CHANGED and " " not in dotted:
            starts = ("", "set", "get") if name[0].islower() else ("k",) if owner else ("", "i", "create")
            for word in (f"{start}{name}".replace("_", "").lower() for start in starts):
                if word not in known or known[word].kind is not change.kind:  # the worst, the first of these
                    known[word] = replace(change, note=f"{dotted} in Python")
            if name == "num_bindings":  # it went with the bindings, and has no name in Python
                known["destroy"] = replace(change, replacement="delete", note="")
    return known
