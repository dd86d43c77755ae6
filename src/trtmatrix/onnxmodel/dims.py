"""What each operator says of the dimensions of its tensors: which are the same, which keep their size.

Operators: https://onnx.ai/onnx/operators/. What is not known of an operator keeps all sizes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto, TensorProto, numpy_helper

from trtmatrix.onnxmodel.atoms import Atoms, Dims
from trtmatrix.onnxmodel.marking import inputs_of
from trtmatrix.onnxmodel.subject import Array, Subject
from trtmatrix.onnxmodel.walk import OWN, attribute_of

BROADCAST = frozenset(
    {
        "Abs", "Acos", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "Cast", "Ceil", "Clip", "Cos",
        "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual",
        "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LayerNormalization", "LeakyRelu", "Less",
        "LessOrEqual", "Log", "LogSoftmax", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or",
        "PRelu", "Pow", "RMSNormalization", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin",
        "Softmax", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where",
        "Xor",
    }
)  # fmt: skip
"""Element by element, inputs aligned at their last dimension; or along a last dimension that stays whole."""

REARRANGING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
POOLING = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Resize", "Upsample"})
BY_CHANNEL = frozenset({"BatchNormalization", "InstanceNormalization"})
ROUNDING = frozenset({"QuantizeLinear", "DequantizeLinear"})
NO_BOUND = frozenset({"Shape", "Size"})
REDUCING = "Reduce"
TOLD = frozenset({"Expand", "Slice", "Split"})
"""Their further inputs, as of what rearranges and reduces, list sizes or axes: they keep their length."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The dimensions of a subject's tensors. ``constants``: what its small weights hold."""

    atoms: Atoms
    dims: Mapping[str, tuple[Dims, ...]]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def freeze(self, name: str) -> None:
        """Keep all sizes of a tensor."""
        for dim in self.dims.get(name, ()):
            self.atoms.freeze(dim)


def trace(subject: Subject) -> Traced:
    """Return the dimensions of a subject's tensors after all of its nodes have been asked."""
    atoms = Atoms()
    shapes = {name: shape for name, shape in subject.known.shapes.items() if None not in shape}
    dims = {name: tuple(atoms.new(size or 0) for size in shape) for name, shape in shapes.items()}
    constants = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in subject.model.graph.initializer
        if tensor.data_location != TensorProto.EXTERNAL and len(tensor.dims) <= 1
        and tensor.data_type in {TensorProto.INT64, TensorProto.INT32}
    }  # fmt: skip
    traced = Traced(atoms=atoms, dims=dims, constants=constants)
    for node in subject.model.graph.node:
        _ask(node, traced)
    return traced


def _ask(node: NodeProto, traced: Traced) -> None:
    """Note what one node says of the dimensions around it."""
    if node.op_type in NO_BOUND:
        return
    names = [*node.input, *node.output]
    rule = RULES.get(node.op_type) if node.domain in OWN else None
    if node.domain in OWN and rule is None:
        rule = _reduce if node.op_type.startswith(REDUCING) else None
        rule = _broadcast if node.op_type in BROADCAST else rule
        rule = _rearrange if node.op_type in REARRANGING else rule
        rule = _channels if node.op_type in POOLING | BY_CHANNEL else rule
    if node.op_type in TOLD | REARRANGING or node.op_type.startswith(REDUCING):
        for name in node.input[1:]:
            traced.freeze(name)
    is_known = all(name in traced.dims for name in names if name)
    if rule is None or not is_known or not _holds(rule, node, traced):
        for name in {*inputs_of(node), *node.output}:
            traced.freeze(name)


Rule = Callable[[NodeProto, Traced], bool]
"""Notes what a node says; whether it could."""


def _holds(rule: Rule, node: NodeProto, traced: Traced) -> bool:
    """Whether a rule holds of a node: not of one that is not what its operator says."""
    try:
        return rule(node, traced)
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError):
        return False


