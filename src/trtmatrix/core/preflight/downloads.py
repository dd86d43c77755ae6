"""What is still to be pulled or built, its size by layers that are counted once, and the disk that it takes.

A layer's size in matrix.lock is that of its compressed bytes. How large it is unpacked is not known before:
the factors are measured (bench/unpacking.py). The least that an image can take decides whether it is tried,
the usual size only warns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    An engine knows its layers by their unpacked bytes, so that of other images nothing can be said.
    """
    held = [
        found
        for image in lock.images.values()
        if (found := image.of(engine.platform)) is not None
        and engine.held(ImageOrigin(image=image.image, pin=pin_of(lock, image.image, engine.platform)))
    ]
    return frozenset(layer.digest for platform in held for layer in platform.layers)


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


def need_of(downloads: Sequence[Download], keep: Keep) -> Need:
    """Return the disk that downloads take while they are pulled one after another.

    Those that stay add up, unpacked. Of those that go after their last cell two are here at a time: one runs,
    the next is pulled. What is being pulled lies there compressed too: at the least its largest layer.
    """
    stay, go = Need(), [Need(), Need()]
    flying = Need()
    for download, added in zip(downloads, without_counted(downloads), strict=True):
        need = _unpacked(download, added)
        if stays(download, keep):
            stay = _sum(stay, need)
        else:
            go.append(need)
        flying = Need(
            least=max([flying.least, *(layer.size for layer in download.layers or ())]),
            usual=max(flying.usual, USUAL_UNLOCKED if added is None else added),
        )
    two = Need(least=sum(sorted(n.least for n in go)[-2:]), usual=sum(sorted(n.usual for n in go)[-2:]))
    return _sum(_sum(stay, two), flying) if downloads else Need()


def stays(download: Download, keep: Keep) -> bool:
    """Whether an image stays after its last cell; one that was built always does."""
    return download.built or keep is Keep.ALL or (keep is Keep.LOCKED and download.layers is not None)


def _unpacked(download: Download, added: int | None) -> Need:
    wheels = USUAL_BUILT if download.built else 0
    if added is None:
        return Need(least=0, usual=round(USUAL_UNLOCKED * USUAL_FACTOR) + wheels)
    least = NGC_LEAST_FACTOR if download.image.startswith(f"{NGC}/") else LEAST_FACTOR
    return Need(least=round(added * least), usual=round(added * USUAL_FACTOR) + wheels)


def _sum(one: Need, other: Need) -> Need:
    return Need(least=one.least + other.least, usual=one.usual + other.usual)


def asked_references(
    launches: Iterable[Launch], lock: Lock, engine: Engine, registry: str = ""
) -> tuple[str, ...]:
    """Return what registries will be asked for, each reference once."""
    found = [download.reference for download in find_downloads(launches, lock, engine, registry)]
    return tuple(dict.fromkeys(reference for reference in found if reference))
