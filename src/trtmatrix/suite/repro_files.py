"""Loads the repros of a folder: reads FACTS, imports the module, collects its cases."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.digest import Code, digest_authoring, digest_own_code
from trtmatrix.suite.keys import check_keys
from trtmatrix.suite.reprofile import parse_facts, parse_repro
from trtmatrix.suite.repros import Facts, Repro


@dataclass(frozen=True, kw_only=True)
class LoadedRepro:
    """A repro with its file, its module, and the digests of the code that its cases are made with."""

    repro: Repro
    file: Path
    module: ModuleType = field(repr=False)
    code: Code = field(default_factory=Code)


def read_repros(folder: Path) -> list[LoadedRepro]:
    """Load ``<folder>/*.py`` in order of name; :class:`ConfigError` lists every mistake in all."""
    files = _files_of(folder)
    loaded: dict[Path, LoadedRepro] = {}
    problems: list[str] = []
    for file in files:
        try:
            loaded[file] = read_repro(file)
        except ConfigError as error:
            problems += error.problems
    problems += _doubles({file: item.repro.id for file, item in loaded.items()})
    if problems:
        raise ConfigError(problems)
    return list(loaded.values())


def read_facts(folder: Path) -> dict[str, Facts]:
    """Read the facts of each repro of a folder, by its id; no code is run.

    :class:`ConfigError` lists every mistake.
    """
    found: dict[str, Facts] = {}
    problems: list[str] = []
    for file in _files_of(folder):
        document = parse_facts(_source_of(file), str(file))
        facts, wrong = check_keys(Facts, document, ("FACTS",))
        problems += wrong
        if facts is not None:
            found[file.stem.replace("_", "-")] = facts
    if problems:
        raise ConfigError(problems)
    return found


def _files_of(folder: Path) -> list[Path]:
    """Return the files of the repros in a folder, in order of name."""
    files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith(("_", "."))]
    if not files:
        raise ConfigError([f"{folder}: no repro here: --repros names the folder with the *.py files"])
    return files


def _source_of(file: Path) -> str:
    """Return a repro's text; :class:`ConfigError` where it is none."""
    try:
        content = file.read_bytes()
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}:1: cannot be read as UTF-8 text: {error}"]) from error


def read_repro(file: Path) -> LoadedRepro:
    """Load one repro; :class:`ConfigError` where it has mistakes."""
    source = _source_of(file)
    parse_facts(source, str(file))
    module = _import(file, file.read_bytes())
    missing = [name for name in ("cases", "prepare", "run") if not callable(getattr(module, name, None))]
    emulates = callable(getattr(module, "emulate", None))
    if callable(getattr(module, "noise", None)) and emulates:
        raise ConfigError([f"{file}:1: emulate() and noise(): a repro's noise comes from one of them"])
    if missing:
        raise ConfigError([f"{file}:1: no function {name}()" for name in missing])
    try:
        raw_cases = list(module.cases())
    except (Exception, SystemExit) as error:
        raise ConfigError([f"{_place(error, file)}: cases() raised {error!r}"]) from error
    repro = parse_repro(
        source, str(file), file.stem.replace("_", "-"), raw_cases,
        noise=getattr(module, "NOISE", None), emulates=emulates,
    )  # fmt: skip
    code = replace(digest_own_code(), authoring=digest_authoring(source))
    return LoadedRepro(repro=repro, file=file, module=module, code=code)


def stored_repros(cache: Path, repro: str, case: str) -> list[list[LoadedRepro]]:
    """Return the repros of models of one's own in a cache that have such a case, by model, the newest first.

    Models lie in ``<cache>/models/<name>/repros``. Those whose repros are the same are one.
    """
    files = (cache / "models").glob(f"*/repros/{repro.replace('-', '_')}.py")
    found: dict[str, list[LoadedRepro]] = {}
    for file in sorted(files, key=lambda item: item.stat().st_mtime_ns, reverse=True):
        loaded = read_repros(file.parent)
        if any(item.repro.id == repro and case in (own.id for own in item.repro.cases) for item in loaded):
            found.setdefault(file.read_text(encoding="utf-8"), loaded)
    return list(found.values())


def _doubles(repros: Mapping[Path, str]) -> list[str]:
    """Return the files whose names make the same repro: ``a_b.py`` and ``a-b.py``."""
    first: dict[str, Path] = {}
    problems = []
    for file, name in repros.items():
        other = first.setdefault(name, file)
        if other != file:
            problems.append(f"{file}:1: {other.name} is the repro {name} too: rename one")
    return problems


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
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f"{file}:{lines[-1] if lines else 1}"
