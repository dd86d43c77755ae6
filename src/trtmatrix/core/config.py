"""matrix.yaml: its types, its checks, its JSON Schema."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion
from packaging.version import Version as Release
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.model import PART, Known, Product, release_of
from trtmatrix.core.yamltext import Document, Path, dotted, parse_yaml


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Strict):
    """Where a fact was read. ``url`` is empty for what is only recalled."""

    title: str
    url: str = ""


class Fact(_Strict):
    """A value, how it is known, and the key of its source."""

    value: str
    known: Known
    source: str


class Driver(_Strict):
    """The least driver: ``least`` for any GPU; on a data-centre GPU also these older branches."""

    least: str
    datacenter: tuple[str, ...] = ()
    known: Known
    source: str


class Compute(_Strict):
    """The compute capabilities that a version supports, both ends included."""

    min: str
    max: str
    known: Known
    source: str


def _image(value: object) -> object:
    """Refuse an image reference that has neither tag nor digest."""
    if isinstance(value, str) and not re.search(r"(:[\w][\w.-]{0,127}|@sha256:[0-9a-f]{64})$", value):
        raise ValueError("an image needs a tag or a digest, such as nvcr.io/nvidia/pytorch:24.12-py3")
    return value


Image = Annotated[str, BeforeValidator(_image)]


class Build(_Strict):
    """How an image of ours is made: wheels from an index, put on a pinned base."""

    base: Image
    wheels: tuple[str, ...]
    index: str = ""


class ImageOrigin(_Strict):
    """A container image: pulled from its registry, or (with ``build``) made by us."""

    image: Image
    build: Build | None = None


class WheelsOrigin(_Strict):
    """Wheels that the tool installs into an environment of its own."""

    wheels: Annotated[tuple[str, ...], Field(min_length=1)]


class InterpreterOrigin(_Strict):
    """A Python interpreter of the host that can import the product."""

    interpreter: str


Origin = ImageOrigin | WheelsOrigin | InterpreterOrigin


class Version(_Strict):
    """One pinned release of a product and where it comes from: a column."""

    version: str
    product: Product = Product.TENSORRT
    addition: bool = False
    note: str = ""
    origin: Origin
    library: Fact
    python: Fact | None = None
    cuda: Fact | None = None
    torch: Fact | None = None
    torch_tensorrt: Fact | None = None
    driver: Driver | None = None
    compute: Compute | None = None

    @property
    def name(self) -> str:
        """The column's name."""
        return self.version

    @property
    def release(self) -> Release:
        """What orders the versions of one product."""
        return release_of(self.version)

    @property
    def runtime(self) -> Literal["container", "wheels", "host"]:
        """What starts its cells."""
        match self.origin:
            case ImageOrigin():
                return "container"
            case WheelsOrigin():
                return "wheels"
            case InterpreterOrigin():
                return "host"

    def facts(self) -> dict[str, Fact]:
        """The facts that a run in the image can check, by name."""
        named = {n: getattr(self, n) for n in ("library", "python", "cuda", "torch", "torch_tensorrt")}
        return {name: fact for name, fact in named.items() if fact is not None}


class Matrix(_Strict):
    """The whole of matrix.yaml."""

    schema_: Literal[1] = Field(alias="schema")
    sources: dict[str, Source]
    versions: Annotated[tuple[Version, ...], Field(min_length=1)]

    def version(self, name: str) -> Version:
        """Return a column by its name; ``KeyError`` where there is none."""
        return next(v for v in self.versions if v.name == name)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of matrix.yaml, for editors."""
    schema = Matrix.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_matrix(text: str, file: str = "matrix.yaml") -> Matrix:
    """Read matrix.yaml's text; :class:`ConfigError` lists every mistake with line and remedy."""
    document = parse_yaml(text, file)
    try:
        matrix = Matrix.model_validate(document.value)
    except ValidationError as error:
        raise ConfigError(_explain(error, document)) from error
    problems = _cross_check(matrix, document)
    if problems:
        raise ConfigError(problems)
    return matrix


def _explain(error: ValidationError, document: Document) -> list[str]:
    """Turn pydantic's errors into lines of ours, those of the wrong kinds of origin left out."""
    details = error.errors()
    lines = [_line(detail, document) for detail in details if _relevant(detail, document)]
    return sorted(set(lines), key=lambda line: (int(line.split(":")[1]), line))


