"""Repros from their files: FACTS is a literal, the module is run for its cases, every mistake is named."""

from __future__ import annotations

import ast
import fnmatch
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite import keys
from trtmatrix.suite.digest import Code, bound_name, digest_authoring, digest_code, digest_own_code
from trtmatrix.suite.keys import Document, check_keys, in_order, near
from trtmatrix.suite.model import PART, Basis
from trtmatrix.suite.repros import BEYOND, Case, Expectation, Facts, Repro, Twin

T = TypeVar("T")

APART = ("FACTS", "cases")
"""What of a repro no run sees: what is told and expected of it. What is asked of cases has other digests."""
FLAG_BUILDS = 3  # builds of a case that leaves the precision to the builder: it may choose another each time


@dataclass(frozen=True, kw_only=True)
class LoadedRepro:
    """A repro with its file, its module, and the digests of the code that its cases are made with.

    They are made when they are asked for: a command that needs none takes half the time.
    """

    repro: Repro
    file: Path
    module: ModuleType = field(repr=False)
    source: str = field(default="", repr=False)

    @cached_property
    def digest(self) -> str:
        """The digest of what a run sees of the file."""
        return digest_code(self.source, APART)

    @cached_property
    def code(self) -> Code:
        """The digests of our own code that its cases are made with."""
        return replace(digest_own_code(), authoring=digest_authoring(self.source))


def read_repros(folder: Path) -> list[LoadedRepro]:
    """Load ``<folder>/*.py`` in order of name; :class:`ConfigError` lists every mistake in all."""
    return _read_all(folder, read_repro)


def read_facts(folder: Path) -> dict[str, Facts]:
    """Read the facts of each repro of a folder, by its id; no code is run.

    :class:`ConfigError` lists every mistake.
    """

    def read(file: Path) -> tuple[str, Facts]:
        facts, wrong = check_keys(Facts, _parse_facts(_source_of(file), str(file)), ("FACTS",))
        if facts is None:
            raise ConfigError(wrong)
        return file.stem.replace("_", "-"), facts

    return dict(_read_all(folder, read))


def _read_all(folder: Path, read: Callable[[Path], T]) -> list[T]:
    """Return what is read of each repro's file, in order of name; all mistakes are raised together."""
    files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith(("_", "."))]
    problems = [] if files else [f"{folder}: no repro here: --repros names the folder with the *.py files"]
    found = []
    for file in files:
        try:
            found.append(read(file))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found


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


def _source_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}:1: cannot be read as UTF-8 text: {error}"]) from error


