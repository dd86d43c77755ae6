"""Reads what an image of ours would be made of: matrix.yaml's wheels by their hashes, the Dockerfile."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from trtmatrix.core.config import Build, ImageOrigin, Version
from trtmatrix.core.errors import ConfigError
from trtmatrix.core.lock import LockedBuild
from trtmatrix.core.lock_builds import OWN_BASE, BuildParts
from trtmatrix.effects.paths import Project

FILES = ("Dockerfile", "tensorrt.py")
"""What of the builder's folder goes into every image."""


def read_builds(versions: Iterable[Version], project: Project) -> dict[str, BuildParts]:
    """Return what the images that are made here would be made of now, by version.

    :class:`ConfigError` lists what is wrong with the locks of their wheels, or cannot be read.
    """
    problems: list[str] = []
    found: dict[str, BuildParts] = {}
    for version in versions:
        if isinstance(version.origin, ImageOrigin) and version.origin.build is not None:
            try:
                found[version.name] = read_build(version.name, version.origin, version.origin.build, project)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found


def read_build(version: str, origin: ImageOrigin, build: Build, project: Project) -> BuildParts:
    """Return what one image would be made of now; nothing but names where the project cannot build it."""
    from trtmatrix.core.wheel_locks import parse_lock

    builder = project.image_builder
    if builder is None:
        bare = LockedBuild(image=origin.image, base=build.base, wheels={}, files={})
        return BuildParts(build=bare, unhashed=build.wheels)
    folder, top = builder.parent, project.matrix.resolve().parent
    lock = folder / "locks" / f"{version}.txt"
    names = (*FILES, "base") if build.base == OWN_BASE else FILES
    try:
        text = lock.read_text(encoding="utf-8") if lock.exists() else ""
        read = {name: (folder / name).read_bytes() for name in names}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{folder}: an image cannot be made of this: {error}"]) from error
    pins = parse_lock(text, build.wheels, str(lock))
    files = {
        (folder / name).relative_to(top).as_posix(): sha256(data).hexdigest() for name, data in read.items()
    }
    return BuildParts(
        build=LockedBuild(
            image=origin.image, base=build.base, files=files,
            wheels={pin.wheel: pin.sha256 for pin in pins if pin.sha256},
        ),
        unhashed=tuple(pin.wheel for pin in pins if not pin.sha256),
        contents=tuple(read[name] for name in FILES), lines=tuple(pin.line for pin in pins),
    )  # fmt: skip
