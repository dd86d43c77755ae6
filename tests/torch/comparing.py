"""Exports of torch, and all that an ONNX model says, so that two can be compared up to names of tensors."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import torch

Array = NDArray[Any]
REPROS = Path(__file__).parents[2] / "repros"
TOLD = frozenset({"precision", "level", "buffers", "native", "keep_fp32"})
"""What a case tells the builder alone; of its precision the graph has the type."""


def distinct(repro: Any, **most: int) -> dict[str, dict[str, Any]]:
    """Params of the first case of each graph and each reference, its sizes being at most these."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for case in repro.cases():
        params = {**case["params"]}
        params |= {name: min(params[name], size) for name, size in most.items()}
        key = {name: value for name, value in params.items() if name not in TOLD}
        found.setdefault(f"{key} {params['precision'] == 'fp16'}", (case["id"], params))
    return dict(found.values())


def tensors(arrays: dict[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def exported(
    module: torch.nn.Module, inputs: dict[str, torch.Tensor], outputs: list[str], *, fold: bool = True
) -> onnx.ModelProto:
    """What torch.onnx.export writes at opset 17 by its tracing exporter, with static shapes."""
    file = io.BytesIO()
    torch.onnx.export(
        module.eval(), (), file, kwargs=dict(inputs), opset_version=17, dynamo=False,
        input_names=list(inputs), output_names=outputs, do_constant_folding=fold,
    )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def same(mine: onnx.ModelProto, theirs: onnx.ModelProto) -> None:
    assert described(mine) == described(theirs)
    names = [[(node.name, node.domain) for node in model.graph.node] for model in (mine, theirs)]
    assert names[0] == names[1]


def agree(reference: Array, expected: torch.Tensor) -> None:
    assert reference.dtype == np.float64
    right = expected.detach().numpy()
    np.testing.assert_allclose(reference, right, rtol=1e-12, atol=1e-12 * np.abs(right).max())


def described(model: onnx.ModelProto) -> list[Any]:
    """All that the model says, with tensors named by where they come from."""
    names = {w.name: f"w{_array(w)}" for w in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        names |= {name: f"node {index} output {i}" for i, name in enumerate(node.output)}
    ends = [[(v.name, v.type) for v in end] for end in (model.graph.input, model.graph.output)]
    nodes = [
        (
            node.op_type,
            [names.get(name, name) for name in node.input],
            {a.name: _value(a) for a in node.attribute},
        )
        for node in model.graph.node
    ]
    return [model.ir_version, model.opset_import[0].version, _shapes(ends), nodes]


def _shapes(ends: list[Any]) -> list[Any]:
    return [
        (name, kind.tensor_type.elem_type, [d.dim_value for d in kind.tensor_type.shape.dim])
        for end in ends
        for name, kind in end
    ]


def _array(tensor: onnx.TensorProto) -> tuple[str, tuple[int, ...], bytes]:
    array = numpy_helper.to_array(tensor)
    return str(array.dtype), array.shape, array.tobytes()


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return _array(value) if isinstance(value, onnx.TensorProto) else value
