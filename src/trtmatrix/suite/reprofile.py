"""A repro file's FACTS and cases() to a :class:`Repro`, with every mistake named."""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.digest import digest_code
from trtmatrix.suite.keys import Document, Path, check_keys, in_order, near, problem_at
from trtmatrix.suite.model import PART, Basis, Control
from trtmatrix.suite.repros import BEYOND, Case, Facts, Repro, Scalar

APART = ("FACTS", "cases")
"""What of a repro no run sees: what is told and expected of it. What is asked of cases has other digests."""

FLAG_BUILDS = 3
"""Builds of a case that leaves the precision to the builder: it may choose another each time."""


def parse_facts(source: str, file: str) -> Document:
    """Read the literal FACTS of a repro without executing it, with the line of every key."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError([f"{file}:{error.lineno or 1}: not valid Python: {error.msg}"]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError([f"{file}:1: not valid Python: {error}"]) from error
    literal = _find_facts(tree)
    if literal is None:
        raise ConfigError([f"{file}:1: no FACTS = {{...}}: see README.md, 'add a repro'"])
    try:
        value = ast.literal_eval(literal)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        line = literal.lineno
        raise ConfigError([f"{file}:{line}: FACTS must be a literal: no names, calls or sums"]) from error
    doubles = [f"{file}:{key.lineno}: FACTS: the key {key.value!r} stands twice" for key in _doubles(literal)]
    if doubles:
        raise ConfigError(doubles)
    return Document(file=file, value=value, lines=dict(_lines(literal, ("FACTS",))))


def _find_facts(tree: ast.Module) -> ast.expr | None:
    """Return what is assigned to FACTS at the top of a module, with an annotation or without."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets, value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names = [name]
            case _:
                continue
        if "FACTS" in names:
            return value
    return None


def _doubles(literal: ast.expr) -> Iterator[ast.Constant]:
    """Yield the keys that stand in a dict for the second time: Python would keep the last."""
    for node in ast.walk(literal):
        seen: set[object] = set()
        for key in node.keys if isinstance(node, ast.Dict) else []:
            if isinstance(key, ast.Constant):
                if key.value in seen:
                    yield key
                seen.add(key.value)


