"""Loads the repros: reads FACTS, imports the module, collects its cases."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from types import ModuleType

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.model import Repro
from trtmatrix.core.reprofile import digest_code, parse_facts, parse_repro


@dataclass(frozen=True, kw_only=True)
class LoadedRepro:
    """A repro with its file and its module."""

    repro: Repro
    file: Path
    module: ModuleType


def read_repros(folder: Path) -> list[LoadedRepro]:
    """Load ``<folder>/*.py`` in order of name; :class:`ConfigError` lists every mistake in all."""
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith(("_", ".")))
    if not files:
        raise ConfigError([f"{folder}: no repro here: --repros names the folder with the *.py files"])
    loaded: list[LoadedRepro] = []
    problems: list[str] = []
    for file in files:
        try:
            loaded.append(_load(file))
        except ConfigError as error:
            problems += error.problems
    problems += _doubles(loaded)
    if problems:
        raise ConfigError(problems)
    return loaded


def read_repro(file: Path) -> LoadedRepro:
    """Load one repro; :class:`ConfigError` where it has mistakes."""
    return _load(file)


def _doubles(loaded: Iterable[LoadedRepro]) -> list[str]:
    """Return the files whose names make the same repro: ``a_b.py`` and ``a-b.py``."""
    first: dict[str, Path] = {}
    problems = []
    for item in loaded:
        other = first.setdefault(item.repro.id, item.file)
        if other != item.file:
            problems.append(f"{item.file}:1: {other.name} is the repro {item.repro.id} too: rename one")
    return problems


def _load(file: Path) -> LoadedRepro:
    try:
        source = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}:1: cannot be read as UTF-8 text: {error}"]) from error
    parse_facts(source, str(file))
    module = _import(file)
    missing = [n for n in ("cases", "prepare", "run") if not callable(getattr(module, n, None))]
    if missing:
        raise ConfigError([f"{file}:1: no function {name}()" for name in missing])
    try:
        raw_cases = list(module.cases())
    except (Exception, SystemExit) as error:
        raise ConfigError([f"{_place(error, file)}: cases() raised {error!r}"]) from error
    repro = parse_repro(
        source, str(file), file.stem.replace("_", "-"), raw_cases,
        noise=getattr(module, "NOISE", None), emulates=callable(getattr(module, "emulate", None)),
    )  # fmt: skip
    return LoadedRepro(repro=repro, file=file, module=module)


def _import(file: Path) -> ModuleType:
    name = f"trtmatrix_repros.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError([f"{file}:1: cannot be imported as Python"])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError([f"{_place(error, file)}: does not load: {error!r}"]) from error
    finally:
        sys.dont_write_bytecode = writes
    return module


def _place(error: BaseException, file: Path) -> str:
    """Return file and line of the innermost frame inside the repro."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f"{file}:{lines[-1] if lines else 1}"


def digest_package(name: str) -> str:
    """Return the SHA-256 of a package's code, comments apart (hexadecimal)."""
    root = Path(str(resources.files(name)))
    return digest_files(sorted(root.rglob("*.py")), root)


def digest_files(files: Iterable[Path], root: Path) -> str:
    """Return the SHA-256 over names and code of Python files."""
    total = sha256()
    for file in files:
        total.update(f"{file.relative_to(root)} {digest_code(file.read_text())}\n".encode())
    return total.hexdigest()
