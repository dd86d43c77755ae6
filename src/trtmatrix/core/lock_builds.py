"""What images of ours are made of, against what matrix.lock has of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from trtmatrix.core.config import Pin
from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import Lock, LockedBuild, pin_of

OWN_BASE = "trtmatrix/debian12-python310:latest"
"""The base that ``docker/wheels/base`` makes."""


@dataclass(frozen=True, kw_only=True)
class BuildParts:
    """What an image would be made of now. ``unhashed``: wheels that no SHA-256 is known of.

    ``contents``: the bytes of the files that are copied into the image; ``lines``: its wheels, as pip reads
    them.
    """

    build: LockedBuild
    unhashed: tuple[str, ...] = ()
    contents: tuple[bytes, ...] = ()
    lines: tuple[str, ...] = ()


def asked_base(build: LockedBuild) -> str | None:
    """Return the base where a registry has it, None where the project makes it."""
    return None if is_own(build.base) else build.base


def build_differences(old: LockedBuild, new: LockedBuild) -> tuple[str, ...]:
    """Return what of a build is another than locked, in words."""
    return (
        *([f"image {old.image} → {new.image}"] if old.image != new.image else []),
        *([f"base {old.base} → {new.base}"] if old.base != new.base else []),
        *_changed("wheel", old.wheels, new.wheels),
        *_changed("file", old.files, new.files),
    )


def why_not_as_locked(version: str, parts: BuildParts, lock: Lock, platform: str) -> str | None:
    """Return why an image of ours is not what matrix.lock says, or None where it is."""
    locked = lock.builds.get(version)
    base = asked_base(parts.build)
    if locked is None:
        return "not locked"
    if differences := build_differences(locked, parts.build):
        return f"not as locked: {'; '.join(differences)}"
    if parts.unhashed:
        return f"no SHA-256 is known of {', '.join(parts.unhashed)} (nox -s image -- {version} --lock)"
    if base is not None and pin_of(lock, base, platform) is None:
        return f"its base {base} is not locked"
    return None


def recipe_digest(base_id: str, contents: Iterable[bytes], lines: Iterable[str]) -> str:
    """Return the SHA-256 of all that goes into an image of ours: its label ``recipe`` (hexadecimal)."""
    return sha256(b"\0".join([base_id.encode(), *contents, *(line.encode() for line in lines)])).hexdigest()


def why_built_otherwise(labels: Mapping[str, str], parts: BuildParts, base: Pin | None) -> str | None:
    """Return how an image that is here came of something else than these parts, or None: it is theirs.

    ``labels``: what docker/wheels/build wrote on it; ``base``: what matrix.lock has of its base.
    """
    if missing := [name for name in _TELLING if not labels.get(name)]:
        return f"it does not say what it was built from (no label {', '.join(missing)})"
    if differences := [*_base_differences(labels, parts.build, base), *_wheel_differences(labels, parts)]:
        return f"it was built from other parts: {'; '.join(differences)}"
    if recipe_digest(labels["base-id"], parts.contents, parts.lines) != labels["recipe"]:
        return "it was built from other files"
    return None


_TELLING = ("base", "base-id", "base-digest", "wheels", "recipe")
"""The labels that say what an image of ours was built from."""


def _base_differences(labels: Mapping[str, str], build: LockedBuild, base: Pin | None) -> Iterator[str]:
    if base is not None:
        if not {labels["base-id"], labels["base-digest"].rpartition("@")[2]} & set(base.ids):
            yield f"base {labels['base-id'][:19]} in the place of {base.ids[0][:19]}"
    elif labels["base"] != build.base:
        yield f"base {labels['base']} in the place of {build.base}"


def _wheel_differences(labels: Mapping[str, str], parts: BuildParts) -> Iterator[str]:
    try:
        wheels = {
            name: str(sha).removeprefix("sha256:") for name, sha in json.loads(labels["wheels"]).items()
        }
    except (ValueError, AttributeError):
        yield "wheels that its label does not name"
    else:
        yield from _changed("wheel", wheels, parts.build.wheels)


def _changed(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{what} {name} is gone"
        elif name not in old:
            yield f"{what} {name} is new"
        elif old[name] != new[name]:
            yield f"{what} {name} has another content ({old[name][:12]} → {new[name][:12]})"
