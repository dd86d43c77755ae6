"""A repro file's FACTS and cases() to a :class:`Repro`, with every mistake named."""

from __future__ import annotations

import ast
import difflib
import fnmatch
import hashlib
import io
import math
import tokenize
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.core.errors import ConfigError, shorten
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
from trtmatrix.core.yamltext import dotted


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
    cases: Annotated[tuple[str, ...], Field(min_length=1)]
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


_Limit = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""NaN would hold for every value, infinity too."""


Need = Literal["torch", "torch_tensorrt"]
"""What only some images have: facts of matrix.yaml, and the modules of that name."""


def _finite(value: Scalar) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a parameter must be finite: strict JSON has no word for it")
    return value


class _Case(_Strict):
    id: Annotated[str, AfterValidator(_part)]
    params: dict[str, Annotated[Scalar, AfterValidator(_finite)]]
    limits: dict[str, _Limit]
    control: Control | None = None
    products: Annotated[tuple[Product, ...], Field(min_length=1)] = tuple(Product)
    needs: tuple[Need, ...] = ()
    bug_is: tuple[Cause, ...] = ()
    remarks: tuple[Annotated[str, Field(pattern="^[a-z]{1,8}$")], ...] = ()
    seconds: Annotated[_Limit, Field(gt=0)] = 300.0


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
        raise ConfigError([f"{file}:{error.lineno or 1}: not valid Python: {error.msg}"]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError([f"{file}:1: not valid Python: {error}"]) from error
    value = _find_facts(tree)
    if value is None:
        raise ConfigError([f"{file}:1: no FACTS = {{...}}: see README.md, 'Add a repro'"])
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


def parse_repro(source: str, file: str, repro_id: str, raw_cases: Sequence[object]) -> Repro:
    """Check FACTS and the cases of one repro; :class:`ConfigError` lists all mistakes."""
    raw, tree = parse_facts(source, file)
    problems: list[str] = []
    if not PART.fullmatch(repro_id):
        problems.append(f"{file}:1: the file's name makes the repro's: use small letters, digits and _")
    facts: _Facts | None = None
    try:
        facts = _Facts.model_validate(raw)
    except ValidationError as error:
        problems += [_facts_problem(detail, tree, file) for detail in error.errors()]
    cases = _parse_cases(raw_cases, file, problems)
    if facts is not None:
        problems += _cross_check(facts, cases, tree, file)
    if problems or facts is None:
        raise ConfigError(problems)
    return Repro(
        id=repro_id, title=facts.title, upstream=facts.upstream, url=facts.url,
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
                words = _words(detail, list(_Case.model_fields))
                problems.append(f"{file}:1: cases()[{i}] ({name}): {dotted(detail['loc'])}: {words}")
            continue
        if parsed.id in {case.id for case in cases}:
            problems.append(f"{file}:1: cases()[{i}]: the id {parsed.id!r} stands twice: rename one")
        cases.append(_case(parsed))
    if not raw_cases:
        problems.append(f"{file}:1: cases() yields no case")
    return cases


def _case(raw: _Case) -> Case:
    return Case(
        id=raw.id, params=raw.params, limits=raw.limits, control=raw.control, seconds=raw.seconds,
        products=frozenset(raw.products), needs=frozenset(raw.needs), bug_is=frozenset(raw.bug_is),
        remarks=frozenset(raw.remarks),
    )  # fmt: skip


def _cross_check(facts: _Facts, cases: list[Case], tree: ast.expr, file: str) -> list[str]:
    """Check that work-arounds and expectations name cases that are there, and who reported what."""
    known = [case.id for case in cases]
    problems: list[str] = []

    def problem(path: tuple[int | str, ...], text: str) -> None:
        problems.append(f"{file}:{_line_at(tree, path)}: {dotted(('FACTS', *path))}: {text}")

    for i, workaround in enumerate(facts.workarounds):
        if workaround.case is not None and workaround.case not in known:
            problem(("workarounds", i, "case"), f"no case {workaround.case!r}{_near(workaround.case, known)}")
    for i, expectation in enumerate(facts.expectations):
        for j, pattern in enumerate(expectation.cases):
            if not fnmatch.filter(known, pattern):
                text = f"{pattern!r} fits no case{_near(pattern, known)}"
                problem(("expectations", i, "cases", j), text)
        if expectation.basis is Basis.REPORTED and not expectation.source:
            problem(("expectations", i, "source"), "is missing: what is reported names who says so")
    return problems


def _near(word: str, known: Sequence[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""


def _facts_problem(detail: ErrorDetails, tree: ast.expr, file: str) -> str:
    loc = detail["loc"]
    return f"{file}:{_line_at(tree, loc)}: {dotted(('FACTS', *loc))}: {_words(detail, _facts_keys(loc))}"


def _facts_keys(loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that FACTS may have beside one that it may not."""
    models: dict[object, type[BaseModel]] = {
        "figure": _Figure, "expectations": _Expectation, "workarounds": _Workaround,
    }  # fmt: skip
    model = models.get(loc[0], _Facts) if len(loc) > 1 else _Facts
    return list(model.model_fields)


def _words(detail: ErrorDetails, keys: list[str]) -> str:
    if detail["type"] == "extra_forbidden":
        return f"unknown key{_near(str(detail['loc'][-1]), keys)}; known here: {', '.join(keys)}"
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
