"""What images of ours are made of, and whether a run's images are those of matrix.lock: told, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.launchers.docker_engine import ImageFacts, inspect_image
from trtmatrix.launchers.lock import Lock, LockedBuild, pin_of
from trtmatrix.launchers.wheels import parse_lock
from trtmatrix.plan.context import Context, own_platform
from trtmatrix.suite.image_names import is_own
from trtmatrix.suite.matrix import Build, ImageOrigin, Pin, Version
from trtmatrix.suite.plan import Launch

UPDATE = "nox -s lock -- --trt {versions} --update"
BUILD = "nox -s image -- {version}"

Look = Callable[[str], "ImageFacts | None"]
"""Finds an image of this host by its name."""


FILES = ("Dockerfile", "tensorrt.py")
"""What of the builder's folder goes into every image."""

OWN_BASE = "trtmatrix/debian12-python310:latest"
"""The base that ``docker/wheels/base`` makes."""


def check_pins(
    context: Context, launches: Iterable[Launch], locked: bool, look: Look = inspect_image
) -> list[str]:
    """Return a line for each launch whose image is not as matrix.lock has it, and how that is mended.

    ``locked``: such a launch is refused: :class:`UsageError` names each version and the command.
    ``look``: asked for images of ours that are here and whose parts are locked.
    """
    launches = [each for each in launches if each.python is None]
    versions = {each.version.name: each.version for each in launches}
    here = {each.version.name for each in launches if not each.lacks_image}
    unlocked = {name: why for name, version in versions.items() if (why := why_unlocked(context, version))}
    others = {
        name: why for name in sorted(here - set(unlocked))
        if (why := why_other_build(context, versions[name], look))
    }  # fmt: skip
    found = {**unlocked, **others}
    if not found:
        return []
    lockable = [name for name in unlocked if not _is_local(versions[name])]
    mend = [f"  to lock: {UPDATE.format(versions=','.join(lockable))}"] if lockable else []
    if locked:
        lines = [f"  {name}: {why}" for name, why in found.items()]
        raise UsageError("\n".join(["--locked refuses to run what matrix.lock does not have", *lines, *mend]))
    return [*(f"NOT LOCKED: {name}: {why}" for name, why in found.items()), *mend]


def _is_local(version: Version) -> bool:
    """Whether no registry has a version's image, so that nothing can lock it."""
    origin = version.origin
    if not isinstance(origin, ImageOrigin) or origin.build is not None:
        return False
    return origin.is_file or is_own(origin.image)


def why_unlocked(context: Context, version: Version) -> str | None:
    """Return why what a version runs in is not pinned, or None: it is, or it is no image.

    A name with a digest of its own is pinned without the lock.
    """
    origin = version.origin
    if not isinstance(origin, ImageOrigin):
        return None
    if origin.is_file:
        return f"{origin.image} is a file of yours, known by what is in it"
    if origin.build is not None:
        return _why_build(context, version.name, origin, origin.build)
    if origin.pin is not None or "@sha256:" in origin.image:
        return None
    if is_own(origin.image):
        return f"{origin.image} is made on this host and known by its name alone: no registry has it"
    if origin.image in context.lock.images:
        return f"{origin.image} is not locked for {own_platform()}"
    return f"{origin.image} is whatever its tag stands for today"


def _why_build(context: Context, version: str, origin: ImageOrigin, build: Build) -> str | None:
    try:
        parts = read_build(version, origin, build, context.project)
    except ConfigError as error:
        return f"what {origin.image} is made of cannot be read: {error.problems[0]}"
    why = why_not_as_locked(version, parts, context.lock, own_platform())
    return f"{origin.image}: {why}" if why else None


def why_other_build(context: Context, version: Version, look: Look) -> str | None:
    """Return how the image of ours that is here is another than the locked parts make, or None."""
    origin = version.origin
    held = look(origin.image) if isinstance(origin, ImageOrigin) and origin.build is not None else None
    if not isinstance(origin, ImageOrigin) or origin.build is None or held is None:
        return None
    parts = read_build(version.name, origin, origin.build, context.project)
    base = asked_base(parts.build)
    pin = pin_of(context.lock, base, own_platform()) if base is not None else None
    why = why_built_otherwise(held.labels, parts, pin)
    return f"{origin.image}: {why}: {BUILD.format(version=version.name)}" if why else None


def new_lines(context: Context, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that were not told yet, and mark them as told."""
    for line in lines:
        if line not in context.told:
            context.told.add(line)
            yield line


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
    if missing := [name for name in ("base", "base-id", "base-digest", "recipe") if not labels.get(name)]:
        return f"it does not say what it was built from (no label {', '.join(missing)})"
    on_it = {labels["base"], labels["base-id"], labels["base-digest"].rpartition("@")[2]}
    if not on_it & {*(base.ids if base else (parts.build.base,))}:
        wanted = base.ids[0] if base else parts.build.base
        return f"it was built on another base: {labels['base-id'][:19]} in the place of {wanted[:40]}"
    if recipe_digest(labels["base-id"], parts.contents, parts.lines) != labels["recipe"]:
        return "it was built from other wheels or files"
    return None


def _changed(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{what} {name} is gone"
        elif name not in old:
            yield f"{what} {name} is new"
        elif old[name] != new[name]:
            yield f"{what} {name} has another content ({old[name][:12]} → {new[name][:12]})"


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
