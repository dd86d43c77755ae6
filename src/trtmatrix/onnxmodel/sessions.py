"""Runs graphs and single nodes on the host's CPU: by ONNX Runtime, or by ONNX's own evaluator."""

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
from onnx import NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, helper

from trtmatrix.onnxmodel.graphs import inputs_of

Array = NDArray[Any]

NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|\S*/onnxruntime_src/\S+ "
)
"""What ONNX Runtime says that tells nobody anything: places in its own source and in our cache."""


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


def name_runner(*, independent: bool) -> str:
    """Return what computes here, ``independent`` of ONNX Runtime or not; :class:`NotComputedError`."""
    return (
        f"onnx.reference {onnx.__version__}"
        if independent
        else f"ONNX Runtime {_runtime().__version__} on the CPU"
    )


class Session:
    """A graph as loaded by ONNX Runtime."""

    def __init__(self, model: Path | bytes, *, optimised: bool = False, threads: int = 0) -> None:
        """Load a graph by its path or bytes; :class:`NotComputedError` where that fails."""
        runtime = _runtime()
        settings = runtime.SessionOptions()
        level = runtime.GraphOptimizationLevel
        settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        settings.log_severity_level, settings.intra_op_num_threads = 4, threads
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others work too
        try:
            self._session = runtime.InferenceSession(
                model if isinstance(model, bytes) else str(model), sess_options=settings,
                providers=["CPUExecutionProvider"],
            )  # fmt: skip
        except Exception as error:
            raise NotComputedError.of(error) from error

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run once; returns the outputs by name."""
        fed = {each.name: feeds[each.name] for each in self._session.get_inputs()}
        names = [each.name for each in self._session.get_outputs()]
        try:
            return dict(zip(names, self._session.run(names, fed), strict=True))
        except Exception as error:
            raise NotComputedError.of(error) from error


class SingleNode:
    """A node that is run by itself; ``inputs``: all that it takes, its inner graphs too.

    ``built_in``: constants of types that cannot be fed. ``is_heavy``: several threads are worth it.
    """

    def __init__(
        self, node: NodeProto, opsets: Sequence[OperatorSetIdProto], built_in: Sequence[TensorProto] = (),
        *, is_heavy: bool = False,
    ) -> None:  # fmt: skip
        self.node, self.opsets, self.built_in, self.is_heavy = node, opsets, built_in, is_heavy
        own = {tensor.name for tensor in built_in}
        self.inputs = tuple(dict.fromkeys(name for name in inputs_of(node) if name not in own))
        self._sessions: dict[tuple[str, ...], Session | NotComputedError] = {}
        self._evaluator: Any = None

    def by_runtime(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return its outputs; :class:`NotComputedError` where ONNX Runtime has no kernel for these types."""
        arrays = {name: np.asarray(feeds[name], order="C") for name in self.inputs}
        types = tuple(str(array.dtype) for array in arrays.values())
        session = self._sessions.get(types)
        if session is None:
            try:
                session = Session(self._model(arrays), threads=0 if self.is_heavy else 1)
            except NotComputedError as error:
                session = error
            if not self.is_heavy or isinstance(session, NotComputedError):  # it would keep its threads
                self._sessions[types] = session
        if isinstance(session, NotComputedError):
            raise session
        return session.run(arrays)

    def by_evaluator(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return its outputs as ONNX's specification says, by NumPy; :class:`NotComputedError`."""
        from onnx.reference import ReferenceEvaluator  # only who needs it waits for it

        names = [name for name in self.node.output if name]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if self._evaluator is None:
                    self._evaluator = ReferenceEvaluator(onnx.load_from_string(self._model(feeds)))
                return dict(zip(names, self._evaluator.run(names, dict(feeds)), strict=True))
            except Exception as error:
                raise NotComputedError.of(error) from error

    def _model(self, feeds: Mapping[str, Any]) -> bytes:
        """Return a model of the node alone; sequences are inputs without a type, which only NumPy takes."""
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), None)
            if isinstance(feeds[name], np.ndarray) else ValueInfoProto(name=name)
            for name in self.inputs
        ]  # fmt: skip
        outputs = [ValueInfoProto(name=name) for name in self.node.output if name]
        graph = helper.make_graph([self.node], "node", infos, outputs, list(self.built_in))
        try:
            model = helper.make_model(graph, opset_imports=self.opsets, ir_version=10)
            return bytes(model.SerializeToString())
        except Exception as error:
            raise NotComputedError.of(error) from error
