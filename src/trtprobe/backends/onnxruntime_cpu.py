"""ONNX Runtime on the CPU: checks a graph against its reference, graph optimisation off."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import numpy as np

from trtprobe import ends
from trtprobe.backends.base import Backend, Engine


class OnnxRuntimeEngine(Engine):
    """An inference session."""

    def __init__(self, session: Any) -> None:
        """Wrap a session."""
        self.session = session

    def run(self, inputs: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Run the session once on the CPU."""
        names = [output.name for output in self.session.get_outputs()]
        feeds = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        return dict(zip(names, self.session.run(names, feeds)))


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

    def build(self, model: Path, precision: str = "tf32", level: Optional[int] = None) -> Engine:
        """Load the graph as it stands."""
        del precision, level
        options = self.ort.SessionOptions()
        options.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        started = time.perf_counter()
        try:
            session = self.ort.InferenceSession(
                str(model), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ends.BuildFailed(str(error)[:2000]) from error
        self.facts.update(build_seconds=time.perf_counter() - started)
        return OnnxRuntimeEngine(session)

    def observed(self) -> Dict[str, Any]:
        """Return ONNX Runtime's version."""
        return {"library": self.ort.__version__, "bindings": self.ort.__version__}
