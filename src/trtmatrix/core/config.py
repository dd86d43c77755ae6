"""matrix.yaml: its types, its checks, its JSON Schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version as Release
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
)
from pydantic_core import ErrorDetails

from trtmatrix.core.errors import ConfigError
from trtmatrix.core.model import PART, Known, Product, release_of
from trtmatrix.core.yamltext import Document, Path, dotted, parse_yaml


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"@sha256:[0-9a-f]{64}"
IMAGE = f"^{_HOST}{_PATH}(?:/{_PATH})*(?:{_TAG}|(?:{_TAG})?{_DIGEST})$"
"""An image reference with a tag or a digest, as registries define it."""

NUMBER = r"^[0-9]+(?:\.[0-9]+)*(?:[a-z0-9.+-]*[a-z0-9])?$"
"""What a version number looks like; whether it is one is packaging's to say."""


def _image(value: str) -> str:
    """Refuse an image reference that has neither tag nor digest."""
    if not re.fullmatch(IMAGE.strip("^$"), value):
        raise ValueError("an image needs a tag or a digest, such as nvcr.io/nvidia/pytorch:24.12-py3")
    return value


def _number(value: str) -> str:
    """Refuse what is no version number: nothing could be compared with it."""
    if not re.fullmatch(NUMBER.strip("^$"), value) or not _is_release(value):
        raise ValueError('no version number such as "8.9" or "10.7.0.23"')
    return value


def _wheel(value: str) -> str:
    """Refuse what pip would not read as one requirement, options above all."""
    try:
        Requirement(value)
    except InvalidRequirement as error:
        if value.startswith("-") or not value.endswith(".whl"):
            raise ValueError('no requirement such as "onnxruntime==1.31.1"') from error
    return value


def _schema_number(value: object) -> object:
    """Refuse ``true`` and ``1.0``, which Python takes for 1."""
    if type(value) is not int or value != 1:
        raise ValueError("this trtmatrix reads schema: 1; update it if the file is newer")
    return value


Image = Annotated[str, AfterValidator(_image), Field(json_schema_extra={"pattern": IMAGE})]
Number = Annotated[str, AfterValidator(_number), Field(json_schema_extra={"pattern": NUMBER})]
Wheel = Annotated[str, AfterValidator(_wheel)]
Name = Annotated[str, Field(json_schema_extra={"pattern": f"^{PART.pattern}$"})]


class Source(_Strict):
    """Where a fact was read. ``url`` is empty for what is only recalled."""

    title: str
    url: str = ""


class Fact(_Strict):
    """A value, how it is known, and the key of its source."""

    value: Number
    known: Known
    source: str


class Driver(_Strict):
    """The least driver: ``least`` for any GPU; on a data-centre GPU also these older branches."""

    least: Number
    datacenter: tuple[Number, ...] = ()
    known: Known
    source: str


class Compute(_Strict):
    """The compute capabilities that a version supports, both ends included."""

    min: Number
    max: Number
    known: Known
    source: str


class Build(_Strict):
    """How an image of ours is made: wheels from an index, put on a pinned base."""

    base: Image
    wheels: Annotated[tuple[Wheel, ...], Field(min_length=1)]
    index: str = ""


class ImageOrigin(_Strict):
    """A container image: pulled from its registry, or (with ``build``) made by us."""

    image: Image
    build: Build | None = None


class WheelsOrigin(_Strict):
    """Wheels that the tool installs into an environment of its own."""

    wheels: Annotated[tuple[Wheel, ...], Field(min_length=1)]


class InterpreterOrigin(_Strict):
    """A Python interpreter of the host that can import the product."""

    interpreter: Annotated[str, Field(min_length=1)]


Origin = ImageOrigin | WheelsOrigin | InterpreterOrigin


class Version(_Strict):
    """One pinned release of a product and where it comes from: a column."""

    version: Name
    product: Product = Product.TENSORRT
    addition: Annotated[bool, Strict()] = False
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

    schema_: Annotated[Literal[1], BeforeValidator(_schema_number)] = Field(alias="schema")
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
    problems = list(document.problems)
    try:
        matrix = Matrix.model_validate(document.value)
    except ValidationError as error:
        problems += [
            _line(detail, document) for detail in error.errors() if _relevant(detail, document)
        ]  # fmt: skip
        sources = _lookup(document.value, ("sources",))
        problems += _cross_check(_whole_versions(document.value), sources, document)
        raise ConfigError(_in_order(problems, file)) from error
    problems += _cross_check(enumerate(matrix.versions), matrix.sources, document)
    if problems:
        raise ConfigError(_in_order(problems, file))
    return matrix


def _in_order(problems: Iterable[str], file: str) -> list[str]:
    """Return each problem once, by line."""
    return sorted(
        set(problems), key=lambda line: (int(line.removeprefix(f"{file}:").partition(":")[0]), line)
    )


