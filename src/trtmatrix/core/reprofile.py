"""A repro file's FACTS and cases() to a :class:`Repro`, with every mistake named."""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import tokenize
from collections.abc import Sequence
from typing import Annotated, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.model import (
    PART,
    Basis,
    Case,
    Cause,
    Control,
    Expectation,
    Figure,
    Product,
    Repro,
    Scalar,
    Verdict,
    Workaround,
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no version specifier such as '==10.7.0' or '>=10.4,<10.8'") from error
    return text


def _part(text: str) -> str:
    if not PART.fullmatch(text):
        raise ValueError(f"{text!r} must match [a-z0-9.-]+: it is part of every cell's id")
    return text


class _Expectation(_Strict):
    cases: tuple[str, ...]
    versions: Annotated[str, AfterValidator(_specifier)] = ""
    product: Product = Product.TENSORRT
    verdict: Verdict
    basis: Basis
    source: str = ""
    on: str = ""
    note: str = ""


class _Workaround(_Strict):
    what: str
    case: str | None = None
    source: str = ""


class _Figure(_Strict):
    measure: str
    label: str


class _Facts(_Strict):
    title: str
    upstream: str
    url: str
    summary: str
    figure: _Figure
    related: tuple[str, ...] = ()
    expectations: tuple[_Expectation, ...] = ()
    workarounds: tuple[_Workaround, ...] = ()


class _Case(_Strict):
    id: Annotated[str, AfterValidator(_part)]
    params: dict[str, Scalar]
    limits: dict[str, float]
    control: Control | None = None
    products: tuple[Product, ...] = tuple(Product)
    needs: tuple[str, ...] = ()
    bug_is: tuple[Cause, ...] = ()
    seconds: Annotated[float, Field(gt=0)] = 300.0


_CASE: TypeAdapter[_Case] = TypeAdapter(_Case)


def digest_code(source: str) -> str:
    """Return the SHA-256 of Python source, comments and blank lines apart (UTF-8, hexadecimal)."""
    skipped = {tokenize.COMMENT, tokenize.NL}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = [(tokenize.tok_name[token.type], token.string) for token in tokens if token.type not in skipped]
    return hashlib.sha256(repr(kept).encode()).hexdigest()


def parse_facts(source: str, file: str) -> tuple[dict[str, Any], ast.expr]:
    """Read the literal FACTS of a repro without executing it; returns it with its syntax tree."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError([f"{file}:{error.lineno}: not valid Python: {error.msg}"]) from error
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "FACTS" for target in node.targets
        ):
            try:
                return ast.literal_eval(node.value), node.value
            except ValueError as error:
                raise ConfigError(
                    [f"{file}:{node.lineno}: FACTS must be a literal: no names, calls or sums"]
                ) from error
    raise ConfigError([f"{file}:1: no FACTS = {{...}}: see README.md, 'Add a repro'"])


def parse_repro(source: str, file: str, repro_id: str, raw_cases: Sequence[object]) -> Repro:
    """Check FACTS and the cases of one repro; :class:`ConfigError` lists all mistakes."""
    raw, tree = parse_facts(source, file)
    problems: list[str] = []
    facts: _Facts | None = None
    try:
        facts = _Facts.model_validate(raw)
    except ValidationError as error:
        problems += [_facts_problem(dict(detail), tree, file) for detail in error.errors()]
    cases = _parse_cases(raw_cases, file, problems)
    if facts is not None:
        problems += _cross_check(facts, cases, tree, file)
    if problems or facts is None:
        raise ConfigError(problems)
    return Repro(
        id=_part(repro_id), title=facts.title, upstream=facts.upstream, url=facts.url,
        summary=facts.summary, figure=Figure(**facts.figure.model_dump()), related=facts.related,
        expectations=tuple(_expectation(e) for e in facts.expectations),
        workarounds=tuple(Workaround(**w.model_dump()) for w in facts.workarounds),
        cases=tuple(cases), digest=digest_code(source),
    )  # fmt: skip


def _expectation(raw: _Expectation) -> Expectation:
    values = {name: getattr(raw, name) for name in _Expectation.model_fields}
    return Expectation(**{**values, "versions": SpecifierSet(raw.versions, prereleases=True)})


def _parse_cases(raw_cases: Sequence[object], file: str, problems: list[str]) -> list[Case]:
    cases: list[Case] = []
    for i, raw in enumerate(raw_cases):
        name = raw.get("id", "?") if isinstance(raw, dict) else "?"
        try:
            parsed = _CASE.validate_python(raw)
        except ValidationError as error:
            for detail in error.errors():
                place = ".".join(str(part) for part in detail["loc"])
                problems.append(f"{file}: cases()[{i}] ({name}): {place}: {_words(dict(detail))}")
            continue
        if parsed.id in {case.id for case in cases}:
            problems.append(f"{file}: cases()[{i}]: the id {parsed.id!r} stands twice: rename one")
        cases.append(_case(parsed))
    if not raw_cases:
        problems.append(f"{file}: cases() yields no case")
    return cases


def _case(raw: _Case) -> Case:
    sets = {name: frozenset(getattr(raw, name)) for name in ("products", "needs", "bug_is")}
    plain = {name: getattr(raw, name) for name in ("id", "params", "limits", "control", "seconds")}
    return Case(**plain, **sets)


def _cross_check(facts: _Facts, cases: list[Case], tree: ast.expr, file: str) -> list[str]:
    """Check that work-arounds name cases that are there."""
    known = [case.id for case in cases]
    problems = []
    for i, workaround in enumerate(facts.workarounds):
        if workaround.case is not None and workaround.case not in known:
            near = difflib.get_close_matches(workaround.case, known, n=1)
            hint = f"; perhaps you meant {near[0]!r}" if near else ""
            line = _line_at(tree, ("workarounds", i, "case"))
            problems.append(f"{file}:{line}: FACTS.workarounds[{i}].case: no case {workaround.case!r}{hint}")
    return problems


def _facts_problem(detail: dict[str, Any], tree: ast.expr, file: str) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    return f"{file}:{_line_at(tree, detail['loc'])}: FACTS.{place}: {_words(detail)}"


def _words(detail: dict[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return "unknown key"
    if detail["type"] == "missing":
        return "is missing"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]} (found {detail['input']!r})"


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
