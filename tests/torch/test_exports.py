"""Our graphs are torch's own exports, and our random numbers torch's own draws.

Needs torch 2.13.0 on the CPU; `nox -s tests_torch` makes that environment.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtmatrix.authoring import attention
from trtmatrix.authoring.attention import Size, Weights
from trtmatrix.authoring.randoms import TorchRandom

BUILD: dict[str, Callable[[Size, Weights], onnx.ModelProto]] = {
    "explicit": attention.explicit,
    "sdpa": attention.sdpa,
    "sdpa-default": attention.sdpa_default,
    "mha": attention.mha,
}
SIZES = [
    Size(batch=2, length=24, heads=8, head_size=48),
    Size(batch=1, length=16, heads=4, head_size=64),
]
SEED = 0


class Block(nn.Module):  # type: ignore[misc]  # no torch where the types are checked
    """One attention block, in the formulation that it is told."""

    def __init__(self, size: Size, formulation: str) -> None:
        super().__init__()
        self.size = size
        self.formulation = formulation
        self.qkv = nn.Linear(size.embed, 3 * size.embed, bias=False)
        self.proj = nn.Linear(size.embed, size.embed)

    def forward(self, x: Tensor) -> Tensor:
        if self.formulation == "mha":
            return self._packed(x.transpose(0, 1)).transpose(0, 1)
        batch, length, _ = x.shape
        qkv = functional.linear(x, self.qkv.weight).reshape(batch, length, 3, self.size.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(self._attend(q, k, v).transpose(1, 2).reshape(batch, length, -1))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.formulation == "explicit":
            return ((q * self.size.scale) @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        if self.formulation == "sdpa":
            return functional.scaled_dot_product_attention(q, k, v, scale=self.size.scale)
        return functional.scaled_dot_product_attention(q, k, v)

    def _packed(self, x: Tensor) -> Tensor:
        y, _ = functional.multi_head_attention_forward(
            x,
            x,
            x,
            embed_dim_to_check=self.size.embed,
            num_heads=self.size.heads,
            in_proj_weight=self.qkv.weight,
            in_proj_bias=None,
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.proj.weight,
            out_proj_bias=self.proj.bias,
            training=self.training,
            need_weights=False,
        )
        return y


def exported(size: Size, formulation: str, dtype: torch.dtype) -> onnx.ModelProto:
    torch.manual_seed(SEED)
    x = torch.rand(size.x)
    block = Block(size, formulation).eval()
    file = io.BytesIO()
    torch.onnx.export(
        block.to(dtype),
        (x.to(dtype),),
        file,
        opset_version=17,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
    )
    return onnx.load_from_string(file.getvalue())


def ours(size: Size, formulation: str, dtype: type[Any]) -> onnx.ModelProto:
    random = TorchRandom(SEED)
    random.rand(*size.x)
    return BUILD[formulation](size, Weights.draw(random, size.embed).astype(dtype))


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


@pytest.mark.parametrize("size", SIZES, ids=["head48", "head64"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("formulation", sorted(BUILD))
def test_graph_equals_torchs_export(formulation: str, half: bool, size: Size) -> None:
    dtypes: tuple[torch.dtype, type[Any]] = (torch.float32, np.float32)
    if half:
        dtypes = (torch.float16, np.float16)
    expected = described(exported(size, formulation, dtypes[0]))
    assert described(ours(size, formulation, dtypes[1])) == expected


@pytest.mark.parametrize("size", SIZES, ids=["head48", "head64"])
def test_nodes_are_named_as_torch_names_them(size: Size) -> None:
    for formulation in BUILD:
        theirs = exported(size, formulation, torch.float32).graph.node
        mine = ours(size, formulation, np.float32).graph.node
        assert [n.name for n in mine] == [n.name for n in theirs]
        assert [list(n.output) for n in mine] == [list(n.output) for n in theirs]


@pytest.mark.parametrize("embed", [384, 512, 100])
@pytest.mark.parametrize("seed", [0, 7])
def test_draws_equal_torchs_bit_for_bit(seed: int, embed: int) -> None:
    torch.manual_seed(seed)
    random = TorchRandom(seed)
    assert random.rand(3, 50, embed).tobytes() == torch.rand(3, 50, embed).numpy().tobytes()
    qkv, proj = nn.Linear(embed, 3 * embed, bias=False), nn.Linear(embed, embed)
    drawn = Weights.draw(random, embed)
    for mine, theirs in zip(
        (drawn.qkv, drawn.proj, drawn.bias), (qkv.weight, proj.weight, proj.bias), strict=True
    ):
        assert mine.tobytes() == theirs.detach().numpy().tobytes()
