"""What matrix.yaml says, as the types that the program works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trtmatrix.core.model import Known, Product, release_of

if TYPE_CHECKING:
    from packaging.version import Version as Release


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a fact was read. ``url`` is empty for what is only recalled."""

    title: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value, how it is known, and the key of its source."""

    value: str
    known: Known
    source: str


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The least driver: ``least`` for any GPU; on a data-centre GPU also these older branches."""

    least: str
    datacenter: tuple[str, ...] = ()
    known: Known
    source: str


@dataclass(frozen=True, kw_only=True)
class Compute:
    """The compute capabilities that a version supports, both ends included."""

    min: str
    max: str
    known: Known
    source: str


@dataclass(frozen=True, kw_only=True)
class Build:
    """How an image of ours is made: wheels from an index, put on a pinned base."""

    base: str
    wheels: tuple[str, ...]
    index: str = ""


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What matrix.lock says of an image for one platform.

    ``manifest``: the digest that it is pulled by; ``ids``: the IDs that an engine may hold it under. That is
    the digest of its configuration; in engines with containerd's image store that of its manifest or index.
    """

    manifest: str
    ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageOrigin:
    """A container image: pulled from its registry, or (with ``build``) made by us.

    ``image`` is its name in matrix.yaml, whatever it is pulled from. ``mirror``: the name that it has where
    another registry stands for its own. ``pin``: set where matrix.lock has it.
    """

    image: str
    build: Build | None = None
    mirror: str | None = None
    pin: Pin | None = None

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


@dataclass(frozen=True, kw_only=True)
class WheelsOrigin:
    """Wheels that the tool installs into an environment of its own."""

    wheels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class InterpreterOrigin:
    """A Python interpreter of the host that can import the product."""

    interpreter: str


def repository_of(image: str) -> str:
    """Return an image's name without tag and digest: ``host:5000/a/b:1`` gives ``host:5000/a/b``."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


Origin = ImageOrigin | WheelsOrigin | InterpreterOrigin


@dataclass(frozen=True, kw_only=True)
class Version:
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


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The whole of matrix.yaml. ``registry``: what stands for ``nvcr.io/nvidia``, a mirror; empty: itself."""

    sources: Mapping[str, Source]
    versions: tuple[Version, ...]
    registry: str = ""

    def version(self, name: str) -> Version:
        """Return a column by its name; ``KeyError`` where there is none."""
        return next(v for v in self.versions if v.name == name)
