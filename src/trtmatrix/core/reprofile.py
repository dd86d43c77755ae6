"""A repro file's FACTS and cases() to a :class:`Repro`, with every mistake named."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.core.digest import digest_code
from trtmatrix.core.errors import ConfigError, shorten
from trtmatrix.core.model import (
    BEYOND,
    PART,
    Case,
    Defect,
    Expectation,
    Figure,
    Repro,
    Scalar,
    Specifier,
    Twin,
    Workaround,
)
from trtmatrix.core.reprochecks import check_cases, check_facts, check_noise, near
from trtmatrix.core.reprokeys import CaseKeys, ExpectationKeys, FactsKeys, TwinKeys, keys_beside
from trtmatrix.core.yamltext import dotted

_CASE: TypeAdapter[CaseKeys] = TypeAdapter(CaseKeys)

APART = ("FACTS", "cases")
"""What of a repro no run sees: what is told and expected of it, and its list of cases.

What is asked of a case has digests of its own."""


def parse_facts(source: str, file: str) -> tuple[dict[str, Any], ast.expr]:
    """Read the literal FACTS of a repro without executing it; returns it with its syntax tree."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError([f"{file}:{error.lineno or 1}: not valid Python: {error.msg}"]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError([f"{file}:1: not valid Python: {error}"]) from error
    value = _find_facts(tree)
    if value is None:
        raise ConfigError([f"{file}:1: no FACTS = {{...}}: see README.md, 'add a repro'"])
    try:
        facts = ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        line = value.lineno
        raise ConfigError([f"{file}:{line}: FACTS must be a literal: no names, calls or sums"]) from error
    doubles = [f"{file}:{key.lineno}: FACTS: the key {key.value!r} stands twice" for key in _doubles(value)]
    if doubles:
        raise ConfigError(doubles)
    return facts, value


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


def parse_repro(
    source: str,
    file: str,
    repro_id: str,
    raw_cases: Sequence[object],
    *,
    noise: object = None,
    emulates: bool = False,
) -> Repro:
    """Check FACTS and the cases of one repro; :class:`ConfigError` lists all mistakes.

    ``noise``: the module's NOISE, where it has one; ``emulates``: the module has emulate().
    """
    raw, tree = parse_facts(source, file)
    problems: list[str] = []
    if not PART.fullmatch(repro_id):
        problems.append(f"{file}:1: the file's name makes the repro's: use small letters, digits and _")
    facts: FactsKeys | None = None
    try:
        facts = FactsKeys.model_validate(raw)
    except ValidationError as error:
        problems += [_facts_problem(detail, tree, file) for detail in error.errors()]
    cases = _parse_cases(raw_cases, file, f"{repro_id}:", noise if emulates else None, problems)
    problems += [f"{file}:1: {text}" for text in check_noise(noise, emulates, cases)]
    if facts is not None:
        for path, text in check_facts(facts, cases):
            problems.append(f"{file}:{_line_at(tree, path)}: {dotted(('FACTS', *path))}: {text}")
        problems += [f"{file}:1: case {name}: {text}" for name, text in check_cases(facts, cases)]
    if problems or facts is None:
        raise ConfigError(problems)
    return _repro(repro_id, facts, cases, digest_code(source, APART))


def _repro(repro_id: str, facts: FactsKeys, cases: Sequence[Case], digest: str) -> Repro:
    return Repro(
        id=repro_id, title=facts.title, upstream=facts.upstream, url=facts.url,
        summary=facts.summary, figure=Figure(**facts.figure.model_dump()), related=facts.related,
        expectations=tuple(_expectation(e) for e in facts.expectations),
        workarounds=tuple(Workaround(**w.model_dump()) for w in facts.workarounds),
        defects={name: Defect(**defect.model_dump()) for name, defect in facts.defects.items()},
        twins=tuple(_twin(twin) for twin in facts.twins), cases=tuple(cases), digest=digest,
    )  # fmt: skip


