"""Loads the repros: reads FACTS, imports the module, collects its cases; what is known is not read again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.model import Repro
from trtmatrix.effects.code import Code, digest_own_code
from trtmatrix.effects.remembered import Remembered


@dataclass(frozen=True, kw_only=True)
class LoadedRepro:
    """A repro with its file, its module, and the digests of the code that its cases are made with."""

    repro: Repro
    file: Path
    load: Callable[[], ModuleType] = field(repr=False)
    code: Code = field(default_factory=Code)

    @property
    def module(self) -> ModuleType:
        """The repro's module, imported on first use; :class:`ConfigError` where that fails."""
        return self.load()


Content = bytes | OSError
"""What reading a file gave."""


def read_repros(folder: Path, remembered: Remembered | None = None) -> list[LoadedRepro]:
    """Load ``<folder>/*.py`` in order of name; :class:`ConfigError` lists every mistake in all.

    Repros that are ``remembered`` are not imported before their module is asked for.
    """
    contents = {path: _read(path) for path in sorted(folder.glob("*.py"))}
    files = {path: found for path, found in contents.items() if not path.name.startswith(("_", "."))}
    if not files:
        raise ConfigError([f"{folder}: no repro here: --repros names the folder with the *.py files"])
    if remembered is None:
        return _loaded(files, _parse(files), digest_own_code())
    lines = [f"{path.name} {_digest(found)}" for path, found in contents.items()]
    repros = remembered.recall("repros", "\n".join(lines), lambda: _parse(files))
    return _loaded(files, repros, remembered.recall("code", "", digest_own_code))


def read_repro(file: Path) -> LoadedRepro:
    """Load one repro; :class:`ConfigError` where it has mistakes."""
    files = {file: _read(file)}
    return _loaded(files, _parse(files), digest_own_code())[0]


def _read(file: Path) -> Content:
    try:
        return file.read_bytes()
    except OSError as error:
        return error


def _digest(content: Content) -> str:
    return sha256(content).hexdigest() if isinstance(content, bytes) else "unreadable"


def _loaded(files: Mapping[Path, Content], repros: Iterable[Repro], code: Code) -> list[LoadedRepro]:
    return [
        LoadedRepro(repro=repro, file=file, load=partial(import_repro, file, _digest(content)), code=code)
        for (file, content), repro in zip(files.items(), repros, strict=True)
    ]


_IMPORTING = threading.RLock()
_imported: dict[tuple[Path, str], ModuleType] = {}
"""By file and digest, as sys.modules has modules by their name."""


def import_repro(file: Path, digest: str) -> ModuleType:
    """Return the module of a repro file, imported once; any thread may ask.

    :class:`ConfigError` where it does not load, or where its bytes are no longer those with this SHA-256.
    """
    key = (file.resolve(), digest)
    with _IMPORTING:
        if key not in _imported:
            content = _read(file)
            if isinstance(content, OSError) or _digest(content) != digest:
                raise ConfigError([f"{file}:1: it changed while this ran: type the command again"])
            _imported[key] = _import(file, content)
        return _imported[key]


def _parse(files: Mapping[Path, Content]) -> list[Repro]:
    """Import and check every repro; :class:`ConfigError` lists every mistake in all."""
    repros: dict[Path, Repro] = {}
    problems: list[str] = []
    for file, content in files.items():
        try:
            repros[file] = _parse_one(file, content)
        except ConfigError as error:
            problems += error.problems
    problems += _doubles(repros)
    if problems:
        raise ConfigError(problems)
    return list(repros.values())


def _doubles(repros: Mapping[Path, Repro]) -> list[str]:
    """Return the files whose names make the same repro: ``a_b.py`` and ``a-b.py``."""
    first: dict[str, Path] = {}
    problems = []
    for file, repro in repros.items():
        other = first.setdefault(repro.id, file)
        if other != file:
            problems.append(f"{file}:1: {other.name} is the repro {repro.id} too: rename one")
    return problems


def _parse_one(file: Path, content: Content) -> Repro:
    from trtmatrix.core.reprofile import parse_facts, parse_repro

    try:
        source = _text(content)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}:1: cannot be read as UTF-8 text: {error}"]) from error
    parse_facts(source, str(file))
    module = import_repro(file, _digest(content))
    missing = [n for n in ("cases", "prepare", "run") if not callable(getattr(module, n, None))]
    if callable(getattr(module, "noise", None)) and callable(getattr(module, "emulate", None)):
        raise ConfigError([f"{file}:1: emulate() and noise(): a repro's noise comes from one of them"])
    if missing:
        raise ConfigError([f"{file}:1: no function {name}()" for name in missing])
    try:
        raw_cases = list(module.cases())
    except (Exception, SystemExit) as error:
        raise ConfigError([f"{_place(error, file)}: cases() raised {error!r}"]) from error
    return parse_repro(
        source, str(file), file.stem.replace("_", "-"), raw_cases,
        noise=getattr(module, "NOISE", None), emulates=callable(getattr(module, "emulate", None)),
    )  # fmt: skip


def _text(content: Content) -> str:
    """Return a file's text as Path.read_text gives it."""
    if isinstance(content, OSError):
        raise content
    return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _import(file: Path, content: bytes) -> ModuleType:
    """Run a file's bytes as a module; no compiled copy of them is written or read."""
    name = f"trtmatrix_repros.{file.stem}"
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102 - a repro
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError([f"{_place(error, file)}: does not load: {error!r}"]) from error
    return module


def _place(error: BaseException, file: Path) -> str:
    """Return file and line of the innermost frame inside the repro."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f"{file}:{lines[-1] if lines else 1}"
