"""Reads and writes matrix.lock's text: one fact a line, in one order, so that git shows what changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, Strict

from trtmatrix.common.errors import ConfigError
from trtmatrix.launchers.lock import Lock, LockedBuild, LockedImage, LockedLayer, LockedPlatform
from trtmatrix.suite.keys import check_keys, in_order, keys, schema_number
from trtmatrix.suite.matrix import Image
from trtmatrix.suite.model import PART
from trtmatrix.suite.yamltext import parse_yaml

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

REMEDY = (
    "the file is written by the tool: take it back from git (git checkout), or remove it and run\n"
    "  nox -s lock -- --update"
)


def _matching(pattern: str, words: str) -> AfterValidator:
    """Return the rule that a text has a shape; ``words`` say which."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(words)
        return value

    return AfterValidator(check)


def _inside(value: str) -> str:
    """Refuse a path that leaves the project's folder."""
    if not value or value.startswith("/") or {"", ".", ".."} & set(value.split("/")):
        raise ValueError("must be a path below matrix.yaml's folder")
    return value


Digest = Annotated[str, _matching("sha256:[0-9a-f]{64}", "must be sha256: and 64 hexadecimal digits")]
Sha256 = Annotated[str, _matching("[0-9a-f]{64}", "must be 64 hexadecimal digits")]
Moment = Annotated[
    str,
    _matching(
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+]00:00)",
        "must be a moment in UTC such as 2026-11-22T03:36:28Z",
    ),
]
Platform = Annotated[
    str, _matching("[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?", "must be a platform such as linux/amd64")
]
Name = Annotated[str, _matching(PART.pattern, "is no name of a version such as 10.7.0")]
Filled = Annotated[str, Field(min_length=1)]
Inside = Annotated[str, AfterValidator(_inside)]


@keys
class LayerKeys:
    """A layer: the digest of its compressed bytes, and how many they are."""

    digest: Digest
    size: Annotated[int, Strict(), Field(ge=0)]


@keys
class PlatformKeys:
    """An image for one platform; its name is the key that it stands under."""

    manifest: Digest
    image_id: Digest
    layers: tuple[LayerKeys, ...]
    labels: dict[str, str]
    environment: dict[str, str]


@keys
class ImageKeys:
    """An image; its name is the key that it stands under."""

    digest: Digest
    registry: Filled
    resolved: Moment
    platforms: Annotated[dict[Platform, PlatformKeys], Field(min_length=1)]


@keys
class BuildKeys:
    """What an image of ours is made of."""

    image: Image
    base: Image
    wheels: dict[Filled, Sha256]
    files: dict[Inside, Sha256]


@keys
class LockKeys:
    """The whole of matrix.lock."""

    schema: Annotated[Literal[1], BeforeValidator(schema_number)]
    images: dict[Image, ImageKeys]
    builds: dict[Name, BuildKeys]


def parse_matrix_lock(text: str, file: str = "matrix.lock") -> Lock:
    """Read matrix.lock's text; :class:`ConfigError` lists every mistake with its line, and the remedy."""
    try:
        document = parse_yaml(text, file)
    except ConfigError as error:
        raise ConfigError([*error.problems, f"{file}: {REMEDY}"]) from error
    raw, problems = check_keys(LockKeys, document)
    if raw is None or document.problems:
        raise ConfigError([*in_order([*document.problems, *problems], file), f"{file}: {REMEDY}"])
    return Lock(
        images={name: _to_image(name, image) for name, image in raw.images.items()},
        builds={name: LockedBuild(**vars(build)) for name, build in raw.builds.items()},
    )


def _to_image(name: str, raw: ImageKeys) -> LockedImage:
    """Return an image as the program works with it: what is inside has the key that it stands under."""
    platforms = []
    for platform, found in raw.platforms.items():
        layers = tuple(LockedLayer(**vars(layer)) for layer in found.layers)
        platforms.append(LockedPlatform(**{**vars(found), "platform": platform, "layers": layers}))
    return LockedImage(**{**vars(raw), "image": name, "platforms": tuple(platforms)})


class _Flat(dict[str, Any]):
    """Keys that are written on one line."""


class _Writer(yaml.SafeDumper):
    """Writes keys in the order given, each text on one line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 - any value
        """Write what is the same twice, so that each line stands for itself."""
        del data
        return True


def _write_flat(writer: yaml.SafeDumper, value: _Flat) -> yaml.Node:
    return writer.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=True)


def _write_text(writer: yaml.SafeDumper, value: str) -> yaml.Node:
    plain = value.isprintable() and value.isascii()
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')


_Writer.add_representer(_Flat, _write_flat)
_Writer.add_representer(str, _write_text)


def format_matrix_lock(lock: Lock) -> str:
    """Return matrix.lock's text: the same for the same lock, whatever its order."""
    builds = {name: asdict(build) for name, build in sorted(lock.builds.items())}
    for build in builds.values():
        build.update(wheels=_sorted(build["wheels"]), files=_sorted(build["files"]))
    images = {name: _plain_image(image) for name, image in sorted(lock.images.items())}
    value = {"schema": 1, "images": images, "builds": builds}
    return HEADER + yaml.dump(value, Dumper=_Writer, sort_keys=False, width=float("inf"))


def _plain_image(image: LockedImage) -> dict[str, Any]:
    platforms = {}
    for each in sorted(image.platforms, key=lambda each: each.platform):
        platforms[each.platform] = {
            "manifest": each.manifest, "image_id": each.image_id,
            "layers": [_Flat(digest=layer.digest, size=layer.size) for layer in each.layers],
            "labels": _sorted(each.labels), "environment": _sorted(each.environment),
        }  # fmt: skip
    return {
        "digest": image.digest, "registry": image.registry, "resolved": image.resolved,
        "platforms": platforms,
    }  # fmt: skip


def _sorted(values: Mapping[str, str]) -> dict[str, str]:
    """Return values by name; a lone surrogate, which no file can hold, becomes a question mark."""
    return {_clean(name): _clean(value) for name, value in sorted(values.items())}


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
