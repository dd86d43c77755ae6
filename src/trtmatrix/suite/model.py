"""The words of the system as types: products, GPUs, verdicts, causes, outcomes, ids of cells. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Annotated

from packaging.version import Version as Release
from pydantic import Field

PART = re.compile(r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*")  # the pattern of each part of a cell's id
Part = Annotated[str, Field(pattern=f"^(?:{PART.pattern})$")]  # a part of a cell's id, as a key of a file


class Product(str, Enum):
    """What a version is a release of."""

    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt-rtx"
    ONNXRUNTIME = "onnxruntime"


class Known(str, Enum):
    """How a fact of matrix.yaml is known."""

    READ = "read"
    THIRD_PARTY = "third-party"
    RECALLED = "recalled"
    INFERRED = "inferred"
    MEASURED = "measured"


class Verdict(str, Enum):
    """What the judge says of a record."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    FLAKY = "FLAKY"
    INVALID = "INVALID"
    BUILT = "BUILT"
    NO_VERDICT = "NO VERDICT"


class Cause(str, Enum):
    """Why there is no verdict."""

    UNSUPPORTED_GPU = "unsupported GPU"
    UNSUPPORTED_BY_VERSION = "unsupported by this version"
    COMPONENT_MISSING = "component missing"
    DRIVER_TOO_OLD = "driver too old"
    IMAGE_MISSING = "image missing"
    OUT_OF_GPU_MEMORY = "out of GPU memory"
    OUT_OF_HOST_MEMORY = "out of host memory"
    TIME_OUT = "time-out"
    BUILD_FAILED = "build failed"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    LAUNCHER_FAILED = "launcher failed"
    PROBE_FAILED = "probe failed"
    VERSION_MISMATCH = "version mismatch"

    @property
    def is_machinery(self) -> bool:
        """Whether this is trouble with the machinery, not a finding about a version."""
        return self in _MACHINERY

    @property
    def may_pass(self) -> bool:
        """Whether it may come out otherwise next time: the host's memory or set-up decide."""
        return self.is_machinery or self in _OF_THE_MOMENT


_MACHINERY = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
}  # fmt: skip
_OF_THE_MOMENT = {
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip


class Control(str, Enum):
    """A case whose verdict is known beforehand."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


class Basis(str, Enum):
    """What an expectation rests on."""

    REPORTED = "reported"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, kw_only=True, order=True)
class CellId:
    """``<repro>/<case>@<version>#<gpu>``."""

    repro: Part
    case: Part
    version: Part
    gpu: Part

    def __str__(self) -> str:
        return f"{self.repro}/{self.case}@{self.version}#{self.gpu}"

    @property
    def folder(self) -> str:
        """Where its records lie in a tree of results."""
        return f"{self.gpu}/{self.version}/{self.repro}/{self.case}"

    @classmethod
    def parse(cls, text: str) -> CellId:
        """Read an id as ``__str__`` writes it; ``ValueError`` where it is none."""
        part = PART.pattern
        pattern = rf"(?P<repro>{part})/(?P<case>{part})@(?P<version>{part})#(?P<gpu>{part})"
        if match := re.fullmatch(pattern, text):
            return cls(**match.groupdict())
        raise ValueError(f"{text!r} is no cell id: <repro>/<case>@<version>#<gpu>")


@lru_cache(maxsize=1024)
def release_of(name: str) -> Release:
    """Return what orders versions of one product: the release inside a column's name.

    ``"10.7.0"`` gives 10.7.0, ``"onnxruntime-1.31.1"`` gives 1.31.1.
    """
    return Release(re.sub(r"^[a-z-]+", "", name))


def is_release(text: str) -> bool:
    """Whether packaging reads a text as a version number."""
    try:
        Release(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU: a board of this host (``index`` is set), one named by the user, or none.

    ``remote``: a model that nodes of a site have, or one board of such a node.

    ``compute`` is the compute capability such as ``"8.9"``; ``variant`` holds what makes two boards
    of one name differ (memory in GiB, MIG profile), ``uuid_hash`` the SHA-256 of the UUID. ``seen``: the
    boards that jobs found on a site's nodes, those once that are alike in all that records are compared by,
    the newest driver first; ``driver`` is then the newest one.
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
    seen: tuple[Gpu, ...] = ()
    host: str = ""

    @property
    def present(self) -> bool:
        """Whether cells can be run on it: it is in this host, or a site's nodes have it."""
        return self.remote or self.index is not None

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


class Exclusion(str, Enum):
    """Why preflight does not attempt a cell."""

    UNSUPPORTED_GPU = "this version does not support the GPU"
    NO_GPU = "no NVIDIA GPU here"
    OTHER_GPU = "the GPU is not in this host"
    NO_ENGINE = "no container engine"
    NO_GPU_ACCESS = "containers cannot reach the GPU"
    DRIVER_TOO_OLD = "driver too old"
    IMAGE_NOT_PULLED = "image not pulled"
    IMAGE_NOT_BUILT = "image not built"
    IMAGE_NOT_GIVEN = "the registry does not give the image"
    NO_ROOM = "not enough disk"
    NO_MEMORY = "not enough memory"
    NOT_HERE = "not here, and --offline opens no connection"
    COMPONENT_MISSING = "component missing"
    NO_INTERPRETER = "no interpreter with this version"
    NOT_READY = "could not be made ready"
    OTHER_RUNTIME = "another runtime was asked for"


class Evidence(str, Enum):
    """How a cell is known."""

    MEASURED = "measured"
    RECORDED = "recorded"
    REPORTED = "reported"
    NONE = "none"

    @property
    def is_record(self) -> bool:
        """Whether there is a record of it, made here or elsewhere."""
        return self in {Evidence.MEASURED, Evidence.RECORDED}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A verdict with its cause and its reason in words.

    ``builds``: how many engines it rests on (0: the product builds none, or nothing was run), of which
    ``failed`` fail. ``fit``: the precision that the outputs show, where it is not the one asked for or where
    several were allowed (``"tf32"``, ``"fp16"``, ``"fp16+tf32"``).
    """

    verdict: Verdict
    cause: Cause | None = None
    reason: str = ""
    builds: int = 0
    failed: int = 0
    fit: str = ""