def _lines(node: ast.expr, path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the line of every path inside a literal."""
    yield path, node.lineno
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield from _lines(value, (*path, key.value if isinstance(key.value, int) else str(key.value)))
    elif isinstance(node, (ast.List, ast.Tuple)):
        for i, item in enumerate(node.elts):
            yield from _lines(item, (*path, i))


def parse_repro(
    source: str, file: str, repro_id: str, raw_cases: Sequence[object], *,
    noise: object = None, emulates: bool = False,
) -> Repro:  # fmt: skip
    """Check FACTS and the cases of one repro; :class:`ConfigError` lists all mistakes.

    ``noise``: the module's NOISE, where it has one; ``emulates``: the module has emulate().
    """
    document = parse_facts(source, file)
    problems: list[str] = []
    if not PART.fullmatch(repro_id):
        problems.append(f"{file}:1: the file's name makes the repro's: use small letters, digits and _")
    facts, wrong = check_keys(Facts, document, ("FACTS",))
    cases, wrong_cases = _parse_cases(raw_cases, file, f"{repro_id}:", noise if emulates else None)
    problems += [*wrong, *wrong_cases]
    problems += [f"{file}:1: {text}" for text in _check_noise(noise, emulates, cases)]
    if facts is not None:
        found = _check_facts(facts, [case.id for case in cases])
        problems += [problem_at(document, ("FACTS", *path), text) for path, text in found]
        problems += [f"{file}:1: case {name}: {text}" for name, text in _check_cases(facts, cases)]
    if problems or facts is None:
        raise ConfigError(in_order(problems, file))
    return Repro(**vars(facts), id=repro_id, cases=tuple(cases), digest=digest_code(source, APART))


def _parse_cases(
    raw_cases: Sequence[object], file: str, prefix: str, noise: object
) -> tuple[list[Case], list[str]]:
    """Return the cases that are right in themselves, and what is wrong with the others."""
    cases: dict[str, Case] = {}
    problems: list[str] = []
    for i, raw in enumerate(raw_cases):
        name = raw.get("id", "?") if isinstance(raw, dict) else "?"
        case, wrong = check_keys(Case, Document(file=file, value=raw), (f"cases()[{i}] ({name})",))
        problems += wrong
        if case is None:
            continue
        if case.id in cases:
            problems.append(f"{file}:1: cases()[{i}]: the id {case.id!r} stands twice: rename one")
        given = isinstance(raw, dict) and "builds" in raw
        several = case.precision == "fp16-flag" and case.processes == 1 and not given
        cases[case.id] = replace(
            case, noise_key=noise_key(prefix, case.params, noise),
            builds=FLAG_BUILDS if several else case.builds,
            limits={**case.limits, **({BEYOND: 0.0} if case.tolerance else {})},
        )  # fmt: skip
    if not raw_cases:
        problems.append(f"{file}:1: cases() yields no case")
    return list(cases.values()), problems


def noise_key(prefix: str, params: Mapping[str, Scalar], noise: object) -> str:
    """Return what a case's noise depends on, or nothing: no precision, or a param of NOISE is not there."""
    names = sorted(str(name) for name in noise) if isinstance(noise, (tuple, list)) else []
    if not names or not {"precision", *names} <= params.keys():
        return ""
    return prefix + " ".join(f"{name}={params[name]}" for name in names)


def _check_facts(facts: Facts, known: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Check that FACTS names cases that are there, and who reported what; yield paths and what is wrong."""
    for i, workaround in enumerate(facts.workarounds):
        if workaround.case is not None and workaround.case not in known:
            yield ("workarounds", i, "case"), f"no case {workaround.case!r}{near(workaround.case, known)}"
    for i, expectation in enumerate(facts.expectations):
        yield from _check_patterns(expectation.cases, known, ("expectations", i, "cases"))
        if expectation.basis is Basis.REPORTED and not expectation.source:
            yield ("expectations", i, "source"), "is missing: what is reported names who says so"
    for i, twin in enumerate(facts.twins):
        yield from _check_patterns(twin.cases, known, ("twins", i, "cases"))
        if twin.reported and not twin.source:
            yield ("twins", i, "source"), "is missing: what is reported names who says so"


def _check_patterns(patterns: Sequence[str], known: Sequence[str], path: Path) -> Iterator[tuple[Path, str]]:
    for j, pattern in enumerate(patterns):
        if not fnmatch.filter(known, pattern):
            yield (*path, j), f"{pattern!r} fits no case{near(pattern, known)}"


def _check_cases(facts: Facts, cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Yield a case's id with what is wrong with its defects."""
    known = list(facts.defects)
    for case in cases:
        for name in case.defects:
            if name not in known:
                yield case.id, f"defects: {name!r} is not among FACTS['defects']{near(name, known)}"
        if case.defects and not case.noise_key:
            yield case.id, "defects: nothing emulates them: write emulate() and NOISE, give a precision"
        if case.defect and case.defect not in case.defects:
            yield case.id, f"defect: {case.defect!r} is not among the case's defects: add it there"
        if case.defect and case.control is not Control.NEGATIVE:
            yield case.id, 'defect: only a negative control has one put in: "control": "negative"'
        if case.processes > 1 and case.builds > 1:
            yield case.id, "builds: several processes build once each: leave out builds, or processes"


def _check_noise(noise: object, emulates: bool, cases: Sequence[Case]) -> Iterator[str]:
    """Check a module's NOISE; ``emulates``: it has emulate()."""
    if noise is None:
        if emulates:
            yield 'emulate() needs NOISE = (..., "precision"): the params that it depends on'
        return
    if not emulates:
        yield "NOISE without emulate(): write emulate(), or leave NOISE out"
    names = list(noise) if isinstance(noise, (tuple, list)) else []
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        yield f'NOISE must be a tuple of different names such as ("batch", "precision"), not {noise!r}'
        return
    if "precision" not in names:
        yield 'NOISE lacks "precision": every noise depends on it'
    params = sorted({name for case in cases for name in case.params})
    for name in names:
        if name not in params and params:
            yield f"NOISE: no case has the param {name!r}{near(name, params)}"
