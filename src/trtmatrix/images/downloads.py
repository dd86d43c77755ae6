"""What is still to be pulled or built, its size by layers that are counted once, and the disk that it takes.

A layer's size in matrix.lock is that of its compressed bytes; unpacked it is usually twice as large
(bench/unpacking.py measures it). Only an image that cannot fit at all is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trtmatrix.common.text import counted
from trtmatrix.plan.lockfile import Lock, LockedLayer, base_origin, pin_of
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Engine, Keep, Launch, is_own

GB = 10**9
LOW = 5 * GB
"""Free bytes below which the cache or the results may not take what a run writes."""
USUAL_FACTOR = 2
"""Unpacked by compressed size, rounded up: 1.76 of TensorRT 8.6 with CUDA's libraries, by gzip."""
USUAL_UNLOCKED = 10 * GB
"""Compressed bytes of an image that is not locked, for want of better: NGC's are 5 to 20 GB."""
USUAL_BUILT = 8 * GB
"""What an image built from wheels takes beside its base: they are fetched, copied and installed."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """An image that is not here. ``layers``: those to be pulled, None where it is not locked.

    ``image``: its name in matrix.yaml; ``reference``: what is pulled, nothing where it is built on what is
    here; ``versions``: those that want it; ``built``: it is a base that wheels are put on. ``added``: bytes
    that it adds to those before it, as a layer is pulled once; None where that is not known.
    """

    image: str
    reference: str
    versions: tuple[str, ...]
    layers: tuple[LockedLayer, ...] | None
    built: bool = False
    added: int | None = None


@dataclass(frozen=True, kw_only=True)
class Need:
    """Disk in bytes that downloads take at the same time: at the least, and usually."""

    least: int = 0
    usual: int = 0


@dataclass(frozen=True, kw_only=True)
class Room:
    """A folder and the bytes that are free on its disk."""

    path: str
    free: int

    @property
    def told(self) -> str:
        """How much is free, in words."""
        return f"{self.path}: {gigabytes(self.free)} free"


def gigabytes(count: float) -> str:
    """Return bytes for reading: ``9.4 GB``, ``82 MB``."""
    if count >= GB or not count:
        return f"{count / GB:.{0 if count >= 100 * GB else 1}f} GB"
    return f"{max(count / 10**6, 0.1):.{0 if count >= 10**7 else 1}f} MB"


def find_downloads(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[Download, ...]:
    """Return the images that launches want and that are not here, each once, in their order.

    ``registry``: the mirror that is set, as of :class:`Matrix`.
    """
    locked = {name: own for name, each in lock.images.items() if (own := each.platforms.get(engine.platform))}
    origins = {name: ImageOrigin(image=name, pin=pin_of(lock, name, engine.platform)) for name in locked}
    held = [name for name, origin in origins.items() if engine.held(origin) is not None]
    seen = {layer.digest for name in held for layer in locked[name].layers}
    found: dict[tuple[str, bool], Download] = {}
    for launch in launches:
        origin, name = launch.image, launch.version.name
        if origin is None or not launch.lacks_image:
            continue
        key = (origin.image, launch.build)
        if before := found.get(key):
            found[key] = replace(before, versions=tuple(dict.fromkeys((*before.versions, name))))
            continue
        asked = asked_for(origin, lock, engine, registry)
        whole = locked.get(asked.image) if asked else None
        fresh = {each.digest: each for each in whole.layers if each.digest not in seen} if whole else {}
        seen |= fresh.keys()
        layers = tuple(fresh.values()) if whole or not asked else None
        found[key] = Download(
            image=origin.image, reference=asked.reference if asked else "", versions=(name,), layers=layers,
            built=origin.build is not None,
            added=None if layers is None else sum(each.size for each in layers),
        )  # fmt: skip
    return tuple(found.values())


def asked_for(origin: ImageOrigin, lock: Lock, engine: Engine, registry: str = "") -> ImageOrigin | None:
    """Return what a registry is asked for to have an image: the image, or the base that it is built on.

    None where that is made here too, or is here.
    """
    wanted = origin
    if origin.build is not None:
        wanted = base_origin(origin.build.base, lock, engine.platform, registry)
    return None if is_own(wanted.image) or engine.held(wanted) is not None else wanted


def need_here(downloads: Sequence[Download], keep: Keep) -> Need:
    """Return the disk that downloads take while they are pulled one after another.

    Those that stay add up; of those that go after their last cell two are here at a time: one runs, the next
    is pulled. At the least an image takes its compressed bytes, and the largest layer lies beside them while
    it is unpacked.
    """
    stay, go = [Need()], [Need(), Need()]
    for download in downloads:
        packed = USUAL_UNLOCKED if download.added is None else download.added
        usual = packed * USUAL_FACTOR + (USUAL_BUILT if download.built else 0)
        stays = keep is Keep.ALL or download.built
        (stay if stays else go).append(Need(least=download.added or 0, usual=usual))
    together = [*stay, *sorted(go, key=lambda need: need.usual)[-2:]]
    largest = max((layer.size for download in downloads for layer in download.layers or ()), default=0)
    least = largest + sum(need.least for need in together)
    return Need(least=least, usual=sum(need.usual for need in together))


def image_words(launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = "") -> str:
    """Return how many images launches lack, their GB and how long that takes; nothing where none."""
    sizes = [each.added for each in find_downloads(launches, lock, engine, registry)]
    images, known = counted(len(sizes), "image"), [size for size in sizes if size is not None]
    if not sizes:
        return ""
    if len(known) < len(sizes):
        each = " each" * (len(sizes) > 1)
        return f"{images}, 10 to 34 GB{each}, downloaded in 1 to 5 min{each} at 1 Gbit/s"
    if not (size := sum(known)):  # made of wheels on a base that is here, or is made here too
        return f"{images} to build"
    return f"{images}, {gigabytes(size)}, downloaded in {max(1, round(8 * size / 1e9 / 60))} min at 1 Gbit/s"