def _expectation(raw: ExpectationKeys) -> Expectation:
    values = {name: getattr(raw, name) for name in ExpectationKeys.model_fields}
    specifiers = {"versions": Specifier(raw.versions), "compute": Specifier(raw.compute)}
    return Expectation(**{**values, **specifiers})


def _twin(raw: TwinKeys) -> Twin:
    return Twin(**{name: getattr(raw, name) for name in TwinKeys.model_fields})


def _parse_cases(
    raw_cases: Sequence[object], file: str, prefix: str, noise: object, problems: list[str]
) -> list[Case]:
    cases: list[Case] = []
    for i, raw in enumerate(raw_cases):
        name = raw.get("id", "?") if isinstance(raw, dict) else "?"
        try:
            parsed = _CASE.validate_python(raw)
        except ValidationError as error:
            for detail in error.errors():
                words = _words(detail, list(CaseKeys.model_fields))
                problems.append(f"{file}:1: cases()[{i}] ({name}): {dotted(detail['loc'])}: {words}")
            continue
        if parsed.id in {case.id for case in cases}:
            problems.append(f"{file}:1: cases()[{i}]: the id {parsed.id!r} stands twice: rename one")
        cases.append(_case(parsed, noise_key(prefix, parsed.params, noise)))
    if not raw_cases:
        problems.append(f"{file}:1: cases() yields no case")
    return cases


def noise_key(prefix: str, params: Mapping[str, Scalar], noise: object) -> str:
    """Return what a case's noise depends on, or nothing: no precision, or a param of NOISE is not there."""
    names = sorted(str(name) for name in noise) if isinstance(noise, (tuple, list)) else []
    if not names or not {"precision", *names} <= params.keys():
        return ""
    return prefix + " ".join(f"{name}={params[name]}" for name in names)


def _case(raw: CaseKeys, key: str) -> Case:
    several = raw.params.get("precision") == "fp16-flag" and raw.processes == 1
    tolerance = raw.tolerance.model_dump() if raw.tolerance else {}
    return Case(
        id=raw.id, params=raw.params, limits={**raw.limits, **({BEYOND: 0.0} if tolerance else {})},
        control=raw.control, seconds=raw.seconds,
        defects=raw.defects, defect=raw.defect, useful=raw.useful, noise_key=key,
        builds=raw.builds or (FLAG_BUILDS if several else 1), processes=raw.processes,
        products=frozenset(raw.products), needs=frozenset(raw.needs), bug_is=frozenset(raw.bug_is),
        remarks=frozenset(raw.remarks), dangerous=raw.dangerous, keep=raw.keep, tolerance=tolerance,
    )  # fmt: skip


FLAG_BUILDS = 3
"""Builds of a case that leaves the precision to the builder: it may choose another each time."""


def _facts_problem(detail: ErrorDetails, tree: ast.expr, file: str) -> str:
    loc = detail["loc"]
    return f"{file}:{_line_at(tree, loc)}: {dotted(('FACTS', *loc))}: {_words(detail, keys_beside(loc))}"


def _words(detail: ErrorDetails, keys: list[str]) -> str:
    if detail["type"] == "extra_forbidden":
        return f"unknown key{near(str(detail['loc'][-1]), keys)}; known here: {', '.join(keys)}"
    if detail["type"] == "missing":
        return "is missing: add it"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]} (found {shorten(detail['input'])})"


def _line_at(node: ast.expr, path: tuple[int | str, ...]) -> int:
    """Return the line of a path inside a literal, or of its nearest parent."""
    for part in path:
        inner: ast.expr | None = None
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            inner = next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == part), None)
        elif isinstance(node, (ast.List, ast.Tuple)) and isinstance(part, int):
            inner = node.elts[part] if part < len(node.elts) else None
        if inner is None:
            break
        node = inner
    return node.lineno
