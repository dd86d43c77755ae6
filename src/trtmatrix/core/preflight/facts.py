"""What the rules look at: the host as it was found, and what a run wants of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.lock import Lock
from trtmatrix.core.model import Gpu
from trtmatrix.core.plan import Engine, Keep, Launch
from trtmatrix.core.registry import Trouble


@dataclass(frozen=True, kw_only=True)
class Room:
    """A folder and the bytes that are free on its disk."""

    path: str
    free: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a registry said of one reference: its digest, or what is wrong, with the words and the remedy."""

    host: str
    digest: str = ""
    trouble: Trouble | None = None
    words: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A host as it was found.

    ``images``: where the engine keeps images, None where that is not on this host; ``memory`` and
    ``available``: of the host, in bytes, 0 where not known. ``nodes``: the device nodes of NVIDIA that are
    here, None where the engine is on another host. ``mig``: of each GPU in MIG mode, by index, how many
    instances it has. ``answers``: by reference, what registries said; ``indexes``: by address, why an index
    of wheels does not answer (nothing: it does); ``unhashed``: by version, the wheels that its image is
    built from and that have no SHA-256. What was not asked is not in these.
    """

    engine: Engine
    gpus: tuple[Gpu, ...] = ()
    scan_reason: str = ""
    images: Room | None = None
    cache: Room = Room(path="", free=0)
    results: Room = Room(path="", free=0)
    memory: int = 0
    available: int = 0
    nodes: frozenset[str] | None = None
    mig: Mapping[int, int] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    indexes: Mapping[str, str] = field(default_factory=dict)
    unhashed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a run wants: launches in the order in which they start, with only the cells that are to be run.

    ``memory``: a container's limit in bytes; ``registry``: the mirror that is set.
    """

    launches: tuple[Launch, ...] = ()
    lock: Lock = field(default_factory=Lock)
    keep: Keep = Keep.ALL
    memory: int = 32 << 30
    registry: str = ""


def image_of(launch: Launch) -> ImageOrigin | None:
    """Return the image that a launch runs in, or None where a Python of the host runs it."""
    origin = launch.version.origin
    return origin if launch.python is None and isinstance(origin, ImageOrigin) else None


def key(launch: Launch) -> tuple[str, str]:
    """Return what tells the launches of a plan apart."""
    return launch.version.name, launch.gpu.slug
