"""What an archive tells of one failing cell, as types: gathered once, then written as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trtmatrix.core.model import CellId, Evidence, Product, Verdict

LIMIT_BYTES = 25_000_000
"""What GitHub takes as an attachment: https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/attaching-files."""

SUFFIX = ".tar.gz"
"""What the name of an archive ends in."""

ISSUE, SCRIPT, RUN, MODEL = "ISSUE.md", "repro.py", "reproduce.sh", "model.onnx"
INPUTS, REFERENCE, DEFECTS, EXTRA = "inputs.npz", "reference.npz", "defects.npz", "extra.npz"
BAD_OUTPUTS, GOOD_OUTPUTS = "outputs-bad.npz", "outputs-good.npz"
RECORD, GOOD_RECORD, EXPECTED = "record.json", "record-good.json", "expected.json"
ENVIRONMENT, LOG, LAYERS, SUMS = "environment.json", "log.txt", "layers.json", "SHA256SUMS"
POLYGRAPHY, TRTEXEC, LOADER = "polygraphy.sh", "trtexec.sh", "polygraphy_inputs.py"
RAN = "image-id.txt"
"""What reproduce.sh writes beside the result: the id of the image that it ran."""

OTHERS, IMAGE = "others", "image"
"""Folders: graphs to compare with; the Dockerfile of an image that is in no registry, and what it needs."""

NAMES = frozenset({
    ISSUE, SCRIPT, RUN, MODEL, INPUTS, REFERENCE, DEFECTS, EXTRA, BAD_OUTPUTS, GOOD_OUTPUTS, RECORD,
    GOOD_RECORD, EXPECTED, ENVIRONMENT, LOG, LAYERS, SUMS, POLYGRAPHY, TRTEXEC, LOADER, OTHERS, IMAGE,
    "check.onnx", "left-out.json",
})  # fmt: skip
"""What a file of the user's own may not be called there."""


class Form(str, Enum):
    """Whose form an issue fills."""

    NVIDIA = "NVIDIA/TensorRT"
    NVIDIA_CAPTURE = "NVIDIA/TensorRT from 10.14 on, which asks for an API capture"
    TORCH = "pytorch/TensorRT"


@dataclass(frozen=True, kw_only=True)
class Image:
    """A container image.

    ``reference``: ``name@sha256:…`` of the registry's manifest, empty where it is in none. ``id``: its own
    digest on the host that ran it (``sha256:…``). ``tag``: the name that a build gives it. ``build``: the
    shell line, run in the archive's folder, that builds it from what lies in ``image/``; empty where none.
    """

    name: str
    id: str
    reference: str = ""
    tag: str = ""
    build: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What ran the cell; empty where it is not known. ``variables``: those that change numerics."""

    library: str = ""
    bindings: str = ""
    gpu: str = ""
    gpu_count: int = 0
    compute: str = ""
    variant: str = ""
    mig: str = ""
    driver: str = ""
    driver_cuda: str = ""
    libcuda: str = ""
    clocks: Mapping[str, float | int | str] = field(default_factory=dict)
    cuda: str = ""
    cudnn: str = ""
    os: str = ""
    host_os: str = ""
    machine: str = ""
    python: str = ""
    numpy: str = ""
    torch: str = ""
    torch_tensorrt: str = ""
    tensorflow: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutputLine:
    """How one output stands to its reference. ``floors``: its error as a multiple of the noise floor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rel_l2: float | None = None
    floors: float | None = None
    max_abs: float | None = None
    nan: int = 0
    worst_at: int | None = None
    worst_y: float | None = None
    worst_r: float | None = None


@dataclass(frozen=True, kw_only=True)
class VersionLine:
    """What one version makes of the case. ``image``: with its digest, where it was run."""

    version: str
    library: str = ""
    verdict: Verdict | None = None
    cause: str = ""
    reason: str = ""
    figure: str = ""
    builds: int = 0
    evidence: Evidence = Evidence.NONE
    driver: str = ""
    image: str = ""
    source: str = ""
    is_this: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeLine:
    """What one change of the build or the graph does to the failure.

    ``fails``: whether the same failure is still there; None where that cannot be said, and ``why_not`` tells.
    """

    change: str
    fails: bool | None = None
    verdict: Verdict | None = None
    figure: str = ""
    builds: int = 0
    reason: str = ""
    why_not: str = ""


Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is asked of the build and the run, for other tools than ours.

    The first fields are those of the probe's ``Backend.build``; ``marked``: inner tensors, made outputs.
    ``inputs``: the name of an array in ``inputs.npz``, without the mark of its sample, → the graph's name;
    ``outputs`` likewise of ``reference.npz``. ``samples``: where there are several, the arrays' names end in
    ``.s0``, ``.s1`` and so on. ``shapes``: of the first sample, by the graph's names. ``has_reference``:
    whether there is a ``reference.npz``.
    """

    precision: str
    level: int | None = None
    plugins: bool = False
    keep_fp32: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    profile: Mapping[str, tuple[Shape, Shape, Shape]] = field(default_factory=dict)
    quantized: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    samples: int = 1
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    has_reference: bool = True


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A file that is not in the archive: its digest, size and why."""

    name: str
    sha256: str
    size: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """All that the text of an archive says.

    ``kind``: a word for the title ("Accuracy", "Build", "Crash"). ``figure_label``: what the figure is.
    ``tool``: this program's version. ``product_name``: "TensorRT", "ONNX Runtime", "TensorRT-RTX".
    ``latest``: the newest version of the product that was tried, ``newest_known``: the newest that is known
    of; ``latest_words``: why the latest was not tried, where it was not. ``on_cpu``: what is said of other
    frameworks (ONNX Runtime's verdict of the same graph, with version and figure). ``params``: the case's.
    ``manner``: in which way it fails, in words. ``measured_on``: the record's date. ``recipe``: None where
    other tools cannot show it (a race between streams, say). ``archive``: the archive's name without
    ``.tar.gz``; empty: the cell's. ``is_control``: a known defect was put into the graph on purpose.
    ``reference_by``: what computed the reference in float64 on the CPU; empty: NumPy, from the repro's own
    mathematics. ``message``: the product's own words or a traceback, where it ended early. ``files``: what is
    in the archive; empty: not known yet, all that may be is listed.
    """

    cell: CellId
    product: Product
    product_name: str
    version: str
    title: str
    upstream: str
    url: str
    summary: str
    kind: str
    verdict: Verdict
    reason: str
    figure: str
    figure_label: str
    manner: str
    builds: int
    failed: int
    params: Mapping[str, str | int | float | bool]
    precision: str
    environment: Environment
    image: Image | None
    outputs: tuple[OutputLine, ...] = ()
    versions: tuple[VersionLine, ...] = ()
    changes: tuple[ChangeLine, ...] = ()
    workarounds: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    nearest_good: str = ""
    latest: str = ""
    newest_known: str = ""
    latest_words: str = ""
    on_cpu: str = ""
    own_model: bool = False
    attached: tuple[str, ...] = ()
    tool: str = ""
    measured_on: str = ""
    recipe: Recipe | None = None
    archive: str = ""
    is_control: bool = False
    reference_by: str = ""
    message: str = ""
    files: tuple[str, ...] = ()

    @property
    def archive_name(self) -> str:
        """What the archive's file and its one folder are called."""
        return self.archive or f"{self.cell.repro}-{self.cell.case}-{self.cell.version}"
