"""Whether a run's images are those of matrix.lock: told loudly where not, refused where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from trtmatrix.context import Context, own_platform
from trtmatrix.core.config import Build, ImageOrigin, Version
from trtmatrix.core.errors import ConfigError, UsageError
from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import pin_of
from trtmatrix.core.lock_builds import asked_base, why_built_otherwise, why_not_as_locked
from trtmatrix.core.plan import Launch
from trtmatrix.effects.image_facts import HeldImage, find_image

UPDATE = "nox -s lock -- --trt {versions} --update"
BUILD = "nox -s image -- {version}"

Look = Callable[[str], "HeldImage | None"]
"""Finds an image of this host by its name."""


def check_pins(
    context: Context, launches: Iterable[Launch], locked: bool, look: Look = find_image
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
    from trtmatrix.effects.build_parts import read_build

    try:
        parts = read_build(version, origin, build, context.project)
    except ConfigError as error:
        return f"what {origin.image} is made of cannot be read: {error.problems[0]}"
    why = why_not_as_locked(version, parts, context.lock, own_platform())
    return f"{origin.image}: {why}" if why else None


def why_other_build(context: Context, version: Version, look: Look) -> str | None:
    """Return how the image of ours that is here is another than the locked parts make, or None."""
    from trtmatrix.effects.build_parts import read_build

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