_ORIGINS = {"ImageOrigin": "image", "WheelsOrigin": "wheels", "InterpreterOrigin": "interpreter"}


def _relevant(detail: ErrorDetails, document: Document) -> bool:
    """Whether an error is about the kind of origin that the user wrote, and no echo of another."""
    if detail["type"] == "too_short" and detail["input"]:
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
    prefix = f"{document.file}:{document.line_of(loc)}: {dotted(loc)}: "
    return prefix + _message(detail, loc, document)


def _message(detail: ErrorDetails, loc: Path, document: Document) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return _unknown_key(str(loc[-1]), _keys_at(loc[:-1], detail["loc"]))
    if kind == "missing":
        return "is missing"
    if kind == "string_type" and loc in document.numbers:
        written = document.numbers[loc]
        return (
            f"{written} without quotes is the YAML number {value!r}, and 10.10 would become 10.1: "
            f'write "{written}"'
        )
    if kind in {"enum", "literal_error"}:
        expected = detail.get("ctx", {}).get("expected", "")
        return f"{value!r} is not one of {expected}" + _near(str(value), re.findall(r"'([^']+)'", expected))
    return (
        detail["msg"].removeprefix("Value error, ")[:1].lower()
        + detail["msg"].removeprefix("Value error, ")[1:]
        + f" (found {value!r})"
    )


def _keys_at(parent: Path, loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are allowed beside a wrong one."""
    model: type[BaseModel] = Matrix
    shape: list[str | int] = [part for part in parent if isinstance(part, str)]
    kinds = {
        "ImageOrigin": ImageOrigin,
        "WheelsOrigin": WheelsOrigin,
        "InterpreterOrigin": InterpreterOrigin,
    }
    origin = next((kinds[str(part)] for part in loc if str(part) in kinds), ImageOrigin)
    models: dict[str, type[BaseModel]] = {
        "versions": Version, "origin": origin, "build": Build, "driver": Driver, "compute": Compute,
        **dict.fromkeys(("library", "python", "cuda", "torch", "torch_tensorrt"), Fact),
    }  # fmt: skip
    for part in shape:
        model = Source if shape[0] == "sources" else models.get(str(part), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _unknown_key(key: str, allowed: list[str]) -> str:
    return f"unknown key{_near(key, allowed)}; known here: {', '.join(allowed)}"


def _near(word: str, words: list[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, words, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""


def _cross_check(matrix: Matrix, document: Document) -> list[str]:
    """Check what no single field shows: names, doubles, sources, numbers."""
    problems: list[str] = []

    def problem(path: Path, text: str) -> None:
        problems.append(f"{document.file}:{document.line_of(path)}: {dotted(path)}: {text}")

    first: dict[str, int] = {}
    for i, version in enumerate(matrix.versions):
        path: Path = ("versions", i, "version")
        if version.name in first:
            problem(
                path,
                f"{version.name!r} stands twice (first on line {first[version.name]}): remove one",
            )
        first.setdefault(version.name, document.line_of(path))
        if not PART.fullmatch(version.name):
            problem(path, f"{version.name!r} must match [a-z0-9.-]+: it is part of every cell's id")
        elif not _is_release(version.name):
            problem(path, f"{version.name!r} must end in a release number such as 10.7.0")
        if version.product is not Product.TENSORRT and not version.name.startswith(version.product.value):
            problem(
                path,
                f"a version of {version.product.value} is named {version.product.value}-<release>",
            )
        for key, value in version:
            if isinstance(value, (Fact, Driver, Compute)) and value.source not in matrix.sources:
                near = _near(value.source, list(matrix.sources))
                problem(("versions", i, key, "source"), f"no source {value.source!r} in sources{near}")
            for number in _numbers(value):
                if not _is_release(number):
                    problem(("versions", i, key), f"{number!r} is no version number")
    return problems


def _numbers(value: object) -> tuple[str, ...]:
    """Return what must read as a version number."""
    match value:
        case Driver():
            return (value.least, *value.datacenter)
        case Compute():
            return (value.min, value.max)
        case _:
            return ()


def _is_release(text: str) -> bool:
    try:
        release_of(text)
    except InvalidVersion:
        return False
    return True
