"""ONNX Runtime on the CPU: checks a graph against its reference, graph optimisation off."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Dict, Mapping

import numpy as np

from trtprobe import ends
from trtprobe.backends.base import Backend, BuildOptions, Engine, sum_up, time_runs
from trtprobe.backends.refusals import onnxruntime_end
from trtprobe.onnxfile import Model
from trtprobe.plans import Plans

RUNS, SECONDS = 20, 0.05
"""At most so many runs, or about so long, are timed; a single one where it takes longer than that."""

REMEMBERED = 256 << 20
"""Bytes of outputs that are remembered."""


class OnnxRuntimeEngine(Engine):
    """An inference session.

    Cases that differ only in what ONNX Runtime ignores (precision, level) have the same graph and
    inputs byte for byte: a process computes their output once, and the record says so. Builds of one cell
    are each run.
    """

    def __init__(self, backend: OnnxRuntimeBackend, session: Any, model: str) -> None:
        """Wrap a session; ``model`` stands for the graph's content."""
        self.backend, self.session, self.model = backend, session, model
        self.names = [output.name for output in session.get_outputs()]
        self._timed = False

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run the session once, or return what the same bytes gave before; that has no latency."""
        feeds = {name: np.asarray(array, order="C") for name, array in inputs.items()}
        digest, known, fresh = _digest(self.model, feeds), self.backend.known, self.backend.fresh
        if digest in known:
            self.backend.facts["same_bytes_as_an_earlier_cell"] = True
            return {name: array.copy() for name, array in known[digest].items()}
        started = time.perf_counter()
        try:
            outputs: Dict[str, np.ndarray] = dict(zip(self.names, self.session.run(self.names, feeds)))
        except Exception as error:
            given = ", ".join("%s %s %s" % (n, a.dtype, list(a.shape)) for n, a in feeds.items())
            raise ends.RunFailed("%s (given: %s)" % (str(error)[:1500], given[:400])) from error
        if not self._timed:
            self._timed = True
            self._note_latency(feeds, 1e3 * (time.perf_counter() - started))
        size = sum(array.nbytes for array in outputs.values())
        kept = sum(array.nbytes for held in (known, fresh) for one in held.values() for array in one.values())
        if kept + size < REMEMBERED:
            fresh[digest] = {name: array.copy() for name, array in outputs.items()}
        return outputs

    def _note_latency(self, feeds: Mapping[str, np.ndarray], first: float) -> None:
        """Time some more runs where the first, which took ``first`` milliseconds, was quick."""

        def run() -> float:
            started = time.perf_counter()
            self.session.run(self.names, feeds)
            return 1e3 * (time.perf_counter() - started)

        quick = first < 1e3 * SECONDS
        self.backend.facts["latency"] = sum_up(time_runs(run, RUNS, SECONDS, least=1) if quick else [first])

    def fusion(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Return "plain": graph optimisation is off."""
        del inputs
        return "plain"


def _digest(model: str, feeds: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256(model.encode())
    for name, array in sorted(feeds.items()):
        total.update(("%s %s %s" % (name, array.dtype.str, array.shape)).encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


class OnnxRuntimeBackend(Backend):
    """A check of the graph: precision, level, profile and the like do not apply and are ignored."""

    def __init__(self) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise ends.ComponentMissing("onnxruntime cannot be imported: %s" % error) from error
        self.ort = onnxruntime
        self.known: Dict[str, Dict[str, np.ndarray]] = {}  # by earlier cells
        self.fresh: Dict[str, Dict[str, np.ndarray]] = {}  # by this one

    def begin(self, plans: Plans) -> None:
        """Start a cell: what those before computed may serve this one, unless it shares no plans either."""
        super().begin(plans)
        self.known = {**self.known, **self.fresh} if plans.folder is not None else {}
        self.fresh = {}

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        """Load the graph as it stands, or ``check.onnx`` beside it where there is one."""
        del options
        check = model.with_name("check.onnx")
        if check.is_file():
            model = check
            self.facts["checked"] = "the graph with its plugin written out in ONNX operators"
        settings = self.ort.SessionOptions()
        settings.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.log_severity_level = 3
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others work too
        started, given = time.perf_counter(), Model(model)
        providers = ["CPUExecutionProvider"]
        try:
            session = self.ort.InferenceSession(str(model), sess_options=settings, providers=providers)
        except Exception as error:
            raise onnxruntime_end(self.ort.__version__, given.onnx, str(error)) from error
        self.facts.update(build_seconds=time.perf_counter() - started)
        return OnnxRuntimeEngine(self, session, given.key())

    def observed(self) -> Dict[str, Any]:
        """Return ONNX Runtime's version."""
        return {"library": self.ort.__version__, "bindings": self.ort.__version__}
