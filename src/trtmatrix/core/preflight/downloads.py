"""What is still to be pulled or built, its size by layers that are counted once, and the disk that it takes.

A layer's size in matrix.lock is that of its compressed bytes. How large it is unpacked is not known before:
the factors are measured (bench/unpacking.py). The least that an image can take decides whether it is tried,
the usual size only warns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.image_names import is_own
from trtmatrix.core.lock import NGC, Lock, LockedLayer, base_origin, pin_of
from trtmatrix.core.plan import Engine, Keep, Launch
from trtmatrix.core.preflight.facts import image_of

GB = 10**9
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


def size_of(layers: Iterable[LockedLayer]) -> int:
    """Return the bytes of layers, each counted once."""
    return sum({layer.digest: layer.size for layer in layers}.values())


def find_downloads(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[Download, ...]:
    """Return the images that launches want and that are not here, each once, in their order.

    ``registry``: the mirror that is set, as of :class:`Matrix`.
    """
    here = layers_here(lock, engine)
    wanted: dict[tuple[str, bool], tuple[ImageOrigin, list[str]]] = {}
    for launch in launches:
        origin = image_of(launch)
        if origin is not None and launch.lacks_image:
            versions = wanted.setdefault((origin.image, launch.build), (origin, []))[1]
            if launch.version.name not in versions:
                versions.append(launch.version.name)
    return tuple(
        _download(origin, tuple(versions), lock, engine, here, registry)
        for origin, versions in wanted.values()
    )


def _download(
    origin: ImageOrigin, versions: tuple[str, ...], lock: Lock, engine: Engine, here: frozenset[str],
    registry: str,
) -> Download:  # fmt: skip
    built, asked = origin.build is not None, asked_for(origin, lock, engine, registry)
    if asked is None:
        return Download(image=origin.image, reference="", versions=versions, layers=(), built=built)
    layers = _missing_layers(asked.image, lock, engine, here)
    return Download(
        image=origin.image, reference=asked.reference, versions=versions, layers=layers, built=built
    )


def asked_for(origin: ImageOrigin, lock: Lock, engine: Engine, registry: str = "") -> ImageOrigin | None:
    """Return what a registry is asked for to have an image: the image, or the base that it is built on.

    None where that is made here too, or is here.
    """
    wanted = origin
    if origin.build is not None:
        wanted = base_origin(origin.build.base, lock, engine.platform, registry)
    return None if is_own(wanted.image) or engine.held(wanted) is not None else wanted


def layers_here(lock: Lock, engine: Engine) -> frozenset[str]:
    """Return the digests of the layers of all locked images that are here.

    An engine knows its layers by their unpacked bytes: what others share is :func:`unknown_bytes` at most.
    """
    held = [
        found
        for image in lock.images.values()
        if (found := image.of(engine.platform)) is not None
        and engine.held(ImageOrigin(image=image.image, pin=pin_of(lock, image.image, engine.platform)))
    ]
    return frozenset(layer.digest for platform in held for layer in platform.layers)


def unknown_bytes(lock: Lock, engine: Engine) -> int:
    """Return the bytes of the images that are here and whose layers are not known.

    So much of what is to be pulled may be here already: a tag's image before it moved, one pulled by hand.
    """
    known = {
        each
        for image in lock.images
        if (pin := pin_of(lock, image, engine.platform)) is not None
        for each in pin.ids
    }
    return sum(size for image_id, size in engine.sizes.items() if image_id not in known)


def _missing_layers(
    image: str, lock: Lock, engine: Engine, here: frozenset[str]
) -> tuple[LockedLayer, ...] | None:
    locked = lock.images.get(image)
    found = locked.of(engine.platform) if locked is not None else None
    if found is None:
        return None
    return tuple(layer for layer in found.layers if layer.digest not in here)


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
    stay, go = Need(), [Need(), Need()]
    flying = Need()
    for download, added in zip(downloads, without_counted(downloads), strict=True):
        need = _unpacked(download, added, kept=1 if snapshots else 0)
        if stays(download, keep):
            stay = _sum(stay, need)
        else:
            go.append(need)
        flying = Need(
            least=max([flying.least, *(layer.size for layer in _surely_pulled(download, here))]),
            usual=max(flying.usual, USUAL_UNLOCKED if added is None else added),
        )
    two = Need(least=sum(sorted(n.least for n in go)[-2:]), usual=sum(sorted(n.usual for n in go)[-2:]))
    whole = _sum(stay, two)
    whole = replace(whole, least=max(0, whole.least - here))
    if snapshots:
        return whole
    return _sum(whole, flying) if downloads else Need()


def _surely_pulled(download: Download, here: int) -> list[LockedLayer]:
    """Return the layers that are too large to be part of what may be here already."""
    factor = _least_factor(download)
    return [layer for layer in download.layers or () if layer.size * factor > here]


def need_here(downloads: Sequence[Download], keep: Keep, lock: Lock, engine: Engine) -> Need:
    """Return the disk that downloads take in this engine (:func:`need_of`)."""
    return need_of(downloads, keep, unknown_bytes(lock, engine), snapshots=engine.snapshots)


def stays(download: Download, keep: Keep) -> bool:
    """Whether an image stays after its last cell; one that was built always does."""
    return download.built or keep is Keep.ALL or (keep is Keep.LOCKED and download.layers is not None)


def _least_factor(download: Download) -> float:
    return NGC_LEAST_FACTOR if download.image.startswith(f"{NGC}/") else LEAST_FACTOR


def _unpacked(download: Download, added: int | None, kept: int) -> Need:
    """Return what an image takes unpacked, and ``kept`` times compressed."""
    wheels = USUAL_BUILT if download.built else 0
    if added is None:
        return Need(least=0, usual=round(USUAL_UNLOCKED * (USUAL_FACTOR + kept)) + wheels)
    least = _least_factor(download) + kept
    return Need(least=round(added * least), usual=round(added * (USUAL_FACTOR + kept)) + wheels)


def _sum(one: Need, other: Need) -> Need:
    return Need(least=one.least + other.least, usual=one.usual + other.usual)


def asked_references(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[str, ...]:
    """Return what registries will be asked for, each reference once."""
    found = [download.reference for download in find_downloads(launches, lock, engine, registry)]
    return tuple(dict.fromkeys(reference for reference in found if reference))
