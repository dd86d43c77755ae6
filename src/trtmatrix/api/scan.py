"""Scans code for uses of what changes between two versions of TensorRT; the code is read, never run."""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trtmatrix.api.names import SPEAKS, TRTEXEC, Names, Page
from trtmatrix.api.python_scan import UNREADABLE, scan_python
from trtmatrix.api.types import ApiChange, ApiUse, ChangeKind, Kept, Surface, numbers_of

HINTS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("scan.yaml").read_bytes())
"""What the scan knows besides the surfaces, by topic."""
LARGEST = 4 << 20
"""Bytes of a file that is still read; notebooks with pictures in them are large."""
_TIMED = re.compile(r"^\s*%%?(time|timeit|capture)\b[ \t]*", re.MULTILINE)
_MAGIC = re.compile(r"^([ \t]*)(?:(?:[\w, ]+=\s*)?[!%](?:.*\\\n)*.*|[\w.]*\w\?+)$", re.MULTILINE)
"""Words before Python; lines of a notebook that are none, with those that they go on in."""
_LINE, _CELL = re.compile(r"^()(?:.*\\\n)*.+$", re.MULTILINE), re.compile(r"^()[\s\S]*$")
_CALL = rf"(?im)(?P<head>^.*?)(?<![\w.-]){TRTEXEC}(?P<options>(?:[\\^]\s*\n|[^\n;|#]|\n\s+(?=--))*)"
"""A command that calls trtexec, with all its lines."""
_SAID = re.compile(r"(^|\s)#|^\s*[@!-]*\s*(?:RUN\s+)?(?:echo|printf|which|COPY)\b|\bcat\s*>")
_PINNED = re.compile(r"tensorrt|nvinfer|nvonnxparser|nvparsers|nvcr\.io|version|\}")
"""Lines that a pin, or the version of one, can stand in."""
_CPP = re.compile(r"(?:(?<=->)|(?<=\.))\w+(?=\s*\()|\b(?:[Ik]|create)[A-Z]\w+")
"""Methods that are called, and names of classes, of their makers and of constants."""


class Scan(NamedTuple):
    """What a scan found. ``unread``: file and why it, or a part of it, could not be read."""

    uses: tuple[ApiUse, ...]
    unread: tuple[tuple[str, str], ...]


@dataclass(kw_only=True)
class CodeFiles:
    """Texts of files that can matter, by path; what was left out, and why; how many were looked at."""

    texts: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
    seen: int = 0


def kind_of_file(path: str, beginning: str = "") -> str:
    """Return how a file is read, by its name or its first line; nothing where it is not looked at."""
    named = path.lower() + "\n" + beginning.partition("\n")[0] * beginning.startswith("#!")
    kinds = HINTS["kinds"].items()
    return next((str(kind) for kind, form in kinds if re.search(form, named, re.MULTILINE)), "")


def scan_code(
    files: Mapping[str, str], before: Surface, after: Surface, changes: Sequence[ApiChange],
    behaviours: Sequence[Kept] = (),
) -> Scan:  # fmt: skip
    """Return every use of a changing name in files given by path (``/`` between folders) and text."""
    names = Names(before, after, changes, behaviours, HINTS)
    python, found, unread, cpp = list[Page](), list[ApiUse](), list[tuple[str, str]](), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's escapes in texts: not our concern
        for path in sorted(files):
            text = re.sub(r"\r\n?", "\n", files[path]).removeprefix("\ufeff")
            page = Page(file=path, code=text, lines=text.split("\n"), found=found)
            kind = kind_of_file(path, text[:200])
            if kind == "notebook":
                try:
                    page = _read_notebook(page, unread)
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                    unread.append((path, f"it is no notebook: {' '.join(str(error).split())[:80]}"))
                    continue
            if kind in ("Python", "notebook"):
                python.append(page)
            if kind in ("script", "text"):
                _scan_script(page, names, "an instruction in a text" * (kind == "text"))
            if kind == "C++":
                cpp += _scan_cpp(page, names)
            else:
                _scan_pins(page, names)
        unread += scan_python(names, python)
    if cpp:
        by_name = "searched by name only: what a name is used on is not known"
        unread.append((f"{cpp} C++ file{'s' * (cpp != 1)}", by_name))
    uses: dict[tuple[str, str, int, int], ApiUse] = {}  # one a line and name; of a behaviour the first of all
    for use in sorted(found, key=lambda use: (use.file, use.cell, use.line, use.change.name, not use.sure)):
        once = use.change.kind is ChangeKind.BEHAVIOUR
        uses.setdefault((use.change.name, *(("", 0, 0) if once else (use.file, use.cell, use.line))), use)
    return Scan(uses=tuple(uses.values()), unread=tuple(sorted(unread)))


