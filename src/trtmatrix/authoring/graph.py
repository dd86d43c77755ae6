"""A small builder of ONNX graphs that names and orders things as torch's exporter does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Attribute = int | float | str | Sequence[int] | TensorProto
Value = str | Array | list[int]


def element_type(dtype: np.dtype[Any] | type[Any]) -> int:
    """ONNX's number of a NumPy element type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Graph:
    """An ONNX graph in the making; tensors are their names.

    ``graph.MatMul(a, b)`` adds a node: an array or a list of integers among its inputs becomes a Constant
    before it. A node is called "/Mul", "/Mul_1", ... in order of appearance (with a module's scope in front:
    "/proj/MatMul") and its output "/Mul_1_output_0", as torch.onnx.export(dynamo=False) does.
    """

    def __init__(self, inputs: Mapping[str, Array] | None = None) -> None:
        """Start with inputs of the dtypes and shapes that these arrays have."""
        self.scope = ""
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._count: Counter[str] = Counter()
        for name, array in (inputs or {}).items():
            self.input(name, array.dtype, array.shape)

    def __getattr__(self, op: str) -> Callable[..., str]:
        """Return what adds a node of an operator; see :meth:`node`."""
        if not op[0].isupper():
            raise AttributeError(op)
        return partial(self.node, op)

    def at(self, scope: str) -> Graph:
        """The same graph, whose further nodes are named as those of a module at this place."""
        there = copy(self)
        there.scope = scope
        return there

    def input(self, name: str, dtype: np.dtype[Any] | type[Any], shape: tuple[int, ...]) -> str:
        """Declare an input of a static shape."""
        self._inputs.append(helper.make_tensor_value_info(name, element_type(dtype), shape))
        return name

    def initializer(self, name: str, value: Array) -> str:
        """Add a weight."""
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def constant(self, value: Array | list[int] | int) -> str:
        """Add a Constant node; integers become int64, as shapes, axes and indices need."""
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype=np.int64)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def node(self, op: str, *inputs: Value, out: str = "", domain: str = "", **attributes: Attribute) -> str:
        """Add a node with one output, named `out` if given; `domain` is "" for ONNX's own operators."""
        return self.nodes(op, *inputs, out=(out,), domain=domain, **attributes)[0]

    def nodes(
        self, op: str, *inputs: Value, out: tuple[str, ...], domain: str = "", **attributes: Attribute
    ) -> tuple[str, ...]:
        """Add a node with as many outputs as `out` is long; an empty name is filled in."""
        names = [tensor if isinstance(tensor, str) else self.constant(tensor) for tensor in inputs]
        stem = f"{self.scope}/{op}"
        name = f"{stem}_{self._count[stem]}" if self._count[stem] else stem
        self._count[stem] += 1
        outputs = tuple(given or f"{name}_output_{i}" for i, given in enumerate(out))
        node = helper.make_node(op, names, outputs, name=name, domain=domain or None)
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self._nodes.append(node)
        return outputs

    def output(self, name: str, dtype: np.dtype[Any] | type[Any], shape: tuple[int, ...]) -> None:
        """Declare a tensor to be an output."""
        self._outputs.append(helper.make_tensor_value_info(name, element_type(dtype), shape))

    def function(
        self, domain: str, op: str, inputs: list[str], outputs: list[str], opset: int = 17
    ) -> onnx.FunctionProto:
        """The nodes as a local function: the definition of an operator, which a model brings along."""
        imports = [helper.make_opsetid("", opset)]
        return helper.make_function(domain, op, inputs, outputs, self._nodes, imports)

    def model(
        self, opset: int = 17, ir: int = 8, functions: Sequence[onnx.FunctionProto] = ()
    ) -> onnx.ModelProto:
        """The finished model; raises onnx.checker.ValidationError where it is not valid ONNX.

        Domains of operators that are not ONNX's own are imported at version 1, as torch does.
        """
        domains = dict.fromkeys(node.domain for node in self._nodes if node.domain)
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        graph = helper.make_graph(self._nodes, "main_graph", self._inputs, self._outputs, self._initializers)
        model = helper.make_model(
            graph, opset_imports=imports, functions=functions, ir_version=ir, producer_name="trtmatrix"
        )
        onnx.checker.check_model(model, full_check=True)
        return model
