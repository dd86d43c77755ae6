"""Who computes references and noise floors on the host's CPU: ONNX Runtime, or ONNX's own evaluator."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

Array = NDArray[Any]

NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|\S*/onnxruntime_src/\S+ "
)
"""What ONNX Runtime says that tells nobody anything: places in its own source and in our cache."""

REAL: Mapping[int | str, type[Any]] = {
    TensorProto.DOUBLE: np.float64, TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16,
    "tensor(double)": np.float64, "tensor(float)": np.float32, "tensor(float16)": np.float16,
}  # fmt: skip
"""Types of real numbers that may be stored in another precision: ONNX's numbers, ONNX Runtime's words."""


class NotComputedError(Exception):
    """A graph cannot be loaded or run; the message is the runner's own, in one line."""

    @classmethod
    def of(cls, error: Exception) -> NotComputedError:
        """Return what a runner raised without what tells nobody anything."""
        return cls(NOISE.sub("", " ".join(str(error).split()))[:400])


def _runtime() -> Any:  # noqa: ANN401 - it has no types
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
    except ImportError as error:
        raise NotComputedError("ONNX Runtime is not installed here: pip install onnxruntime") from error
    return onnxruntime


class Session:
    """A graph as loaded by ONNX Runtime. ``independent``: it has nothing of ONNX Runtime."""

    independent = False

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
            raise NotComputedError.of(error) from error
        self._inputs = {item.name: REAL.get(item.type) for item in self._session.get_inputs()}
        self._outputs = {item.name: REAL.get(item.type) for item in self._session.get_outputs()}

    @property
    def integers(self) -> list[str]:
        """Outputs that hold no real numbers."""
        return [name for name, real in self._outputs.items() if real is None]

    @staticmethod
    def called() -> str:
        """Return which ONNX Runtime computes here; :class:`NotComputedError` where there is none."""
        return f"ONNX Runtime {_runtime().__version__} on the CPU"

    def run(self, feeds: Mapping[str, Array], given: str = "") -> dict[str, Array]:
        """Run once; inputs are converted to the graph's types. ``given``: may stand behind inputs' names."""
        fed = {
            name: np.asarray(feeds[name.removesuffix(given) if given else name], dtype, order="C")
            for name, dtype in self._inputs.items()
        }
        try:
            found = zip(self._outputs, self._run(fed), strict=True)
            return {name: np.asarray(value) for name, value in found}
        except Exception as error:
            raise NotComputedError.of(error) from error

    def _run(self, feeds: Mapping[str, Array]) -> Sequence[Any]:
        found: Sequence[Any] = self._session.run(list(self._outputs), feeds)
        return found


class Evaluator(Session):
    """A graph as ``onnx.reference`` computes it: by NumPy, as ONNX's specification says, and slowly."""

    independent = True

    def __init__(self, model: Path, *, optimised: bool = False, frugal: bool = False) -> None:
        """Load a graph by its path; :class:`NotComputedError` where that fails, or its weights are large."""
        del optimised
        if frugal:
            raise NotComputedError("its weights are too large for it")
        from onnx.reference import ReferenceEvaluator  # only who needs it waits for it

        try:
            graph = onnx.load(str(model))
            self._session = ReferenceEvaluator(graph)
        except Exception as error:
            raise NotComputedError.of(error) from error
        infos = (*graph.graph.input, *graph.graph.output)
        types = {info.name: info.type.tensor_type.elem_type for info in infos}
        self._inputs = {name: REAL.get(types[name]) for name in self._session.input_names if name in types}
        self._outputs = {name: REAL.get(types[name]) for name in self._session.output_names}

    @staticmethod
    def called() -> str:
        """Return which evaluator computes here."""
        return f"onnx.reference {onnx.__version__}"

    def _run(self, feeds: Mapping[str, Array]) -> Sequence[Any]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return super()._run(feeds)
