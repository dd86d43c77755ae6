"""GPUs: what is known of one, and the names by which NVML, sites and users call them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Boards of a site that are alike in all that records are compared by, and on how many nodes they are."""

    name: str
    variant: str
    driver: str | None
    hosts: int = 1


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU: a board of this host (``index`` is set), one named by the user, or none.

    ``remote``: a model that nodes of a site have, or one board of such a node.

    ``compute`` is the compute capability such as ``"8.9"``; ``variant`` holds what makes two boards
    of one name differ (memory in GiB, MIG profile), ``uuid_hash`` the SHA-256 of the UUID. ``seen``: the
    boards that jobs found on a site's nodes, the newest driver first; ``driver`` is then the newest one.
    ``host``: what stands for the node's name in records (:func:`trtmatrix.launchers.gpu.job_gpus`).
    """

    slug: str
    name: str
    compute: str | None = None
    datacenter: bool = False
    driver: str | None = None
    variant: str = ""
    uuid_hash: str | None = None
    uuid: str | None = field(default=None, repr=False)
    index: int | None = None
    minor: int | None = None
    remote: bool = False
    seen: tuple[Seen, ...] = ()
    host: str = ""

    @property
    def present(self) -> bool:
        """Whether cells can be run on it: it is in this host, or a site's nodes have it."""
        return self.remote or self.index is not None

    @property
    def is_board(self) -> bool:
        """Whether it is one board, of which all is known, not a model that may be several."""
        return self.index is not None or bool(self.host or self.uuid_hash)

    def is_seen(self, name: object, variant: object, driver: object) -> bool:
        """Whether a board with these facts is what cells would run on."""
        ours = self.seen if self.remote else (self,)
        return any((board.name, board.variant, board.driver) == (name, variant, driver) for board in ours)


CPU = Gpu(slug="cpu", name="CPU")
NO_GPU = Gpu(slug="none", name="no NVIDIA GPU here")


def slug_of(name: str) -> str:
    """Return a GPU's name as a part of a cell's id: ``NVIDIA H200`` gives ``nvidia-h200``."""
    slug = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "gpu"
    return slug if slug.startswith(("nvidia", "tesla", "quadro")) else f"nvidia-{slug}"


def plain_name(name: str) -> str:
    """Reduce a name to what tells GPUs apart."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return " ".join(word for word in words if word not in _DROPPED and not _SIZE.fullmatch(word))


_MAKER = "nvidia tesla quadro geforce grid generation mig"
_FORM = "pcie sxm sxm2 sxm3 sxm4 sxm5 nvl dgxs fhhl hbm2 hbm2e hbm3 hbm3e"
_DROPPED = {*_MAKER.split(), *_FORM.split()}
_SIZE = re.compile(r"\d+gb?|\d+[abcq]")
"""A board's or an instance's memory, or a profile of vGPU: ``80gb``, ``1g``, ``40c``."""
