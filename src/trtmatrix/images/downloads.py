"""What is still to be pulled or built, its size by layers that are counted once, and the disk that it takes.

A layer's size in matrix.lock is that of its compressed bytes. How large it is unpacked is not known before
(bench/unpacking.py measures it). The least that an image can take decides whether it is tried, the usual size
only warns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trtmatrix.plan.lockfile import Lock, LockedLayer, base_origin, pin_of
from trtmatrix.suite.image_names import is_own
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Engine, Keep, Launch

GB = 10**9
LOW = 5 * GB
"""Free bytes below which the cache or the results may not take what a run writes."""

USUAL_FACTOR = 2.0
"""Unpacked by compressed size, rounded up: 1.76 of TensorRT 8.6 with CUDA's libraries, by gzip."""
USUAL_UNLOCKED = 10 * GB
"""Compressed bytes of an image that is not locked, for want of better: NGC's are 5 to 20 GB."""
USUAL_BUILT = 8 * GB
"""What an image built from wheels takes beside its base: they are fetched, copied and installed."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """An image that is not here. ``layers``: those to be pulled, None where it is not locked.

    ``image``: its name in matrix.yaml; ``reference``: what is pulled, nothing where it is built on what is
    here; ``versions``: those that want it; ``built``: it is a base that wheels are put on.
    """

    image: str
    reference: str
    versions: tuple[str, ...]
    layers: tuple[LockedLayer, ...] | None
    built: bool = False

    @property
    def size(self) -> int | None:
        """Bytes to be pulled, as if it were pulled alone; None where that is not known."""
        return None if self.layers is None else sum({each.digest: each.size for each in self.layers}.values())


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


def gigabytes(count: float) -> str:
    """Return bytes for reading: ``9.4 GB``, ``82 MB``."""
    if count >= GB or not count:
        return f"{count / GB:.{0 if count >= 100 * GB else 1}f} GB"
    return f"{max(count / 10**6, 0.1):.{0 if count >= 10**7 else 1}f} MB"


def image_of(launch: Launch) -> ImageOrigin | None:
    """Return the image that a launch runs in, or None where a Python of the host runs it."""
    origin = launch.version.origin
    return origin if launch.python is None and isinstance(origin, ImageOrigin) else None


def find_downloads(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[Download, ...]:
    """Return the images that launches want and that are not here, each once, in their order.

    ``registry``: the mirror that is set, as of :class:`Matrix`.
    """
    locked = {name: own for name, each in lock.images.items() if (own := each.platforms.get(engine.platform))}
    origins = {name: ImageOrigin(image=name, pin=pin_of(lock, name, engine.platform)) for name in locked}
    held = [name for name, origin in origins.items() if engine.held(origin) is not None]
    here = {layer.digest for name in held for layer in locked[name].layers}
    found: dict[tuple[str, bool], Download] = {}
    for launch in launches:
        origin = image_of(launch)
        if origin is None or not launch.lacks_image:
            continue
        asked = asked_for(origin, lock, engine, registry)
        whole = locked.get(asked.image) if asked else None
        layers = tuple(layer for layer in whole.layers if layer.digest not in here) if whole else None
        before = found.get((origin.image, launch.build))
        names = dict.fromkeys((*(before.versions if before else ()), launch.version.name))
        found[origin.image, launch.build] = Download(
            image=origin.image, reference=asked.reference if asked else "", layers=layers if asked else (),
            versions=tuple(names), built=origin.build is not None,
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


def without_counted(downloads: Sequence[Download]) -> tuple[int | None, ...]:
    """Return the bytes that each adds to those before it: a layer is pulled once; None where not known."""
    seen: dict[str, int] = {}
    added: list[int | None] = []
    for download in downloads:
        fresh = {layer.digest: layer.size for layer in download.layers or () if layer.digest not in seen}
        added.append(None if download.layers is None else sum(fresh.values()))
        seen |= fresh
    return tuple(added)


def need_here(downloads: Sequence[Download], keep: Keep, lock: Lock, engine: Engine) -> Need:
    """Return the disk that downloads take in this engine while they are pulled one after another.

    Those that stay add up, unpacked. Of those that go after their last cell two are here at a time: one runs,
    the next is pulled. What is being pulled lies there compressed too, at the least its largest layer; with
    containerd's image store what is compressed stays. What images of unknown layers hold may be part of it.
    """
    if not downloads:
        return Need()
    kept = 1 if engine.snapshots else 0
    stay, go, flying = [Need()], [Need(), Need()], Need()
    for download, added in zip(downloads, without_counted(downloads), strict=True):
        usual = USUAL_UNLOCKED if added is None else added
        need = Need(
            least=(added or 0) * (1 + kept),
            usual=round(usual * (USUAL_FACTOR + kept)) + (USUAL_BUILT if download.built else 0),
        )
        stays = keep is Keep.ALL or (keep is Keep.LOCKED and download.layers is not None)
        (stay if stays or download.built else go).append(need)
        largest = max([0, *(layer.size for layer in download.layers or ())])
        flying = Need(least=max(flying.least, largest), usual=max(flying.usual, usual))
    together = [*stay, *([] if kept else [flying])]
    least = sum(n.least for n in together) + sum(sorted(n.least for n in go)[-2:])
    usual = sum(n.usual for n in together) + sum(sorted(n.usual for n in go)[-2:])
    pins = [pin for image in lock.images if (pin := pin_of(lock, image, engine.platform)) is not None]
    known = {each for pin in pins for each in pin.ids}
    unknown = sum(size for image_id, size in engine.sizes.items() if image_id not in known)
    # A layer that is here is neither unpacked nor pulled.
    return Need(least=max(0, least - 2 * unknown), usual=usual)


def asked_references(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[str, ...]:
    """Return what registries will be asked for, each reference once."""
    found = [download.reference for download in find_downloads(launches, lock, engine, registry)]
    return tuple(dict.fromkeys(reference for reference in found if reference))