def _whole_versions(value: object) -> list[tuple[int, Version]]:
    """Return the entries that are right in themselves, so that they are checked further at once."""
    entries = _lookup(value, ("versions",))
    found: list[tuple[int, Version]] = []
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        try:
            found.append((i, Version.model_validate(entry)))
        except ValidationError:
            continue
    return found


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


_KINDS = {
    "model_type": "must be keys with values (key: value)",
    "dict_type": "must be keys with values (key: value)",
    "tuple_type": "must be a list ([a, b])",
    "too_short": "must have an item at least",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
}


def _message(detail: ErrorDetails, loc: Path, document: Document) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        return _unknown_key(str(loc[-1]), _keys_at(loc[:-1], detail["loc"]), value)
    if kind == "missing":
        others = ", wheels or interpreter" if loc[-2:] == ("origin", "image") else ""
        return f"is missing: write {loc[-1]}{others} here"
    if kind == "string_type":
        return _no_text(value, document.plain.get(loc))
    if kind == "enum":
        expected = detail.get("ctx", {}).get("expected", "")
        near = _near(str(value), re.findall(r"'([^']+)'", expected))
        return f"{shorten(value)} is not one of {expected}{near}"
    text = _KINDS.get(kind) or detail["msg"].removeprefix("Value error, ")
    return f"{text[:1].lower()}{text[1:]} (found {shorten(value)})"


def _no_text(value: object, written: str | None) -> str:
    if value is None:
        return "is empty: write a value, or remove the key"
    if written is None:
        return f"must be text (found {shorten(value)})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            f"{written} without quotes is the YAML number {value!r}, and 10.10 would become 10.1: "
            f'write "{written}"'
        )
    return f'{written} without quotes is no text to YAML but {value!r}: write "{written}"'


def shorten(value: object) -> str:
    """Write a value that was found in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _keys_at(parent: Path, loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that are allowed beside a wrong one."""
    model: type[BaseModel] = Matrix
    shape: list[str | int] = [part for part in parent if isinstance(part, str)]
    kinds: dict[str, type[BaseModel]] = {
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


def _unknown_key(key: str, allowed: list[str], value: object) -> str:
    if key in _ORIGINS.values():
        return "an origin has one of image, wheels and interpreter: remove the others"
    if "image" in allowed and value is not None:
        allowed = [*allowed, "wheels", "interpreter"]
    return f"unknown key{_near(key, allowed)}; known here: {', '.join(allowed)}"


def _near(word: str, words: list[str]) -> str:
    """Return a suggestion, or nothing."""
    close = difflib.get_close_matches(word, words, n=1)
    return f"; perhaps you meant {close[0]!r}" if close else ""


def _cross_check(versions: Iterable[tuple[int, Version]], sources: object, document: Document) -> list[str]:
    """Check what no single field shows: doubles, names, sources, ranges."""
    known = [str(key) for key in sources] if isinstance(sources, dict) else []
    problems: list[str] = []

    def problem(path: Path, text: str) -> None:
        problems.append(f"{document.file}:{document.line_of(path)}: {dotted(path)}: {text}")

    first: dict[str, int] = {}
    for i, version in versions:
        path: Path = ("versions", i, "version")
        if version.name in first:
            problem(path, f"{version.name!r} stands twice (first on line {first[version.name]}): remove one")
        first.setdefault(version.name, document.line_of(path))
        if (text := _name_problem(version)) is not None:
            problem(path, text)
        for key, value in version:
            if isinstance(value, (Fact, Driver, Compute)) and value.source not in known:
                near = _near(value.source, known) or "; add it there"
                problem(("versions", i, key, "source"), f"no source {shorten(value.source)} in sources{near}")
            if isinstance(value, Compute) and Release(value.min) > Release(value.max):
                problem(("versions", i, key, "min"), f"{value.min} is above max {value.max}: swap them")
    return problems


def _name_problem(version: Version) -> str | None:
    """Return what is wrong with a column's name, which is part of every cell's id."""
    name, product = version.name, version.product
    if not PART.fullmatch(name):
        return f"{shorten(name)} must match [a-z0-9.-]+: it is part of every cell's id"
    if not _is_release(re.sub(r"^[a-z-]+", "", name)):
        return f"{shorten(name)} must end in a release number such as 10.7.0"
    if product is not Product.TENSORRT and not re.match(rf"{product.value}-[0-9]", name):
        return f"a version of {product.value} is named {product.value}-<release>"
    named = next((p.value for p in reversed(Product) if re.match(rf"{p.value}-[0-9]", name)), None)
    if product is Product.TENSORRT and named not in {None, product.value}:
        return f"{name!r} is the name of a version of {named}: write product: {named} beside it"
    return None


def _is_release(text: str) -> bool:
    try:
        Release(text)
    except ValueError:
        return False
    return True
