"""What a repro may ask of a product, and what its backends share: inputs as an engine has them, latencies."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from trtprobe import ends
from trtprobe.plans import Plans

PRECISIONS = ("tf32", "fp32", "fp16", "fp16-flag")
"""``tf32``: float32 graph, TF32 allowed. ``fp32``: TF32 forbidden. ``fp16``: a graph typed in
float16. ``fp16-flag``: float32 graph, TF32 and FP16 allowed (TensorRT below 11 only)."""

Shape = Tuple[int, ...]
Range = Tuple[Shape, ...]
"""The least, the best and the largest shape of a dynamic input (values, where it is a shape tensor)."""

LEAST, SLOW_SECONDS = 3, 0.5
"""So many runs are timed at least, unless they are slow."""


class BuildOptions(NamedTuple):
    """What a repro asks of a build; see :meth:`Backend.build`."""

    precision: str
    level: Optional[int]
    plugins: bool
    keep_fp32: Tuple[str, ...]
    outputs: Tuple[str, ...]
    profile: Tuple[Tuple[str, Range], ...]
    quantized: Tuple[str, ...]


class Engine:
    """A graph that was built."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run once: inputs and outputs by name, as host arrays in the graph's dtypes.

        May be called again, with other shapes where the engine has a profile. An engine's first run
        leaves its latency in the backend's facts.
        """
        raise NotImplementedError

    def fusion(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Say how attention was compiled, as far as it can be seen.

        ``"fused"``: a layer or a kernel of one run is called mha, fmha or flash; ``"plain"``: all
        are known and none is; ``"?"``: the engine hides what it runs.
        """
        raise NotImplementedError

    def latency(self, inputs: Mapping[str, np.ndarray], runs: int = 50) -> float:
        """Return the median time of one run on one stream, in milliseconds; where ``has_streams``."""
        raise NotImplementedError


class Backend:
    """A product as imported. ``facts``, ``scalars`` and ``counts`` go into the record.

    ``plans``: the engines of cells of the same job. ``builder_seconds``: what the process's first Builder
    cost. ``word``: what :meth:`remark` was given last.
    """

    has_streams = False
    """Whether ``cuda`` (:class:`trtprobe.cuda.Cuda`) and asynchronous runs on streams are there."""

    def __init__(self) -> None:
        self.plans = Plans()
        self.builder_seconds: Optional[float] = None
        self.reset()

    def warm_up(self) -> None:
        """Do what the first build would do once a process."""

    def begin(self, plans: Plans) -> None:
        """Start a cell: forget the one before."""
        self.plans = plans
        self.reset()

    def trouble(self) -> str:
        """Return the error that the GPU's context reports from now on; nothing where it reports none."""
        return ""

    def reset(self) -> None:
        """Forget what was measured; what the product itself keeps stays."""
        self.facts: Dict[str, Any] = {}
        self.scalars: Dict[str, float] = {}
        self.counts: Dict[str, float] = {}
        self.word = ""

    def build(
        self,
        model: Path,
        precision: str = "tf32",
        level: Optional[int] = None,
        plugins: bool = False,
        keep_fp32: Sequence[str] = (),
        outputs: Sequence[str] = (),
        profile: Optional[Mapping[str, Sequence[Sequence[int]]]] = None,
        quantized: Sequence[str] = (),
    ) -> Engine:
        """Parse an ONNX file and build an engine.

        ``precision`` is one of :data:`PRECISIONS`, ``level`` the builder optimization level (0 to
        5; None leaves the product's default). ``plugins``: the graph has a node that is one of
        NVIDIA's plugins. ``keep_fp32``: operators (such as ``Softmax``) that the FP16 flag must
        leave in float32. ``outputs``: inner tensors that the engine must write too, so that it
        cannot fuse across them. ``profile``: by dynamic input its least, best and largest shape (or
        values, where the input is a shape tensor). ``quantized``: what the graph's QuantizeLinear
        nodes round to, ``int8`` or ``fp8``; a strongly typed network does so anyway.

        Raises ``BuildFailed`` with the product's own messages, ``Unsupported`` where the product has
        no such precision, plugin, constraint or operator.
        """
        ranges = tuple(
            (name, tuple(tuple(int(n) for n in shape) for shape in shapes))
            for name, shapes in sorted((profile or {}).items())
        )
        kept, marked, rounded = tuple(keep_fp32), tuple(outputs), tuple(sorted(quantized))
        return self._build(model, BuildOptions(precision, level, plugins, kept, marked, ranges, rounded))

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        """Build as the product does; see :meth:`build`."""
        raise NotImplementedError

    def measure(self, name: str, value: float) -> None:
        """Put a number of the case's own into the record; limits and figures may name it."""
        self.scalars[name] = float(value)

    def count(self, name: str, number: float) -> None:
        """Add to a finite number that is summed up over a case's processes."""
        if not math.isfinite(number):
            raise ValueError("%s: %r is no count" % (name, number))
        self.counts[name] = self.counts.get(name, 0.0) + float(number)

    def remark(self, word: str) -> None:
        """Put a word of at most 8 letters beside the cell's verdict; "?" where it cannot be seen."""
        if not re.fullmatch(r"[a-z]{1,8}|\?", word):
            raise ValueError("%r is no remark: at most 8 small letters, or ?" % word)
        self.word = word

    def observed(self) -> Dict[str, Any]:
        """Return ``library`` (the version that was loaded) and what else the product tells."""
        raise NotImplementedError


