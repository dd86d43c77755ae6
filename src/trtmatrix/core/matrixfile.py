"""Reads matrix.yaml's text: every mistake at once, each with file, line, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from packaging.version import Version as Release
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.core import matrixkeys as keys
from trtmatrix.core.config import Compute, Driver, Fact, Matrix, Version
from trtmatrix.core.errors import ConfigError, shorten
from trtmatrix.core.keyproblems import in_order, is_echo, key_problem, near, problem_at, unknown_key
from trtmatrix.core.matrixkeys import is_release, to_matrix, to_version
from trtmatrix.core.model import PART, Product
from trtmatrix.core.yamltext import Document, Path, parse_yaml


def parse_matrix(text: str, file: str = "matrix.yaml") -> Matrix:
    """Read matrix.yaml's text; :class:`ConfigError` lists every mistake with line and remedy."""
    document = parse_yaml(text, file)
    problems = list(document.problems)
    try:
        matrix = to_matrix(keys.Matrix.model_validate(document.value))
    except ValidationError as error:
        problems += [
            _line(detail, document) for detail in error.errors() if _relevant(detail, document)
        ]  # fmt: skip
        sources = _lookup(document.value, ("sources",))
        problems += _cross_check(_whole_versions(document.value), sources, document)
        raise ConfigError(in_order(problems, file)) from error
    problems += _cross_check(enumerate(matrix.versions), matrix.sources, document)
    if problems:
        raise ConfigError(in_order(problems, file))
    return matrix


def _whole_versions(value: object) -> list[tuple[int, Version]]:
    """Return the entries that are right in themselves, so that they are checked further at once."""
    entries = _lookup(value, ("versions",))
    found: list[tuple[int, Version]] = []
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        try:
            found.append((i, to_version(keys.Version.model_validate(entry))))
        except ValidationError:
            continue
    return found


_ORIGINS = {"ImageOrigin": "image", "WheelsOrigin": "wheels", "InterpreterOrigin": "interpreter"}


def _relevant(detail: ErrorDetails, document: Document) -> bool:
    """Whether an error is about the kind of origin that the user wrote, and no echo of another."""
    if is_echo(detail):
        return False
    kind = next((str(part) for part in detail["loc"] if str(part) in _ORIGINS), None)
    if kind is None:
        return True
    where = detail["loc"][: list(detail["loc"]).index(kind)]
    value = _lookup(document.value, where)
    written = [key for key in _ORIGINS.values() if isinstance(value, dict) and key in value]
    return (written or ["image"])[0] == _ORIGINS[kind]


def _lookup(value: Any, path: Path) -> Any:  # noqa: ANN401
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _line(detail: ErrorDetails, document: Document) -> str:
    loc: Path = tuple(part for part in detail["loc"] if str(part) not in _ORIGINS)
    return problem_at(document, loc, _message(detail, loc, document))


def _message(detail: ErrorDetails, loc: Path, document: Document) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown_key(str(loc[-1]), _keys_at(loc[:-1], detail["loc"]), detail["input"])
    if detail["type"] == "missing" and loc[-2:] == ("origin", "image"):
        return "is missing: write image, wheels or interpreter here"
    return key_problem(detail, loc, document)


def _keys_at(parent: Path, loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are allowed beside a wrong one."""
    model: type[BaseModel] = keys.Matrix
    shape: list[str | int] = [part for part in parent if isinstance(part, str)]
    kinds: dict[str, type[BaseModel]] = {
        "ImageOrigin": keys.ImageOrigin,
        "WheelsOrigin": keys.WheelsOrigin,
        "InterpreterOrigin": keys.InterpreterOrigin,
    }
    origin = next((kinds[str(part)] for part in loc if str(part) in kinds), keys.ImageOrigin)
    facts = ("library", "python", "cuda", "torch", "torch_tensorrt")
    models: dict[str, type[BaseModel]] = {
        "versions": keys.Version, "origin": origin, "build": keys.Build, "driver": keys.Driver,
        "compute": keys.Compute, **dict.fromkeys(facts, keys.Fact),
    }  # fmt: skip
    for part in shape:
        model = keys.Source if shape[0] == "sources" else models.get(str(part), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _unknown_key(key: str, allowed: list[str], value: object) -> str:
    if key in _ORIGINS.values():
        return "an origin has one of image, wheels and interpreter: remove the others"
    if "image" in allowed and value is not None:
        allowed = [*allowed, "wheels", "interpreter"]
    return unknown_key(key, allowed)


def _cross_check(versions: Iterable[tuple[int, Version]], sources: object, document: Document) -> list[str]:
    """Check what no single field shows: doubles, names, sources, ranges."""
    known = [str(key) for key in sources] if isinstance(sources, dict) else []
    problems: list[str] = []

    def problem(path: Path, text: str) -> None:
        problems.append(problem_at(document, path, text))

    first: dict[str, int] = {}
    for i, version in versions:
        path: Path = ("versions", i, "version")
        if version.name in first:
            problem(path, f"{version.name!r} stands twice (first on line {first[version.name]}): remove one")
        first.setdefault(version.name, document.line_of(path))
        if (text := _name_problem(version)) is not None:
            problem(path, text)
        for key, value in vars(version).items():
            if isinstance(value, (Fact, Driver, Compute)) and value.source not in known:
                nearest = near(value.source, known) or "; add it there"
                text = f"no source {shorten(value.source)} in sources{nearest}"
                problem(("versions", i, key, "source"), text)
            if isinstance(value, Compute) and Release(value.min) > Release(value.max):
                problem(("versions", i, key, "min"), f"{value.min} is above max {value.max}: swap them")
    return problems


def _name_problem(version: Version) -> str | None:
    """Return what is wrong with a column's name, which is part of every cell's id."""
    name, product = version.name, version.product
    if not PART.fullmatch(name):
        return f"{shorten(name)} must match [a-z0-9.-]+: it is part of every cell's id"
    if not is_release(re.sub(r"^[a-z-]+", "", name)):
        return f"{shorten(name)} must end in a release number such as 10.7.0"
    if product is not Product.TENSORRT and not re.match(rf"{product.value}-[0-9]", name):
        return f"a version of {product.value} is named {product.value}-<release>"
    named = next((p.value for p in reversed(Product) if re.match(rf"{p.value}-[0-9]", name)), None)
    if product is Product.TENSORRT and named not in {None, product.value}:
        return f"{name!r} is the name of a version of {named}: write product: {named} beside it"
    return None
