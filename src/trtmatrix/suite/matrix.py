"""matrix.yaml: its keys with the type and the rule of each, which the program works with; how it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from packaging.version import Version as Release
from pydantic import AfterValidator, Discriminator, Field, Strict, Tag, model_validator
from typing_extensions import Self

from trtmatrix.common.errors import shorten
from trtmatrix.suite.keys import NotInFile, Path, keys, near, parse_keys
from trtmatrix.suite.model import Known, Product, release_of

_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?"
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG, _DIGEST = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", r"@sha256:[0-9a-f]{64}"
IMAGE = f"^{_HOST}{_PATH}(?:/{_PATH})*(?:{_TAG}|(?:{_TAG})?{_DIGEST})$"
"""An image reference with a tag or a digest, as registries define it."""
REGISTRY = f"^(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?(?:/{_PATH})*)?$"
"""A registry's host with the path before the images' own names: ``my.mirror/nvidia``."""
_RELEASE = r"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc)[0-9]+)?(?:\.post[0-9]+)?(?:\.dev[0-9]+)?"


def _fits(pattern: str, words: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(words)
        return value

    return AfterValidator(check)


Image = Annotated[
    str, _fits(IMAGE, "an image needs a tag or a digest, such as nvcr.io/nvidia/pytorch:24.12-py3"),
    Field(json_schema_extra={"pattern": IMAGE}),
]  # fmt: skip
Number = Annotated[str, Field(pattern=rf"^{_RELEASE}(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?$")]
"""A version number that packaging can read: ``"8.9"``, ``"10.7.0.23"``, ``"2.6.0a0+df5bbc09d1"``."""
Wheels = Annotated[tuple[Annotated[str, Field(pattern=r"^[^-\s]")], ...], Field(min_length=1)]
"""Requirements or files as pip takes them, and no options."""
_NAME = rf"^(?:[a-z]+-)*{_RELEASE}$"
_Name = Annotated[
    str, _fits(_NAME, "must be a release number such as 10.7.0, maybe after small letters and -"),
    Field(json_schema_extra={"pattern": _NAME}),
]  # fmt: skip


@keys
class Source:
    """Where a fact was read. ``url`` is empty for what is only recalled."""

    title: str
    url: str = ""


@keys
class Fact:
    """A value, how it is known, and the key of its source."""

    value: Number
    known: Known
    source: str


@keys
class Driver:
    """The least driver: ``least`` for any GPU; on a data-centre GPU also these older branches."""

    least: Number
    datacenter: tuple[Number, ...] = ()
    known: Known
    source: str


@keys
class Compute:
    """The compute capabilities that a version supports, both ends included."""

    min: Number
    max: Number
    known: Known
    source: str


@keys
class Build:
    """How an image of ours is made: wheels from an index, put on a pinned base."""

    base: Image
    wheels: Wheels
    index: str = ""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What matrix.lock says of an image for one platform.

    ``manifest``: the digest that it is pulled by; ``ids``: the IDs that an engine may hold it under. That is
    the digest of its configuration; in engines with containerd's image store that of its manifest or index.
    """

    manifest: str
    ids: tuple[str, ...]


@keys
class ImageOrigin:
    """A container image: pulled from its registry, or (with ``build``) made by us."""

    image: Image  # its name in matrix.yaml, whatever it is pulled from
    build: Build | None = None
    mirror: NotInFile[str | None] = None  # the name that it has where another registry stands for its own
    pin: NotInFile[Pin | None] = None  # set where matrix.lock has it
    base: NotInFile[ImageOrigin | None] = None  # how the image that it is built on is known and asked for

    @property
    def is_file(self) -> bool:
        """Whether it is a file of the user's (``--image``), which is pinned by what is in it."""
        return self.image.startswith("/")

    @property
    def reference(self) -> str:
        """What a registry is asked for: ``name@sha256:…`` where it is locked, else the name with its tag.

        A file is named by its path.
        """
        name = self.mirror or self.image
        if self.pin is None or self.is_file:
            return name
        return f"{repository_of(name)}@{self.pin.manifest}"


