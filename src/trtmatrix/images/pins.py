"""What images of ours are made of, and whether a run's images are those of matrix.lock: told, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.common.paths import Project
from trtmatrix.launchers.docker_engine import ImageFacts, inspect_image
from trtmatrix.launchers.wheels import parse_lock
from trtmatrix.plan.context import Context, own_platform
from trtmatrix.plan.lockfile import LockedBuild, pin_of
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.plan import Launch, is_own

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
    found: dict[str, str] = {}
    lockable: list[str] = []
    for launch in launches:
        version, origin = launch.version, launch.image
        if origin is None or version.name in found:
            continue
        if origin.build is None:
            why, mends = why_unlocked(context, origin), not (origin.is_file or is_own(origin.image))
        else:
            why = _why_built_otherwise(context, version)
            mends = bool(why)
            if not why and not launch.lacks_image and (held := look(origin.image)) is not None:
                why = _why_another(context, version, held.labels)
            why = why and f"{origin.image}: {why}"
        if why:
            found[version.name] = why
            lockable += [version.name] if mends else []
    mend = [f"  to lock: nox -s lock -- --trt {','.join(lockable)} --update"] if lockable else []
    if locked and found:
        lines = [f"  {name}: {why}" for name, why in found.items()]
        raise UsageError("\n".join(["--locked refuses to run what matrix.lock does not have", *lines, *mend]))
    return [*(f"NOT LOCKED: {name}: {why}" for name, why in found.items()), *mend]


def why_unlocked(context: Context, origin: ImageOrigin) -> str:
    """Return why an image is not pinned, or nothing: a digest in its name pins it without the lock."""
    image = origin.image
    if origin.is_file:
        return f"{image} is a file of yours, known by what is in it"
    if origin.pin is not None or "@sha256:" in image:
        return ""
    if is_own(image):
        return f"{image} is made on this host and known by its name alone: no registry has it"
    if image in context.lock.images:
        return f"{image} is not locked for {own_platform()}"
    return f"{image} is whatever its tag stands for today"


def _why_built_otherwise(context: Context, version: Version) -> str:
    """Return why what an image of ours would be made of now is not what matrix.lock says, or nothing."""
    try:
        parts = read_builds([version], context.project)[version.name]
    except ConfigError as error:
        return f"what it is made of cannot be read: {error.problems[0]}"
    locked, base = context.lock.builds.get(version.name), parts.build.base
    if locked is None:
        return "not locked"
    if differences := build_differences(locked, parts.build):
        return f"not as locked: {'; '.join(differences)}"
    if parts.unhashed:
        return f"no SHA-256 is known of {', '.join(parts.unhashed)} (nox -s image -- {version.name} --lock)"
    if not is_own(base) and pin_of(context.lock, base, own_platform()) is None:
        return f"its base {base} is not locked"
    return ""


def _why_another(context: Context, version: Version, labels: Mapping[str, str]) -> str:
    """Return why an image of ours that is here was not made of the locked parts, or nothing.

    ``labels``: those that docker/wheels/build wrote on it: they say what it came of.
    """
    parts = read_builds([version], context.project)[version.name]
    pin, base_id = pin_of(context.lock, parts.build.base, own_platform()), labels.get("base-id", "")
    bases = {labels.get("base"), base_id, labels.get("base-digest", "").rpartition("@")[2]}
    recipe = recipe_digest(base_id, parts.contents, parts.lines)
    if bases & {*(pin.ids if pin else (parts.build.base,))} and recipe == labels.get("recipe"):
        return ""
    return f"it was built on another base, or from other wheels or files: nox -s image -- {version.name}"


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


def build_differences(old: LockedBuild, new: LockedBuild) -> tuple[str, ...]:
    """Return what of a build is another than locked, in words."""
    before, now = (
        {f"image {build.image}": "", f"base {build.base}": ""}
        | {f"wheel {name}": digest for name, digest in build.wheels.items()}
        | {f"file {name}": digest for name, digest in build.files.items()}
        for build in (old, new)
    )
    gone = [f"{name} is gone" for name in before if name not in now]
    added = [f"{name} is new" for name in now if name not in before]
    other = [f"{name} has another content" for name in now if before.get(name, now[name]) != now[name]]
    return (*gone, *added, *other)


def recipe_digest(base_id: str, contents: Iterable[bytes], lines: Iterable[str]) -> str:
    """Return the SHA-256 of all that goes into an image of ours: its label ``recipe`` (hexadecimal)."""
    return sha256(b"\0".join([base_id.encode(), *contents, *(line.encode() for line in lines)])).hexdigest()


def read_builds(versions: Iterable[Version], project: Project) -> dict[str, BuildParts]:
    """Return what the images that are made here would be made of now, by version.

    Nothing but names where the project cannot build them. :class:`ConfigError` tells what is wrong with the
    lock of an image's wheels, or cannot be read.
    """
    found, problems = dict[str, BuildParts](), list[str]()
    for version in versions:
        origin = version.origin
        if not isinstance(origin, ImageOrigin) or origin.build is None:
            continue
        try:
            found[version.name] = _read_build(version.name, origin.image, origin.build, project)
        except ConfigError as error:
            problems += error.problems
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{origin.image} cannot be made: {error}")
    if problems:
        raise ConfigError(problems)
    return found


def _read_build(version: str, image: str, build: Build, project: Project) -> BuildParts:
    if project.image_builder is None:
        bare = LockedBuild(image=image, base=build.base, wheels={}, files={})
        return BuildParts(build=bare, unhashed=build.wheels)
    folder, top = project.image_builder.parent, project.matrix.resolve().parent
    lock = folder / "locks" / f"{version}.txt"
    names = (*FILES, "base") if build.base == OWN_BASE else FILES
    read = {name: (folder / name).read_bytes() for name in names}
    pins = parse_lock(lock.read_text(encoding="utf-8") if lock.exists() else "", build.wheels, str(lock))
    files = {str((folder / name).relative_to(top)): sha256(data).hexdigest() for name, data in read.items()}
    wheels = {pin.wheel: pin.sha256 for pin in pins if pin.sha256}
    return BuildParts(
        build=LockedBuild(image=image, base=build.base, files=files, wheels=wheels),
        unhashed=tuple(pin.wheel for pin in pins if not pin.sha256),
        contents=tuple(read[name] for name in FILES), lines=tuple(pin.line for pin in pins),
    )  # fmt: skip
