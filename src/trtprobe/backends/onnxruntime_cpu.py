"""ONNX Runtime on the CPU: checks a graph against its reference, graph optimisation off."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Dict, Mapping

import numpy as np

from trtprobe import ends
from trtprobe.backends.base import Backend, BuildOptions, Engine


class OnnxRuntimeEngine(Engine):
    """An inference session.

    Cases that differ only in what ONNX Runtime ignores (precision, level) have the same graph and
    inputs byte for byte: within a job their output is computed once, and the record says so.
    """

    def __init__(self, backend: OnnxRuntimeBackend, session: Any, model: bytes) -> None:
        """Wrap a session."""
        self.backend, self.session, self.model = backend, session, model

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run the session once on the CPU, or return what the same bytes gave before."""
        feeds = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        memo = self.backend.memo
        kept = memo / _digest(self.model, feeds) if memo is not None else None
        if kept is not None and kept.is_dir():
            self.backend.facts["same_bytes_as_an_earlier_cell"] = True
            return {path.stem: np.load(str(path)) for path in sorted(kept.glob("*.npy"))}
        names = [output.name for output in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, feeds)))
        if kept is not None:
            _keep(kept, outputs)
        return outputs

    def fusion(self, inputs: Mapping[str, np.ndarray]) -> str:
        """Return "plain": graph optimisation is off."""
        del inputs
        return "plain"


def _digest(model: bytes, feeds: Mapping[str, np.ndarray]) -> str:
    total = hashlib.sha256(model)
    for name in sorted(feeds):
        array = feeds[name]
        total.update(("%s %s %s" % (name, array.dtype.str, array.shape)).encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _keep(folder: Path, outputs: Mapping[str, np.ndarray]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    for name, array in outputs.items():
        np.save(str(partial / (name + ".npy")), array)
    partial.rename(folder)


class OnnxRuntimeBackend(Backend):
    """A check of the graph: precision and level do not apply and are ignored."""

    def __init__(self) -> None:
        """Import ONNX Runtime."""
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise ends.ComponentMissing("onnxruntime cannot be imported: %s" % error) from error
        self.ort = onnxruntime

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
        started, content = time.perf_counter(), model.read_bytes()
        try:
            session = self.ort.InferenceSession(
                content, sess_options=settings, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ends.BuildFailed(str(error)[:2000]) from error
        self.facts.update(build_seconds=time.perf_counter() - started)
        return OnnxRuntimeEngine(self, session, content)

    def observed(self) -> Dict[str, Any]:
        """Return ONNX Runtime's version."""
        return {"library": self.ort.__version__, "bindings": self.ort.__version__}
