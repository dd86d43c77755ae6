"""Images that a pack needs and that are missing are had as a run has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.model import NO_GPU
from trtmatrix.core.plan import Launch, Pull
from trtmatrix.effects.progress import open_progress
from trtmatrix.perform import Options, make_workshop
from trtmatrix.scene import Scene, look_around

Before = Callable[[Mapping[str, str], Sequence[Version]], None]
"""What looks at the images that are here and the versions whose images are to be had."""


def hold_images(
    context: Context, versions: Sequence[Version], *, fetch: bool, before: Before = lambda *_: None
) -> dict[str, str]:
    """Return version → image ID of those that are here, and with ``fetch`` of all: pulled or built now.

    ``before``: called before anything is pulled or built; what it raises is passed on.

    :class:`MachineryError` where one cannot be had; :class:`UsageError` where one is missing, ``--offline``.
    """
    scene = look_around(context, Pull.NEVER)
    engine = scene.host.engine
    if not engine.available:
        if fetch:
            raise MachineryError(f"no images can be packed: {engine.reason}")
        return {}
    origins = {version.name: version.origin for version in versions}
    found = {n: engine.held(origin) for n, origin in origins.items() if isinstance(origin, ImageOrigin)}
    held = {name: image for name, image in found.items() if image is not None}
    missing = [version for version in versions if version.name not in held]
    if missing and fetch and context.offline:
        names = ", ".join(version.name for version in missing)
        raise UsageError(f"--offline: the images of {names} are not here; leave --offline out to pull them")
    before(held, missing if fetch else ())
    if missing and fetch:
        held |= _fetch(context, scene, missing)
    return held


def _fetch(context: Context, scene: Scene, missing: Sequence[Version]) -> dict[str, str]:
    """Pull or build images, as a run does it."""
    progress = open_progress()
    try:
        launcher = make_workshop(context, scene, Options(), progress).launchers["container"]
        found = {}
        for version in missing:
            made = isinstance(version.origin, ImageOrigin) and version.origin.build is not None
            launch = Launch(version=version, gpu=NO_GPU, cells=(), pull=not made, build=made)
            found[version.name] = launcher.make_ready(launch).digests["image"]
        return found
    finally:
        progress.close()
