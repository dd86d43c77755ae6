"""The words of the system as types: versions, repros, cases, cells, outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # packaging is slow to import, and most commands compare few versions or none
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version as Release

PART = re.compile(r"[a-z0-9]+(?:[.-]+[a-z0-9]+)*")
"""The pattern of each part of a cell's id."""

BEYOND = "beyond"
"""The measurement of a run that counts elements beyond the case's tolerance."""

Scalar = str | int | float | bool


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
        Cause.INTERRUPTED,
        Cause.LAUNCHER_FAILED,
        Cause.PROBE_FAILED,
        Cause.VERSION_MISMATCH,
        Cause.IMAGE_MISSING,
    }
)


_OF_THE_MOMENT = frozenset(
    {
        Cause.COMPONENT_MISSING,
        Cause.DRIVER_TOO_OLD,
        Cause.OUT_OF_GPU_MEMORY,
        Cause.OUT_OF_HOST_MEMORY,
    }
)


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
    ENGINE_TOO_OLD = "the container engine is too old"
    NOT_HERE = "not here, and --offline opens no connection"
    COMPONENT_MISSING = "component missing"
    NO_INTERPRETER = "no interpreter with this version"
    NOT_READY = "could not be made ready"
    OTHER_RUNTIME = "another runtime was asked for"


class Control(str, Enum):
    """A case whose verdict is known beforehand."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


class Basis(str, Enum):
    """What an expectation rests on."""

    REPORTED = "reported"
    MEASURED = "measured"
    ASSUMED = "assumed"


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
    ``host``: the node's name as records have it (:func:`trtmatrix.core.job_gpus.host_hash`).
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


@dataclass(frozen=True)
class Specifier:
    """Versions such as ``">=10.4,<10.8"``, as text until it is compared; pre-releases are versions too.

    Source: https://packaging.python.org/en/latest/specifications/version-specifiers/.
    """

    text: str = ""

    def contains(self, release: Release) -> bool:
        """Whether a version is among them; ``packaging.specifiers.InvalidSpecifier`` where it is none."""
        return _specifier_set(self.text).contains(release, prereleases=True)


@lru_cache(maxsize=1024)
def _specifier_set(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a repro says should happen in some cases at some versions and GPUs, and who says so.

    ``gpus``: patterns of names (``"*H200*"``), ``compute``: a specifier of compute capabilities
    (``">=8.9"``); empty: any GPU. ``on`` is the GPU that a report is of, for reading.
    """

    cases: tuple[str, ...]
    versions: Specifier
    gpus: tuple[str, ...] = ()
    compute: Specifier = Specifier()
    product: Product
    verdict: Verdict
    basis: Basis
    source: str = ""
    on: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """What helps against the finding; ``case`` names the case that tries it."""

    what: str
    case: str | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of parameters of a repro: a row of the table.

    ``limits`` maps a measurement of the case's own to the largest value that passes; outputs are judged by
    the noise floor of the case's ``precision``. ``defects``: the repro's known defects whose signature is
    looked for; ``defect``: the one that was put into a negative control. ``useful``: the largest noise floor
    (relative L2) at which a case without a known defect says anything. ``noise_key`` names what its noise
    depends on, in the calibration. ``bug_is`` names the causes that are the bug itself, and therefore a FAIL.
    ``remarks``: the words that a run may leave beside the verdict to pass (none: any). ``builds``: engines
    built and run in one process; ``processes``: fresh processes whose counts are added up. ``seconds`` is
    the time limit of one build and run. ``dangerous``: it may harm the process that it runs in, which serves
    no other cell afterwards. ``keep``: its outputs are kept, whatever comes out. ``tolerance``: ``atol`` and
    ``rtol`` by which the user accepts an output, |y − r| ≤ atol + rtol·|r| in every element; then that
    decides, and what the noise floor says is only told.
    """

    id: str
    params: Mapping[str, Scalar]
    limits: Mapping[str, float]
    control: Control | None = None
    defects: tuple[str, ...] = ()
    defect: str = ""
    useful: float = 0.1
    noise_key: str = ""
    builds: int = 1
    processes: int = 1
    products: frozenset[Product] = frozenset(Product)
    needs: frozenset[str] = frozenset()
    bug_is: frozenset[Cause] = frozenset()
    remarks: frozenset[str] = frozenset()
    seconds: float = 300.0
    dangerous: bool = False
    keep: bool = False
    tolerance: Mapping[str, float] = field(default_factory=dict)

    @property
    def precision(self) -> str:
        """The precision that is asked of the build (one of the probe's PRECISIONS), or nothing."""
        return str(self.params.get("precision", ""))


@dataclass(frozen=True, kw_only=True)
class Defect:
    """A known defect: what it is, in words, and where it was reported (nothing: known by its mathematics)."""

    what: str
    upstream: str = ""


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A finding's own figure: a measurement of cases that compare themselves with an equal formulation.

    ``reported`` maps a version's name to the value that ``source`` reports of it.
    """

    measure: str
    label: str
    cases: tuple[str, ...]
    reported: Mapping[str, float]
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The measurement that a repro's cells show, and what it is called."""

    measure: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Repro:
    """One finding: facts, expectations and cases. ``digest`` identifies what a run sees of it."""

    id: str
    title: str
    upstream: str
    url: str
    summary: str
    figure: Figure
    expectations: tuple[Expectation, ...]
    workarounds: tuple[Workaround, ...]
    cases: tuple[Case, ...]
    related: tuple[str, ...] = ()
    defects: Mapping[str, Defect] = field(default_factory=dict)
    twins: tuple[Twin, ...] = ()
    digest: str = ""


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
    from packaging.version import Version as Release

    return Release(re.sub(r"^[a-z-]+", "", name))