def read_repro(file: Path) -> LoadedRepro:
    """Load one repro; :class:`ConfigError` where it has mistakes."""
    source = _source_of(file)
    _parse_facts(source, str(file))
    module = ModuleType(f"trtmatrix_repros.{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:  # no compiled copy of it is written or read
        exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102 - a repro
        raw_cases = list(module.cases())
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        raise ConfigError([f"{file}:{lines[-1] if lines else 1}: does not load: {error!r}"]) from error
    functions = {name for name, value in vars(module).items() if callable(value)}
    if missing := [name for name in ("prepare", "run") if name not in functions]:
        raise ConfigError([f"{file}:1: no function {name}()" for name in missing])
    repro = parse_repro(
        source, str(file), file.stem, raw_cases,
        noise=getattr(module, "NOISE", None), emulates="emulate" in functions,
    )  # fmt: skip
    return LoadedRepro(repro=repro, file=file, module=module, source=source)


@cache
def _parse_facts(source: str, file: str) -> Document:
    """Read the literal FACTS of a repro without executing it."""
    line = 1
    try:
        bound = [node for node in ast.parse(source).body if bound_name(node) == "FACTS"]
        literal = bound and getattr(bound[0], "value", None)
        if not literal:
            raise ConfigError([f"{file}:1: no FACTS = {{...}}: see README.md, 'add a repro'"])
        line, value = literal.lineno, ast.literal_eval(literal)
    except SyntaxError as error:
        raise ConfigError([f"{file}:{error.lineno or 1}: not valid Python: {error.msg}"]) from error
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        words = f"FACTS must be a literal (no names, calls or sums): {error}"
        raise ConfigError([f"{file}:{line}: {words}"]) from error
    return Document(file=file, value=value, line=line)


def parse_repro(
    source: str, file: str, stem: str, raw_cases: Sequence[object], *,
    noise: object = None, emulates: bool = False,
) -> Repro:  # fmt: skip
    """Check FACTS and the cases of one repro; :class:`ConfigError` lists all mistakes.

    ``stem``: its file's name, which makes its id. ``noise``: the module's NOISE, where it has one;
    ``emulates``: the module has emulate().
    """
    document, repro_id = _parse_facts(source, file), stem.replace("_", "-")
    facts, problems = check_keys(Facts, document, ("FACTS",))
    names = sorted(noise) if emulates and isinstance(noise, tuple) else []
    cases, wrong = _parse_cases(raw_cases, file, repro_id, names)
    if "-" in stem or not PART.fullmatch(repro_id):
        wrong.append("the file's name makes the repro's: use small letters, digits and _")
    params = {name for case in cases for name in case.params} | {"precision"}
    if emulates != (noise is not None) or (emulates and not {"precision"} <= {*names} <= params):
        wrong.append('emulate() and NOISE = (..., "precision"), params that it depends on, go together')
    if facts is not None:  # a case that is wrong is there all the same
        found = _check_facts(facts, [str(raw.get("id")) for raw in raw_cases if isinstance(raw, dict)])
        problems += [document.problem(("FACTS", *path), text) for path, text in found]
        for case in cases:
            for name in sorted({*case.defects} - {*facts.defects}):
                wrong.append(f"case {case.id}: defects: FACTS has no {name!r}{near(name, [*facts.defects])}")
            if case.defects and not case.noise_key:
                wrong.append(f"case {case.id}: defects: nothing emulates them: write emulate() and NOISE")
    problems += [f"{file}:1: {text}" for text in wrong]
    if problems or facts is None:
        raise ConfigError(in_order(problems, file))
    return Repro(**vars(facts), id=repro_id, cases=tuple(cases))


def _parse_cases(
    raw_cases: Sequence[object], file: str, repro: str, names: Sequence[str]
) -> tuple[list[Case], list[str]]:
    """Return the cases that are right in themselves, and what is wrong with the others.

    ``names``: the params that a case's noise depends on, where it has all of them.
    """
    cases: dict[str, Case] = {}
    problems = [] if raw_cases else ["cases() yields no case"]
    for i, raw in enumerate(raw_cases):
        name = raw.get("id", "?") if isinstance(raw, dict) else "?"
        case, wrong = check_keys(Case, Document(file=file, value=raw), (f"cases()[{i}] ({name})",))
        problems += [text.removeprefix(f"{file}:1: ") for text in wrong]
        if case is None:
            continue
        if case.id in cases:
            problems.append(f"cases()[{i}]: the id {case.id!r} stands twice: rename one")
        given = isinstance(raw, dict) and "builds" in raw
        several = case.precision == "fp16-flag" and case.processes == 1 and not given
        noisy = names and {*names} <= case.params.keys()
        depends = " ".join(f"{name}={case.params[name]}" for name in names) if noisy else ""
        cases[case.id] = replace(
            case, noise_key=f"{repro}:{depends}" if depends else "",
            builds=FLAG_BUILDS if several else case.builds,
            limits={**case.limits, **({BEYOND: 0.0} if case.tolerance else {})},
        )  # fmt: skip
    return list(cases.values()), problems


def _check_facts(facts: Facts, known: Sequence[str]) -> Iterator[tuple[keys.Path, str]]:
    """Check that FACTS names cases that are there, and who reported what; yield paths and what is wrong."""
    for i, workaround in enumerate(facts.workarounds):
        if workaround.case is not None and workaround.case not in known:
            yield ("workarounds", i, "case"), f"no case {workaround.case!r}{near(workaround.case, known)}"
        for j, pattern in enumerate(workaround.cases):
            if not fnmatch.filter(known, pattern):
                yield ("workarounds", i, "cases", j), f"{pattern!r} fits no case{near(pattern, known)}"
    for i, pattern in enumerate(facts.exclusive):
        if not fnmatch.filter(known, pattern):
            yield ("exclusive", i), f"{pattern!r} fits no case{near(pattern, known)}"
    for name in ("expectations", "twins"):
        claims: Sequence[Expectation | Twin] = getattr(facts, name)
        for i, claim in enumerate(claims):
            for j, pattern in enumerate(claim.cases):
                if not fnmatch.filter(known, pattern):
                    yield (name, i, "cases", j), f"{pattern!r} fits no case{near(pattern, known)}"
            said = claim.reported if isinstance(claim, Twin) else claim.basis is Basis.REPORTED
            if said and not claim.source:
                yield (name, i, "source"), "is missing: what is reported names who says so"