def _read_notebook(page: Page, unread: list[tuple[str, str]]) -> Page:
    """Return a notebook's Python with the cell and line of each line; ``()`` stands for what is none."""
    python, shown, places = list[str](), list[str](), list[tuple[int, int]]()
    for number, cell in enumerate(json.loads(page.code)["cells"], 1):
        if cell["cell_type"] == "code":
            text = _TIMED.sub("", "".join(cell["source"]))
            shell = re.match(r"\s*%%(!|bash|sh\b|script)?", text)
            magic = _MAGIC if shell is None else _LINE if shell[1] else _CELL
            code = magic.sub(lambda found: f"{found[1]}(" + "\n" * found[0].count("\n") + ")", text)
            try:
                ast.parse(code, "cell")
            except UNREADABLE as error:
                unread.append((page.file, f"cell {number} does not parse as Python 3: {error}"))
                code = "\n" * text.count("\n")
            python, shown = [*python, code], [*shown, *text.split("\n")]
            places += [(number, line) for line in range(1, text.count("\n") + 2)]
    return replace(page, code="\n".join(python), lines=shown, cells=places)


def _scan_script(page: Page, names: Names, why: str) -> None:
    """Find trtexec's options in commands that call it, and in variables of such a file."""
    if "trtexec" not in page.code:
        return
    for found in re.finditer(_CALL, page.code):
        if not _SAID.search(found["head"]):
            line = page.code.count("\n", 0, found.start("options")) + 1
            page.note_options(line, found["options"], names, why)
    for number, line_text in enumerate(page.lines, 1):
        if not why and re.match(r"\s*(\w+ )?\w+\s*\+?[:?]?=", line_text):
            page.note_options(number, line_text, names, SPEAKS)


def _scan_pins(page: Page, names: Names) -> None:
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


def _scan_cpp(page: Page, names: Names) -> bool:
    """Find C++ names that are gone, by name alone; say whether the file is about TensorRT at all."""
    if not re.search(r"\b(NvInfer|nvinfer1|nvonnxparser)", page.code):
        return False
    for number, line in enumerate(page.lines, 1):
        for word in set(_CPP.findall(line.partition("//")[0])):
            if change := names.cpp.get(names.hints["cpp"].get(word, word.replace("_", "").lower())):
                page.note(number, replace(change, name=f"C++ {word}"), "C++ is searched by name only")
    return True


def read_code(paths: Sequence[Path]) -> CodeFiles:
    """Read what the scanner can look at below folders, and single files; names begin as the paths do."""
    found = CodeFiles()
    for path in paths:
        if path.is_dir():
            for file in _walk(path, found):
                _read(file, found)
        elif not _read(path, found):
            found.unread.append((str(path), "it is of no kind that is scanned, such as Python, shell or C++"))
    return found


def _walk(root: Path, found: CodeFiles) -> Iterator[Path]:
    """Yield the files of a folder without caches and other people's; no link to a folder is followed."""
    errors = list[OSError]()
    for folder, folders, files in os.walk(root, onerror=errors.append):
        here, environment = Path(folder), {"pyvenv.cfg", "conda-meta"} & {*folders, *files}
        if here != root and (environment or here.name in HINTS["left_out"]):
            found.unread.append((here.as_posix(), "left out: a cache, or other people's packages"))
            folders.clear()
        else:
            folders.sort()
            yield from (here / name for name in sorted(files) if (here / name).is_file())
    found.unread += [(str(error.filename), f"it cannot be read: {error.strerror}") for error in errors]


def _read(file: Path, found: CodeFiles) -> bool:
    """Read a file if it can matter, or tell why not; False where it is of no kind that is scanned."""
    name = file.as_posix()
    try:
        with file.open("rb") as opened:
            beginning = b"" if file.suffix else opened.read(99)
            if not kind_of_file(name, str(beginning, "latin1")):
                return False
            data = beginning + opened.read(LARGEST + 1)
    except OSError as error:
        found.unread.append((name, f"it cannot be read: {error.strerror or error}"))
        return True
    found.seen, lower = found.seen + 1, data.lower()
    if len(data) > LARGEST:
        found.unread.append((name, f"it has more than the {LARGEST >> 20} MiB that are read"))
    elif any(word in lower for word in (b"trt", b"tensorrt", b"nvinfer", b"nvcr.io")):
        found.texts[name] = data.decode("utf-8-sig", "replace")
    return True
