"""What is said of a cell: its outcome, how it is known, why it is not attempted. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from trtmatrix.suite.model import Cause, Verdict


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
