"""What images of ours are made of, against what matrix.lock has of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import Lock, LockedBuild, pin_of

OWN_BASE = "trtmatrix/debian12-python310:latest"
"""The base that ``docker/wheels/base`` makes."""


@dataclass(frozen=True, kw_only=True)
class BuildParts:
    """What an image would be made of now. ``unhashed``: wheels that no SHA-256 is known of."""

    build: LockedBuild
    unhashed: tuple[str, ...] = ()


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


def _changed(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{what} {name} is gone"
        elif name not in old:
            yield f"{what} {name} is new"
        elif old[name] != new[name]:
            yield f"{what} {name} has another content ({old[name][:12]} → {new[name][:12]})"
