"""The words of the system as types: products, how facts are known, verdicts, causes, ids of cells. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from packaging.version import Version as Release

PART = re.compile(r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
"""The pattern of each part of a cell's id."""


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


_MACHINERY = frozenset(
    {
        Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH,
        Cause.IMAGE_MISSING,
    }
)  # fmt: skip
_OF_THE_MOMENT = frozenset(
    {
        Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
    }
)  # fmt: skip


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

    repro: str
    case: str
    version: str
    gpu: str

    def __str__(self) -> str:
        """Return the id as it is printed everywhere."""
        return f"{self.repro}/{self.case}@{self.version}#{self.gpu}"

    @classmethod
    def parse(cls, text: str) -> CellId:
        """Read an id as ``__str__`` writes it; ``ValueError`` where it is none."""
        part = PART.pattern
        match = re.fullmatch(rf"({part})/({part})@({part})#({part})", text)
        if match is None:
            raise ValueError(f"{text!r} is no cell id: <repro>/<case>@<version>#<gpu>")
        repro, case, version, gpu = match.groups()
        return cls(repro=repro, case=case, version=version, gpu=gpu)


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