@keys
class WheelsOrigin:
    """Wheels that the tool installs into an environment of its own."""

    wheels: Wheels


def repository_of(image: str) -> str:
    """Return an image's name without tag and digest: ``host:5000/a/b:1`` gives ``host:5000/a/b``."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return head + slash + last.partition(":")[0]


Origin = ImageOrigin | WheelsOrigin


def _origin_kind(value: object) -> str | None:
    """Return which type of origin a value is, in the brackets that no key of a file has; None: not one."""
    has = value.__contains__ if isinstance(value, dict) else partial(hasattr, value)
    named = [name for name in ("image", "wheels") if has(name)]
    return f"({named[0]})" if len(named) == 1 else None


_Origin = Annotated[
    Annotated[ImageOrigin, Tag("(image)")] | Annotated[WheelsOrigin, Tag("(wheels)")],
    Discriminator(
        _origin_kind, custom_error_type="origin", custom_error_message="write either image or wheels"
    ),
]


@keys
class Version:
    """One pinned release of a product and where it comes from: a column."""

    version: _Name
    product: Product = Product.TENSORRT
    addition: Annotated[bool, Strict()] = False
    note: str = ""
    origin: _Origin
    library: Fact
    python: Fact | None = None
    cuda: Fact | None = None
    torch: Fact | None = None
    torch_tensorrt: Fact | None = None
    driver: Driver | None = None
    compute: Compute | None = None

    @model_validator(mode="after")
    def _named_by_product(self) -> Self:
        named, ours = self.version.rpartition("-")[0], self.product.value
        products = {product.value for product in Product}
        if named in products if self.product is Product.TENSORRT else named != ours:
            raise ValueError(f"version: a version of {named or ours} is named so: {named or ours}-<release>")
        return self

    @property
    def name(self) -> str:
        """The column's name."""
        return self.version

    @property
    def release(self) -> Release:
        """What orders the versions of one product."""
        return release_of(self.version)

    @property
    def runtime(self) -> Literal["container", "wheels"]:
        """What starts its cells."""
        return "container" if isinstance(self.origin, ImageOrigin) else "wheels"

    def facts(self) -> dict[str, Fact]:
        """The facts that a run in the image can check, by name."""
        named = {n: getattr(self, n) for n in ("library", "python", "cuda", "torch", "torch_tensorrt")}
        return {name: fact for name, fact in named.items() if fact is not None}


@keys
class Matrix:
    """The whole of matrix.yaml. ``registry``: what stands for ``nvcr.io/nvidia``, a mirror; empty: itself."""

    schema: Literal[1]
    sources: Mapping[str, Source]
    versions: Annotated[tuple[Version, ...], Field(min_length=1)]
    registry: Annotated[
        str, _fits(REGISTRY, "must be HOST or HOST/PATH, without https://, such as my.mirror/nvidia"),
        Field(json_schema_extra={"pattern": REGISTRY}),
    ] = ""  # fmt: skip

    def version(self, name: str) -> Version:
        """Return a column by its name; ``KeyError`` where there is none."""
        return next(v for v in self.versions if v.name == name)


def parse_matrix(text: str, file: str = "matrix.yaml") -> Matrix:
    """Read matrix.yaml's text; :class:`ConfigError` lists every mistake with line and remedy."""
    return parse_keys(Matrix, text, file, _cross_check)


def _cross_check(matrix: Matrix) -> Iterator[tuple[Path, str]]:
    """Yield what no single key shows: a name that stands twice, an unknown source."""
    names: list[str] = []
    for i, version in enumerate(matrix.versions):
        if version.name in names:
            yield ("versions", i, "version"), f"{version.name!r} stands twice: remove one"
        names.append(version.name)
        for key, fact in vars(version).items():
            source = getattr(fact, "source", None)
            if source is not None and source not in matrix.sources:
                nearest = near(source, list(matrix.sources)) or "; add it there"
                yield ("versions", i, key, "source"), f"no source {shorten(source)} in sources{nearest}"