def fit_feed(inputs: Mapping[str, np.ndarray], name: str, wanted: np.dtype) -> np.ndarray:
    """Return an input as a C-contiguous array of the wanted dtype and the same values.

    Integers are cast where each value fits (TensorRT 8 makes INT32 of ONNX's INT64), bool and 0/1 bytes
    either way. ``RunFailed`` where it is not given; ``Unsupported`` where a value does not fit or the
    dtype is float64, which TensorRT does not have; ``ValueError`` where it is another dtype than the graph's.
    """
    if name not in inputs:
        given = ", ".join(sorted(inputs)) or "nothing"
        raise ends.RunFailed("the engine has an input %s, which is not given; given are: %s" % (name, given))
    array = np.asarray(inputs[name], order="C")  # ascontiguousarray makes a scalar [1]
    if array.dtype == wanted:
        return array
    if array.dtype == np.float64 and wanted.kind == "f":
        text = "input %s is float64 and the engine takes %s: TensorRT has no float64; export the model in "
        raise ends.Unsupported((text + "float32 and give its inputs so") % (name, wanted))
    if wanted.kind in "iu" and array.dtype.kind in "iub":
        limits = np.iinfo(wanted)
        for value in (int(array.min()), int(array.max())) if array.size else ():
            if not limits.min <= value <= limits.max:
                text = "input %s holds %d, and the engine takes %s (%d to %d)"
                raise ends.Unsupported(text % (name, value, wanted, limits.min, limits.max))
        return array.astype(wanted, order="C")
    if wanted.kind == "b" and array.dtype.kind in "iu" and not np.any((array != 0) & (array != 1)):
        return array.astype(wanted, order="C")
    raise ValueError("%s: engine wants %s, got %s" % (name, wanted, array.dtype))


def time_runs(run: Callable[[], float], runs: int, seconds: float, least: int = LEAST) -> List[float]:
    """Return what each of at most so many runs took, in milliseconds, as ``run`` tells it."""
    times: List[float] = []
    started = time.perf_counter()
    while len(times) < runs:
        times.append(run())
        spent = time.perf_counter() - started
        if spent > seconds and (len(times) >= least or spent > SLOW_SECONDS):
            break
    return times


def sum_up(times: List[float]) -> Dict[str, Any]:
    """Return the median, the 5% and 95% quantiles (in milliseconds), and how many runs they rest on."""
    low, median, high = (float(value) for value in np.percentile(times, (5, 50, 95)))
    return {"median_ms": median, "low_ms": low, "high_ms": high, "runs": len(times)}
