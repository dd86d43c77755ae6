"""What is still to be pulled or built, its size by layers that are counted once, and the disk that it takes.

A layer's size in matrix.lock is that of its compressed bytes. How large it is unpacked is not known before:
the factors are measured (bench/unpacking.py). The least that an image can take decides whether it is tried,
the usual size only warns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trtmatrix.launchers.lock import NGC, Lock, LockedLayer, base_origin, pin_of
from trtmatrix.suite.image_names import is_own
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Engine, Keep, Launch

GB = 10**9
LOW = 5 * GB
"""Free bytes below which the cache or the results may not take what a run writes."""

LEAST_FACTOR = 1.0
"""Unpacked by compressed size of layers of any kind: what does not shrink is stored as it is."""
NGC_LEAST_FACTOR = 1.5
USUAL_FACTOR = 2.0
"""The same of NVIDIA's libraries, rounded up: 1.76 of TensorRT 8.6 with CUDA's libraries, by gzip."""
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
        return None if self.layers is None else size_of(self.layers)


@dataclass(frozen=True, kw_only=True)
class Need:
    """Disk in bytes that downloads take at the same time: at the least, and usually."""

    least: int = 0
    usual: int = 0

    def __add__(self, other: Need) -> Need:
        """Return what both take together."""
        return Need(least=self.least + other.least, usual=self.usual + other.usual)


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


def size_of(layers: Iterable[LockedLayer]) -> int:
    """Return the bytes of layers, each counted once."""
    return sum({layer.digest: layer.size for layer in layers}.values())


def find_downloads(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[Download, ...]:
    """Return the images that launches want and that are not here, each once, in their order.

    ``registry``: the mirror that is set, as of :class:`Matrix`.
    """
    locked = {name: own for name, each in lock.images.items() if (own := each.of(engine.platform))}
    # An engine knows its layers by their unpacked bytes: what others share is unknown_bytes at most.
    held = [name for name in locked if engine.held(_locked_origin(name, lock, engine)) is not None]
    here = {layer.digest for name in held for layer in locked[name].layers}
    found: dict[tuple[str, bool], Download] = {}
    for launch in launches:
        origin = image_of(launch)
        if origin is None or not launch.lacks_image:
            continue
        if (before := found.get((origin.image, launch.build))) is not None:
            names = dict.fromkeys((*before.versions, launch.version.name))
            found[origin.image, launch.build] = replace(before, versions=tuple(names))
            continue
        asked = asked_for(origin, lock, engine, registry)
        whole = locked.get(asked.image) if asked else None
        layers = tuple(layer for layer in whole.layers if layer.digest not in here) if whole else None
        found[origin.image, launch.build] = Download(
            image=origin.image, reference=asked.reference if asked else "", layers=layers if asked else (),
            versions=(launch.version.name,), built=origin.build is not None,
        )  # fmt: skip
    return tuple(found.values())


def _locked_origin(image: str, lock: Lock, engine: Engine) -> ImageOrigin:
    return ImageOrigin(image=image, pin=pin_of(lock, image, engine.platform))


def asked_for(origin: ImageOrigin, lock: Lock, engine: Engine, registry: str = "") -> ImageOrigin | None:
    """Return what a registry is asked for to have an image: the image, or the base that it is built on.

    None where that is made here too, or is here.
    """
    wanted = origin
    if origin.build is not None:
        wanted = base_origin(origin.build.base, lock, engine.platform, registry)
    return None if is_own(wanted.image) or engine.held(wanted) is not None else wanted


def unknown_bytes(lock: Lock, engine: Engine) -> int:
    """Return the bytes of the images that are here and whose layers are not known.

    So much of what is to be pulled may be here already: a tag's image before it moved, one pulled by hand.
    """
    pins = [pin for image in lock.images if (pin := pin_of(lock, image, engine.platform)) is not None]
    known = {each for pin in pins for each in pin.ids}
    return sum(size for image_id, size in engine.sizes.items() if image_id not in known)


def without_counted(downloads: Sequence[Download]) -> tuple[int | None, ...]:
    """Return the bytes that each adds to those before it: a layer is pulled once; None where not known."""
    seen: set[str] = set()
    added: list[int | None] = []
    for download in downloads:
        layers = download.layers
        added.append(None if layers is None else size_of(x for x in layers if x.digest not in seen))
        seen |= {layer.digest for layer in layers or ()}
    return tuple(added)


def need_of(downloads: Sequence[Download], keep: Keep, here: int = 0, *, snapshots: bool = False) -> Need:
    """Return the disk that downloads take while they are pulled one after another.

    Those that stay add up, unpacked. Of those that go after their last cell two are here at a time: one runs,
    the next is pulled. What is being pulled lies there compressed too: at the least its largest layer.
    ``here``: bytes that may be here already (:func:`unknown_bytes`), whichever they are; ``snapshots``: what
    is compressed stays beside what is unpacked (:class:`Engine`).
    """
    kept = 1 if snapshots else 0
    stay, flying, go = Need(), Need(), list[Need]()
    for download, added in zip(downloads, without_counted(downloads), strict=True):
        factor = NGC_LEAST_FACTOR if download.image.startswith(f"{NGC}/") else LEAST_FACTOR
        usual = USUAL_UNLOCKED if added is None else added
        need = Need(
            least=round((added or 0) * (factor + kept)),
            usual=round(usual * (USUAL_FACTOR + kept)) + (USUAL_BUILT if download.built else 0),
        )
        stays = keep is Keep.ALL or (keep is Keep.LOCKED and download.layers is not None)
        if stays or download.built:
            stay += need
        else:
            go.append(need)
        # Layers that are too large to be part of what may be here already are pulled for certain.
        certain = [layer.size for layer in download.layers or () if layer.size * factor > here]
        flying = Need(least=max([flying.least, *certain]), usual=max(flying.usual, usual))
    two = Need(least=sum(sorted(n.least for n in go)[-2:]), usual=sum(sorted(n.usual for n in go)[-2:]))
    whole = stay + two
    whole = replace(whole, least=max(0, whole.least - here))
    return whole if snapshots or not downloads else whole + flying


def need_here(downloads: Sequence[Download], keep: Keep, lock: Lock, engine: Engine) -> Need:
    """Return the disk that downloads take in this engine (:func:`need_of`)."""
    return need_of(downloads, keep, unknown_bytes(lock, engine), snapshots=engine.snapshots)


def asked_references(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[str, ...]:
    """Return what registries will be asked for, each reference once."""
    found = [download.reference for download in find_downloads(launches, lock, engine, registry)]
    return tuple(dict.fromkeys(reference for reference in found if reference))
