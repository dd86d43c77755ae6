"""The keys that matrix.yaml may have, with the type and the rule of each; its JSON Schema."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version as Release
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict

from trtmatrix.core import config
from trtmatrix.core.model import PART, Known, Product


class Keys(BaseModel):
    """Knows its keys and refuses others. The classes are named as in the JSON Schema."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"@sha256:[0-9a-f]{64}"
IMAGE = f"^{_HOST}{_PATH}(?:/{_PATH})*(?:{_TAG}|(?:{_TAG})?{_DIGEST})$"
"""An image reference with a tag or a digest, as registries define it."""

REGISTRY = f"^(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?(?:/{_PATH})*)?$"
"""A registry's host with the path before the images' own names: ``my.mirror/nvidia``."""

NUMBER = r"^[0-9]+(?:\.[0-9]+)*(?:[a-z0-9.+-]*[a-z0-9])?$"
"""What a version number looks like; whether it is one is packaging's to say."""


def _image(value: str) -> str:
    """Refuse an image reference that has neither tag nor digest."""
    if not re.fullmatch(IMAGE.strip("^$"), value):
        raise ValueError("an image needs a tag or a digest, such as nvcr.io/nvidia/pytorch:24.12-py3")
    return value


def _number(value: str) -> str:
    """Refuse what is no version number: nothing could be compared with it."""
    if not re.fullmatch(NUMBER.strip("^$"), value) or not is_release(value):
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


def schema_number(value: object) -> object:
    """Refuse ``true`` and ``1.0``, which Python takes for 1."""
    if type(value) is not int or value != 1:
        raise ValueError("this trtmatrix reads schema: 1; update it if the file is newer")
    return value


Image = Annotated[str, AfterValidator(_image), Field(json_schema_extra={"pattern": IMAGE})]
Number = Annotated[str, AfterValidator(_number), Field(json_schema_extra={"pattern": NUMBER})]
Wheel = Annotated[str, AfterValidator(_wheel)]
Name = Annotated[str, Field(json_schema_extra={"pattern": f"^{PART.pattern}$"})]


class Source(Keys):
    """Where a fact was read. ``url`` is empty for what is only recalled."""

    title: str
    url: str = ""


class Fact(Keys):
    """A value, how it is known, and the key of its source."""

    value: Number
    known: Known
    source: str


class Driver(Keys):
    """The least driver: ``least`` for any GPU; on a data-centre GPU also these older branches."""

    least: Number
    datacenter: tuple[Number, ...] = ()
    known: Known
    source: str


class Compute(Keys):
    """The compute capabilities that a version supports, both ends included."""

    min: Number
    max: Number
    known: Known
    source: str


class Build(Keys):
    """How an image of ours is made: wheels from an index, put on a pinned base."""

    base: Image
    wheels: Annotated[tuple[Wheel, ...], Field(min_length=1)]
    index: str = ""


class ImageOrigin(Keys):
    """A container image: pulled from its registry, or (with ``build``) made by us."""

    image: Image
    build: Build | None = None


class WheelsOrigin(Keys):
    """Wheels that the tool installs into an environment of its own."""

    wheels: Annotated[tuple[Wheel, ...], Field(min_length=1)]


class InterpreterOrigin(Keys):
    """A Python interpreter of the host that can import the product."""

    interpreter: Annotated[str, Field(min_length=1)]


Origin = ImageOrigin | WheelsOrigin | InterpreterOrigin


class Version(Keys):
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


class Matrix(Keys):
    """The whole of matrix.yaml. ``registry``: what stands for ``nvcr.io/nvidia``, a mirror; empty: itself."""

    schema_: Annotated[Literal[1], BeforeValidator(schema_number)] = Field(alias="schema")
    sources: dict[str, Source]
    versions: Annotated[tuple[Version, ...], Field(min_length=1)]
    registry: Annotated[str, Field(json_schema_extra={"pattern": REGISTRY})] = ""


def to_version(raw: Version) -> config.Version:
    """Return a column as the program works with it."""
    version: config.Version = _plain(raw)
    return version


def to_matrix(raw: Matrix) -> config.Matrix:
    """Return matrix.yaml as the program works with it."""
    sources = {key: _plain(source) for key, source in raw.sources.items()}
    versions = tuple(map(to_version, raw.versions))
    return config.Matrix(sources=sources, versions=versions, registry=raw.registry)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value that a key may have
    """Return a value with the dataclasses of core.config, which have the same names and fields."""
    if isinstance(value, Keys):
        fields = {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        return getattr(config, type(value).__name__)(**fields)
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of matrix.yaml, for editors."""
    schema = Matrix.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def is_release(text: str) -> bool:
    """Whether packaging reads a text as a version number."""
    try:
        Release(text)
    except ValueError:
        return False
    return True
