"""Reads and writes matrix.lock's text: one fact a line, in one order, so that git shows what changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.common.errors import ConfigError
from trtmatrix.launchers.lock import Lock, LockedBuild, LockedImage, LockedLayer, LockedPlatform
from trtmatrix.suite.keys import in_order, key_problem, problem_at, schema_number, unknown_key
from trtmatrix.suite.matrix import Image
from trtmatrix.suite.model import PART
from trtmatrix.suite.yamltext import Document, Path, parse_yaml

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


DIGEST = r"^sha256:[0-9a-f]{64}$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|\+00:00)$"
PLATFORM = r"^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9.]+)?$"


def _matching(pattern: str, words: str) -> AfterValidator:
    """Return the rule that a text has a shape; ``words`` say which."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern.strip("^$"), value):
            raise ValueError(words)
        return value

    return AfterValidator(check)


def _inside(value: str) -> str:
    """Refuse a path that leaves the project's folder."""
    if not value or value.startswith("/") or {"", ".", ".."} & set(value.split("/")):
        raise ValueError("must be a path below matrix.yaml's folder")
    return value


Digest = Annotated[str, _matching(DIGEST, "must be sha256: and 64 hexadecimal digits")]
Sha256 = Annotated[str, _matching(r"[0-9a-f]{64}", "must be 64 hexadecimal digits")]
Moment = Annotated[str, _matching(MOMENT, "must be a moment in UTC such as 2026-11-22T03:36:28Z")]
Platform = Annotated[str, _matching(PLATFORM, "must be a platform such as linux/amd64")]
Name = Annotated[str, _matching(PART.pattern, "is no name of a version such as 10.7.0")]
Filled = Annotated[str, Field(min_length=1)]
Inside = Annotated[str, AfterValidator(_inside)]


class Keys(BaseModel):
    """Knows its keys and refuses others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LayerKeys(Keys):
    """A layer: the digest of its compressed bytes, and how many they are."""

    digest: Digest
    size: Annotated[int, Strict(), Field(ge=0)]


class PlatformKeys(Keys):
    """An image for one platform; its name is the key that it stands under."""

    manifest: Digest
    image_id: Digest
    layers: tuple[LayerKeys, ...]
    labels: dict[str, str]
    environment: dict[str, str]


class ImageKeys(Keys):
    """An image; its name is the key that it stands under."""

    digest: Digest
    registry: Filled
    resolved: Moment
    platforms: Annotated[dict[Platform, PlatformKeys], Field(min_length=1)]


class BuildKeys(Keys):
    """What an image of ours is made of."""

    image: Image
    base: Image
    wheels: dict[Filled, Sha256]
    files: dict[Inside, Sha256]


class LockKeys(Keys):
    """The whole of matrix.lock."""

    schema_: Annotated[Literal[1], BeforeValidator(schema_number)] = Field(alias="schema")
    images: dict[Image, ImageKeys]
    builds: dict[Name, BuildKeys]


def parse_matrix_lock(text: str, file: str = "matrix.lock") -> Lock:
    """Read matrix.lock's text; :class:`ConfigError` lists every mistake with its line, and the remedy."""
    try:
        document = parse_yaml(text, file)
    except ConfigError as error:
        raise ConfigError([*error.problems, f"{file}: {REMEDY}"]) from error
    problems = list(document.problems)
    lock = Lock()
    try:
        lock = _to_lock(LockKeys.model_validate(document.value))
    except ValidationError as error:
        problems += [_line(detail, document) for detail in error.errors()]
    if problems:
        raise ConfigError([*in_order(problems, file), f"{file}: {REMEDY}"])
    return lock


def _to_lock(raw: LockKeys) -> Lock:
    """Return matrix.lock as the program works with it: what is inside has the key that it stands under."""
    images = {}
    for name, image in raw.images.items():
        platforms = []
        for platform, found in image.platforms.items():
            layers = tuple(LockedLayer(**dict(layer)) for layer in found.layers)
            platforms.append(LockedPlatform(**{**dict(found), "platform": platform, "layers": layers}))
        images[name] = LockedImage(**{**dict(image), "image": name, "platforms": tuple(platforms)})
    builds = {name: LockedBuild(**dict(build)) for name, build in raw.builds.items()}
    return Lock(images=images, builds=builds)


def _line(detail: ErrorDetails, document: Document) -> str:
    path: Path = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        return problem_at(document, path, unknown_key(str(path[-1]), _keys_at(path[:-1])))
    return problem_at(document, path, key_problem(detail, path, document))


def _keys_at(parent: Path) -> list[str]:
    """Return the keys that are allowed in a place: ``images.<name>.platforms.<platform>.layers[0]``."""
    inside: dict[str, list[type[BaseModel]]] = {
        "images": [ImageKeys, ImageKeys, PlatformKeys, LayerKeys],
        "builds": [BuildKeys],
    }
    depth = (len(parent) - 2) // 2 + (parent[2:3] == ("platforms",)) if len(parent) > 1 else 0
    model = inside[str(parent[0])][depth] if parent else LockKeys
    return [field.alias or name for name, field in model.model_fields.items()]


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
    value = {
        "schema": 1,
        "images": {name: _plain_image(image) for name, image in sorted(lock.images.items())},
        "builds": {name: _plain_build(build) for name, build in sorted(lock.builds.items())},
    }
    return HEADER + yaml.dump(value, Dumper=_Writer, sort_keys=False, width=float("inf"))


def _plain_image(image: LockedImage) -> dict[str, Any]:
    platforms = sorted(image.platforms, key=lambda each: each.platform)
    return {
        "digest": image.digest, "registry": image.registry, "resolved": image.resolved,
        "platforms": {each.platform: _plain_platform(each) for each in platforms},
    }  # fmt: skip


def _plain_platform(found: LockedPlatform) -> dict[str, Any]:
    return {
        "manifest": found.manifest, "image_id": found.image_id, "layers": [*map(_plain_layer, found.layers)],
        "labels": _sorted(found.labels), "environment": _sorted(found.environment),
    }  # fmt: skip


def _plain_layer(layer: LockedLayer) -> _Flat:
    return _Flat(digest=layer.digest, size=layer.size)


def _plain_build(build: LockedBuild) -> dict[str, Any]:
    return {
        "image": build.image, "base": build.base, "wheels": _sorted(build.wheels),
        "files": _sorted(build.files),
    }  # fmt: skip


def _sorted(values: Mapping[str, str]) -> dict[str, str]:
    """Return values by name; a lone surrogate, which no file can hold, becomes a question mark."""
    return {_clean(name): _clean(value) for name, value in sorted(values.items())}


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
