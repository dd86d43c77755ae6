"""References and floors as :mod:`.computing` has them, but no reference that nobody can trust.

``onnx.reference`` has faults of its own. Where ONNX Runtime contradicts it about a node, and computes the
same in float64 as in float32, its arithmetic is no explanation: one of the two misreads the standard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto

from trtmatrix.onnxmodel import computing
from trtmatrix.onnxmodel.computing import Computed, Graph, Sample, Way, _are_alike, _to
from trtmatrix.onnxmodel.evaluator import SingleNode
from trtmatrix.onnxmodel.graphs import all_graphs
from trtmatrix.onnxmodel.sessions import NotComputedError, name_runner

RECURRENT = frozenset({"activation_alpha", "activation_beta", "activations", "clip", "input_forget"})
DOUBTED: Mapping[str, frozenset[str]] = {
    "GRU": RECURRENT, "LSTM": RECURRENT, "RNN": RECURRENT, "LpPool": frozenset({"ceil_mode"}),
}  # fmt: skip
"""Operators that onnx.reference 1.23.2 computes wrongly → with which attributes. ONNX Runtime has no float64
kernel for them, so its float32 is enough to doubt them; so it is with lengths of sequences."""

DRAWN = frozenset(
    {
        "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    }
)  # fmt: skip
"""What draws numbers, Dropout in training: no two products draw the same."""


class DisagreementError(Exception):
    """Two references contradict each other; the message says where."""


def compute(model: Path, samples: Sequence[Sample], precision: str, *, independent: bool = False) -> Computed:
    """Compute what :func:`.computing.compute` does; no reference where one of onnx.reference is in doubt.

    Nothing is checked where the float32 of ONNX Runtime is as near to it as that of a right engine.
    """
    computed = computing.compute(model, samples, precision, independent=independent)
    if computed.by != name_runner(independent=True) or _is_confirmed(computed):
        return computed
    graph = _Checked(model, {name: array.shape for name, array in samples[0].items()}, independent=True)
    try:
        for sample in samples:
            graph.run(sample, Way(kind="float64"))
    except DisagreementError as error:
        return Computed(why_not=str(error))
    except NotComputedError as error:
        return replace(computing.compute(model, samples, precision), instead=str(error))
    return computed


def _is_confirmed(computed: Computed) -> bool:
    """Whether ONNX Runtime's own float32 was near enough to every output to be one of the right ways."""
    return all("fp32-runtime" in members for outputs in computed.errors for members in outputs.values())


class _Checked(Graph):
    """A model whose nodes are run by both; :class:`DisagreementError` at the first that is in doubt."""

    def _run_double(self, each: SingleNode, feeds: Mapping[str, Any]) -> dict[str, Any]:
        found = super()._run_double(each, feeds)
        try:
            single = each.by_runtime({name: _to(np.float32, a) for name, a in feeds.items()})
        except NotComputedError:
            return found
        odd = [name for name in single if not _agree(found[name], single[name])]
        if odd and (_is_doubted(each.node) or _is_same_in_double(each, feeds, single)):
            node = each.node
            if np.shape(found[odd[0]]) != np.shape(single[odd[0]]):
                raise NotComputedError(f"of {node.op_type} it gives {odd[0]} another shape than ONNX Runtime")
            raise DisagreementError(
                f"the two references disagree: of {node.op_type} ({odd[0]}), at the same inputs, "
                f"{name_runner(independent=True)} computes other numbers than ONNX Runtime, "
                "and precision is not why; one of them is wrong, and nothing here tells which"
            )
        return found


def _is_same_in_double(each: SingleNode, feeds: Mapping[str, Any], single: Mapping[str, Any]) -> bool:
    """Whether ONNX Runtime computes the same in float64 as in float32."""
    try:
        double = each.by_runtime(feeds)
    except NotComputedError:
        return False
    return all(_agree(double[name], single[name]) for name in single)


def _agree(a: Any, b: Any) -> bool:  # noqa: ANN401 - whatever a node gives
    """Whether two results are alike, small numbers too; of what holds no numbers nothing is said."""
    if not all(isinstance(each, np.ndarray | np.generic) and each.dtype.kind in "fiub" for each in (a, b)):
        return True
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == b.dtype.kind == "f":
        largest = np.max(np.abs(b), where=np.isfinite(b), initial=0)
        if 0 < largest < 1:  # probabilities of a thousand classes are all below what is allowed absolutely
            a, b = a / largest, b / largest
    return _are_alike(a, b)


def _is_doubted(node: NodeProto) -> bool:
    """Whether a node, or one of the graphs inside of it, has an operator that is in doubt."""
    return any(
        each.op_type in DRAWN
        or any(attribute.name in DOUBTED.get(each.op_type, ()) for attribute in each.attribute)
        or (DOUBTED.get(each.op_type) is RECURRENT and len(each.input) > 4 and bool(each.input[4]))
        for graph in all_graphs(GraphProto(node=[node]))
        for each in graph.node
    )
