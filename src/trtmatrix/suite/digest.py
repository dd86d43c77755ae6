"""Digests of Python code: the same under every release of Python, and deaf to what no run can see.

Python's own tokens and trees differ between its releases, so the source is split here. The standard library
alone is imported. At the end: the digests of our own code, which records and prepared cases depend on.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import trtmatrix
import trtprobe

_PIECE = re.compile(
    r"""
      (?P<comment> \#[^\n]* )
    | (?P<string> [rRbBuUfFtT]{0,2} (?:
          \"{3} (?: [^\\] | \\. )*? \"{3} | '{3} (?: [^\\] | \\. )*? '{3}
        | " (?: [^"\\\n] | \\. )* " | ' (?: [^'\\\n] | \\. )* ' ) )
    | (?P<space> [ \t\f]+ | \\\n )
    | (?P<end> \n )
    | (?P<word> (?: [A-Za-z0-9_] | [^\x00-\x7f] )+ )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def digest_code(source: str, apart: Collection[str] = (), *, own: Collection[str] = ()) -> str:
    """Return the SHA-256 of Python source (hexadecimal), but for what a run cannot see.

    That is comments, blank lines, spaces between words and docstrings; and, of what stands at the top of the
    module, the names in ``apart`` with what is assigned to them, unless the rest reads them. ``own``:
    packages of which it does not matter where in them a name is imported from.
    ``SyntaxError`` where there are such names and the source is no Python.
    """
    text = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = list(split_lines(_without(text, apart) if apart else text))
    if not any("__doc__" in line for line in lines):  # what is nothing but plain strings does nothing
        lines = [
            line for line in lines if not all(re.match(r"[rRbBuU]{0,2}[\"']", part) for part in line[1:])
        ]
    if own:
        lines = [line for line in lines if line[1] != "from" or line[2] not in own]
    return sha256(json.dumps(lines).encode()).hexdigest()


def split_lines(source: str) -> Iterator[list[str]]:
    """Split source into logical lines: the indentation, then words, strings and marks; no empty ones.

    A string is taken with its prefix, as it stands. What brackets or a backslash hold together is one line.
    """
    line: list[str] = []
    indent, depth, fresh = "", 0, True
    for piece in _PIECE.finditer(source + "\n"):
        kind, text = piece.lastgroup, piece.group()
        if kind == "space" and fresh and not line:
            indent = text if text != "\\\n" else indent
        elif kind == "end":
            if line and not depth:
                yield [indent, *line]
                line = []
            if not line:
                indent, fresh = "", True
        elif kind in {"word", "string", "mark"}:
            fresh = False
            depth += (text in "([{") - (text in ")]}") if kind == "mark" else 0
            line.append(text)
    if line:
        yield [indent, *line]


def _without(source: str, apart: Collection[str]) -> str:
    """Return a module without the statements that bind these names; whole where the rest reads one."""
    body = ast.parse(source).body
    left_out = [node for node in body if bound_name(node) in apart]
    rest = [node for node in body if node not in left_out]
    if any(isinstance(part, ast.Name) and part.id in apart for node in rest for part in ast.walk(node)):
        return source
    gone, kept = (
        {n for node in nodes for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        for nodes in (left_out, rest)
    )
    gone -= kept
    return "\n".join(line for number, line in enumerate(source.split("\n"), start=1) if number not in gone)


def bound_name(node: ast.stmt) -> str | None:
    """Return the one name that a plain assignment or a function binds."""
    match node:
        case ast.FunctionDef(name=name, decorator_list=[]):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case _:
            return None


PACKAGES = {"trtmatrix": Path(trtmatrix.__file__).parent, "trtprobe": Path(trtprobe.__file__).parent}


@dataclass(frozen=True, kw_only=True)
class Code:
    """Digests of code, comments apart: of the probe, of emulating, of what a repro builds graphs with."""

    probe: str = ""
    authoring: str = ""
    noise: str = ""


NOISE = (
    "prepare/noise", "authoring/arithmetic", "onnxmodel/computing", "onnxmodel/graphs", "onnxmodel/preparing",
    "onnxmodel/sessions",
)  # fmt: skip
"""What changes the numbers of a prepared case: the emulation of repros, references and floors of one's own
model. Reading a model and drawing samples are not among it: what they give counts by its own content."""


PROBE = (
    "backends/__init__", "backends/base", "backends/gpu_engine", "backends/kernels",
    "backends/onnxruntime_cpu", "backends/refusals", "backends/tensorrt_gpu", "cell", "cuda", "files",
    "measure", "native", "onnxfile", "plans",
)  # fmt: skip
"""What of the probe decides a cell's numbers or its end: from its files and its builds to its measures. How a
cell gets into its process, is guarded there and is brought to the host changes none of them. Neither does
``timing``, which times a model of one's own once its outputs were read."""


EVALUATOR = ("onnxmodel/corrected", "onnxmodel/crosscheck", "onnxmodel/evaluator")
"""What is put right of ``onnx.reference``. It is no part of NOISE: only a model whose reference is of that
names it among its parameters, and is prepared and run again when it changes."""


@cache
def digest_evaluator() -> str:
    """Return the digest of what is put right of ``onnx.reference``."""
    return digest_modules(PACKAGES["trtmatrix"] / f"{name}.py" for name in EVALUATOR)


@cache
def digest_own_code() -> Code:
    """Return the digests; every file of these parts is tokenised for them."""
    return Code(
        probe=digest_modules(PACKAGES["trtprobe"] / f"{name}.py" for name in PROBE),
        noise=digest_modules(PACKAGES["trtmatrix"] / f"{name}.py" for name in NOISE),
    )


def digest_modules(files: Iterable[Path]) -> str:
    """Return the SHA-256 over the code of modules (hexadecimal), whatever their paths.

    Comments, docstrings and imports of our own names do not count: a module that moves stays the same.
    """
    codes = sorted(digest_code(file.read_text(encoding="utf-8"), own=tuple(PACKAGES)) for file in files)
    return sha256("\n".join(codes).encode()).hexdigest()


@cache
def digest_authoring(source: str) -> str:
    """Return the SHA-256 of what of ``trtmatrix.authoring`` a repro's source imports (hexadecimal).

    Its own modules and those that they import: one that is added for a repro is nothing to the others.
    """
    root = PACKAGES["trtmatrix"] / "authoring"
    wanted, found = sorted(_authoring_modules(source)), dict[str, str]()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name], imported = _read_authoring(root / f"{name}.py")
            wanted += sorted(imported)
    return sha256("".join(f"{name} {found[name]}\n" for name in sorted(found)).encode()).hexdigest()


@cache
def _read_authoring(file: Path) -> tuple[str, set[str]]:
    """Return the digest of a module, and which of its own package it imports."""
    text = file.read_text(encoding="utf-8")
    return digest_code(text), _authoring_modules(text)


def _authoring_modules(source: str) -> set[str]:
    package, found = "trtmatrix.authoring", set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            found.add(str(node.module).rpartition(".")[2])
    return found