def _join(traced: Traced, one: Sequence[Dims], other: Sequence[Dims]) -> bool:
    """Join dimensions one by one."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        traced.atoms.join(a, b)
    return True


def _aligned(traced: Traced, small: Sequence[Dims], large: Sequence[Dims]) -> bool:
    """Join a tensor with one that it is broadcast to; a dimension of size 1 is joined with none."""
    if len(small) > len(large):
        return False
    for a, b in zip(reversed(small), reversed(large), strict=False):
        if a:
            traced.atoms.join(a, b)
    return True


def _all_aligned(names: Sequence[str], large: str, traced: Traced) -> bool:
    """Join all that there are of some tensors with one that they are broadcast to."""
    fit = True
    for name in filter(None, names):
        fit &= _aligned(traced, traced.dims[name], traced.dims[large])
    return fit


def _broadcast(node: NodeProto, traced: Traced) -> bool:
    return _all_aligned((*node.input, *node.output[1:]), node.output[0], traced)


def _flat(dims: Sequence[Dims]) -> list[int]:
    return [atom for dim in dims for atom in dim]


def _rearrange(node: NodeProto, traced: Traced) -> bool:
    """Same elements in the same order; the sizes of Reshape must be a constant, which is rewritten."""
    if node.op_type == "Reshape" and node.input[1] not in traced.constants:
        return False
    traced.atoms.join(_flat(traced.dims[node.input[0]]), _flat(traced.dims[node.output[0]]))
    return True


def _expand(node: NodeProto, traced: Traced) -> bool:
    return node.input[1] in traced.constants and _aligned(
        traced, traced.dims[node.input[0]], traced.dims[node.output[0]]
    )


def _transpose(node: NodeProto, traced: Traced) -> bool:
    dims = traced.dims[node.input[0]]
    order = attribute_of(node, "perm", list(range(len(dims)))[::-1])
    return isinstance(order, list) and _join(
        traced, [dims[place] for place in order], traced.dims[node.output[0]]
    )


def _matmul(node: NodeProto, traced: Traced) -> bool:
    a, b, out = (traced.dims[name] for name in (node.input[0], node.input[1], node.output[0]))
    if len(a) < 2 or len(b) < 2:
        return False
    traced.atoms.join(a[-1], b[-2])
    batches = _aligned(traced, a[:-2], out[:-2]) and _aligned(traced, b[:-2], out[:-2])
    return batches and _join(traced, [a[-2], b[-1]], out[-2:])


def _gemm(node: NodeProto, traced: Traced) -> bool:
    a, b = (list(traced.dims[name]) for name in node.input[:2])
    a = a[::-1] if attribute_of(node, "transA", 0) else a
    b = b[::-1] if attribute_of(node, "transB", 0) else b
    out = traced.dims[node.output[0]]
    traced.atoms.join(a[1], b[0])
    return _join(traced, [a[0], b[1]], out) and _all_aligned(node.input[2:], node.output[0], traced)


def _conv(node: NodeProto, traced: Traced) -> bool:
    x, weight, out = (traced.dims[name] for name in (node.input[0], node.input[1], node.output[0]))
    if attribute_of(node, "group", 1) != 1:
        return False
    for dim in (*x[2:], *weight[2:], *out[2:]):
        traced.atoms.freeze(dim)
    bias = [traced.dims[name][0] for name in node.input[2:] if name]
    firsts, seconds = [x[0], weight[0], weight[1], *bias], [out[0], out[1], x[1], *[out[1]] * len(bias)]
    return _join(traced, firsts, seconds)


def _channels(node: NodeProto, traced: Traced) -> bool:
    """Batch and channels stay what they are; what else there is keeps its size."""
    x, out = traced.dims[node.input[0]], traced.dims[node.output[0]]
    if len(x) < 2 or len(node.output) > 1:
        return False
    for dim in (*x[2:], *out[2:]):
        traced.atoms.freeze(dim)
    if node.op_type in BY_CHANNEL:
        for name in node.input[1:]:
            traced.atoms.join(traced.dims[name][0], x[1])
    else:
        for name in filter(None, node.input[1:]):
            traced.freeze(name)
    return _join(traced, x[:2], out[:2])


def _axis(node: NodeProto, rank: int, default: int) -> int:
    axis = attribute_of(node, "axis", default)
    return int(str(axis)) % rank if rank else 0


def _rounding(node: NodeProto, traced: Traced) -> bool:
    x = traced.dims[node.input[0]]
    along = [x[_axis(node, len(x), 1)]] if x else []
    for name in filter(None, node.input[1:]):
        dims = traced.dims[name]
        if len(dims) > 1 or not _aligned(traced, dims, along):
            return False
    return _join(traced, x, traced.dims[node.output[0]])


def _reduce(node: NodeProto, traced: Traced) -> bool:
    x, out = traced.dims[node.input[0]], traced.dims[node.output[0]]
    axes = attribute_of(node, "axes", None)
    if len(node.input) > 1 and node.input[1]:
        given = traced.constants.get(node.input[1])
        if given is None:
            return False
        axes = [int(axis) for axis in given]
    if not isinstance(axes, list) or not axes:
        return not _flat(out)  # all of them
    gone = {axis % len(x) for axis in axes}
    kept = bool(attribute_of(node, "keepdims", 1))
    left = [() if place in gone else dim for place, dim in enumerate(x) if kept or place not in gone]
    return _join(traced, left, out)


def _concat(node: NodeProto, traced: Traced) -> bool:
    out = traced.dims[node.output[0]]
    axis = _axis(node, len(out), 0)
    for name in (*node.input, *node.output):
        dims = traced.dims[name]
        traced.atoms.freeze(dims[axis])
        _join(traced, [*dims[:axis], *dims[axis + 1 :]], [*out[:axis], *out[axis + 1 :]])
    return True


def _split(node: NodeProto, traced: Traced) -> bool:
    """Equal parts stay equal parts; others keep their sizes."""
    x, parts = traced.dims[node.input[0]], [traced.dims[name] for name in node.output]
    axis = _axis(node, len(x), 0)
    sizes = {tuple(traced.atoms.size(atom) for atom in traced.atoms.expand(part[axis])) for part in parts}
    sized = len(node.input) < 2 or not node.input[1] or node.input[1] in traced.constants
    number = traced.atoms.new(len(parts))
    traced.atoms.freeze(number)
    for part in parts:
        _join(traced, [*part[:axis], *part[axis + 1 :]], [*x[:axis], *x[axis + 1 :]])
        traced.atoms.join(part[axis], parts[0][axis])
        if len(sizes) > 1 or not sized or attribute_of(node, "split") is not None:
            traced.atoms.freeze([*part[axis], *x[axis]])
    if len(sizes) == 1 and sized:
        traced.atoms.join([*number, *parts[0][axis]], x[axis])
    return True


def _slice(node: NodeProto, traced: Traced) -> bool:
    """What is not sliced may be smaller; the other dimensions keep their sizes."""
    x, out = traced.dims[node.input[0]], traced.dims[node.output[0]]
    if len(x) != len(out):
        return False
    axes = traced.constants.get(node.input[3]) if len(node.input) > 3 else None
    sliced = {int(axis) % len(x) for axis in axes} if axes is not None else set(range(len(x)))
    for place, (a, b) in enumerate(zip(x, out, strict=True)):
        if place in sliced:
            traced.atoms.freeze([*a, *b])
        else:
            traced.atoms.join(a, b)
    return True


def _gather(node: NodeProto, traced: Traced) -> bool:
    x, places, out = (traced.dims[name] for name in (*node.input[:2], node.output[0]))
    axis = _axis(node, len(x), 0)
    traced.atoms.freeze(x[axis])
    return _join(traced, [*x[:axis], *places, *x[axis + 1 :]], out)


def _einsum(node: NodeProto, traced: Traced) -> bool:
    equation = attribute_of(node, "equation", b"")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    inputs, arrow, output = text.partition("->")
    if "." in text or not arrow:
        return False
    by_letter: dict[str, Dims] = {}
    for term, name in zip([*inputs.split(","), output], [*node.input, node.output[0]], strict=True):
        for letter, dim in zip(term, traced.dims[name], strict=True):
            traced.atoms.join(by_letter.setdefault(letter, dim), dim)
    return True


RULES: Mapping[str, Rule] = {
    "Transpose": _transpose, "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "Expand": _expand,
    "Concat": _concat, "Split": _split, "Slice": _slice, "Gather": _gather, "Einsum": _einsum,
    **dict.fromkeys(ROUNDING, _rounding),
}  # fmt: skip
