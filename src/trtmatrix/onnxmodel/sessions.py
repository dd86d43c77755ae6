"""ONNX Runtime on the host's CPU, for references and noise floors. The one place that imports it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NotComputedError(Exception):
    """ONNX Runtime cannot load or run a graph; the message is its own, in one line."""


def runtime_name() -> str:
    """Return which ONNX Runtime computes here; :class:`NotComputedError` where there is none."""
    return f"ONNX Runtime {_runtime().__version__} on the CPU"


def _runtime() -> Any:  # noqa: ANN401 - it has no types
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise NotComputedError("ONNX Runtime is not installed here: pip install onnxruntime") from error
    return onnxruntime


class Session:
    """A graph as loaded."""

    def __init__(self, model: Path, *, optimised: bool = False, frugal: bool = False) -> None:
        """Load a graph by its path; :class:`NotComputedError` where that fails.

        ``frugal``: memory is given back as soon as it is not needed, which takes longer.
        """
        runtime = _runtime()
        settings = runtime.SessionOptions()
        level = runtime.GraphOptimizationLevel
        settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        settings.log_severity_level = 4
        settings.enable_cpu_mem_arena = settings.enable_mem_pattern = not frugal
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others work too
        try:
            self._session = runtime.InferenceSession(
                str(model), sess_options=settings, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise NotComputedError(_one_line(error)) from error
        self._inputs = [(item.name, _dtype(item.type)) for item in self._session.get_inputs()]
        self._outputs = [item.name for item in self._session.get_outputs()]
        self.integers = [
            item.name for item in self._session.get_outputs() if _dtype(item.type) is None
        ]
        """Outputs that hold no real numbers."""

    def run(self, feeds: Mapping[str, Array], given: str = "") -> dict[str, Array]:
        """Run once; inputs are converted to the graph's types. ``given``: may stand behind inputs' names."""
        fed = {
            name: np.ascontiguousarray(array if dtype is None else array.astype(dtype, copy=False))
            for name, dtype in self._inputs
            for array in [feeds[name.removesuffix(given) if given else name]]
        }
        try:
            found = self._session.run(self._outputs, fed)
        except Exception as error:
            raise NotComputedError(_one_line(error)) from error
        return {name: np.asarray(value) for name, value in zip(self._outputs, found, strict=True)}


def _dtype(kind: str) -> type[Any] | None:
    """Return NumPy's dtype where an input holds real numbers, which may be stored in another precision."""
    return {"tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(float16)": np.float16}.get(kind)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]
