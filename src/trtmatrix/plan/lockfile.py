"""matrix.lock: matrix.yaml's images as a registry had them, and what ours are made of; read and written.

One fact a line, in one order, so that git shows what changed.
"""

from __future__ import annotations

from dataclasses import field, fields, is_dataclass, replace
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, Strict

from trtmatrix.common.errors import ConfigError
from trtmatrix.suite.keys import check_keys, in_order, keys, parse_yaml, schema_number
from trtmatrix.suite.matrix import Image, ImageOrigin, Matrix, Pin, Version
from trtmatrix.suite.model import PART

HEADER = """\
# Which image each name of matrix.yaml stood for. Written by `nox -s lock -- --update`, reviewed in git,
# never edited by hand.
#
# digest     what the name pointed at when it was resolved: an index of platforms, or one manifest
# manifest   what a platform is pulled by
# image_id   the digest of the image's configuration: survives docker save and load, where the others do not
# layers     as they lie in the registry, with their compressed sizes in bytes
# labels, environment   what the image says of itself about TensorRT, CUDA and the driver
# builds     what images of our own are made of: base, wheels and files by their SHA-256
"""

NGC = "nvcr.io/nvidia"
"""Where NVIDIA's images are: what a mirror stands for."""

REMEDY = (
    "the file is written by the tool: take it back from git (git checkout), or remove it and run\n"
    "  nox -s lock -- --update"
)


def _inside(value: str) -> str:
    """Refuse a path that leaves the project's folder."""
    if not value or value.startswith("/") or {"", ".", ".."} & set(value.split("/")):
        raise ValueError("must be a path below matrix.yaml's folder")
    return value


Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+]00:00)$")]
Platform = Annotated[str, Field(pattern="^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?$")]
Name = Annotated[str, Field(pattern=f"^({PART.pattern})$")]
Filled = Annotated[str, Field(min_length=1)]
Inside = Annotated[str, AfterValidator(_inside)]


@keys
class LockedLayer:
    """A layer as it lies in the registry: the digest of its (compressed) bytes, and how many they are."""

    digest: Digest
    size: Annotated[int, Strict(), Field(ge=0)]


@keys
class LockedPlatform:
    """An image for one platform.

    ``manifest``: the digest that pulls exactly this; ``image_id``: the digest of its configuration, which
    survives ``docker save`` and ``load``. ``labels`` and ``environment``: of the image's own, those that name
    TensorRT, CUDA or the driver.
    """

    manifest: Digest
    image_id: Digest
    layers: tuple[LockedLayer, ...]
    labels: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to be pulled where none of its layers is here; a layer that stands twice counts once."""
        return sum({layer.digest: layer.size for layer in self.layers}.values())


@keys
class LockedImage:
    """An image of matrix.yaml, by platform such as ``linux/amd64``.

    ``digest``: what the name pointed at, an index or a manifest; ``registry``: the host that said so, a
    mirror's where one was asked; ``resolved``: when, in UTC (ISO 8601).
    """

    digest: Digest
    registry: Filled
    resolved: Moment
    platforms: Annotated[dict[Platform, LockedPlatform], Field(min_length=1)]


@keys
class LockedBuild:
    """What an image of ours is made of.

    ``base``: the base's name, locked itself under that name where a registry has it; ``wheels``: requirement
    → SHA-256 (hexadecimal); ``files``: the Dockerfile and what it copies, by path from matrix.yaml → SHA-256.
    """

    image: Image
    base: Image
    wheels: dict[Filled, Sha256]
    files: dict[Inside, Sha256]


@keys
class Lock:
    """The whole of matrix.lock: images by name, builds by version."""

    schema: Annotated[Literal[1], BeforeValidator(schema_number)] = 1
    images: dict[Image, LockedImage] = field(default_factory=dict)
    builds: dict[Name, LockedBuild] = field(default_factory=dict)


def pin_of(lock: Lock, image: str, platform: str) -> Pin | None:
    """Return what the lock has of an image for a platform, or None."""
    locked = lock.images.get(image)
    found = locked.platforms.get(platform) if locked is not None else None
    if locked is None or found is None:
        return None
    ids = tuple(dict.fromkeys((found.image_id, found.manifest, locked.digest)))
    return Pin(manifest=found.manifest, ids=ids)


def base_origin(base: str, lock: Lock, platform: str, registry: str) -> ImageOrigin:
    """Return how an image, such as the base of one of ours, is known and asked for."""
    return ImageOrigin(image=base, mirror=mirrored(base, registry), pin=pin_of(lock, base, platform))


def mirrored(image: str, registry: str) -> str | None:
    """Return an image's name at the mirror that stands for ``nvcr.io/nvidia``, or None where none does."""
    if registry and image.startswith(f"{NGC}/"):
        return registry.rstrip("/") + image.removeprefix(NGC)
    return None


def pin_matrix(matrix: Matrix, lock: Lock, platform: str) -> Matrix:
    """Return a matrix whose images are known by the lock, and pulled from the mirror where one is set."""

    def pinned(version: Version) -> Version:
        origin = version.origin
        if not isinstance(origin, ImageOrigin) or origin.build is not None or origin.is_file:
            return version
        known = base_origin(origin.image, lock, platform, matrix.registry)
        return replace(version, origin=replace(origin, mirror=known.mirror, pin=known.pin))

    return replace(matrix, versions=tuple(pinned(version) for version in matrix.versions))


def parse_matrix_lock(text: str, file: str = "matrix.lock") -> Lock:
    """Read matrix.lock's text; :class:`ConfigError` lists every mistake with its line, and the remedy."""
    try:
        document = parse_yaml(text, file)
    except ConfigError as error:
        raise ConfigError([*error.problems, f"{file}: {REMEDY}"]) from error
    lock, problems = check_keys(Lock, document)
    if lock is None or document.problems:
        raise ConfigError([*in_order([*document.problems, *problems], file), f"{file}: {REMEDY}"])
    return lock


class _Flat(dict[str, Any]):
    """Keys that are written on one line."""


class _Writer(yaml.SafeDumper):
    """Writes keys in the order given, each text on one line, what is the same twice as often."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - any value
        """Let each line stand for itself."""
        del data
        return True


def _write_text(writer: yaml.SafeDumper, value: str) -> yaml.Node:
    plain = value.isprintable() and value.isascii()
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


_Writer.add_representer(
    _Flat, lambda writer, value: writer.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)
)
_Writer.add_representer(str, _write_text)


def format_matrix_lock(lock: Lock) -> str:
    """Return matrix.lock's text: the same for the same lock, whatever its order."""
    return HEADER + yaml.dump(_plain(lock), Dumper=_Writer, sort_keys=False, width=float("inf"))


def _plain(value: Any) -> Any:  # noqa: ANN401 - what YAML writes
    """Return names in order; a lone surrogate, which no file can hold, becomes a question mark."""
    if is_dataclass(value):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return _Flat(found) if isinstance(value, LockedLayer) else found
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in sorted(value.items())}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
