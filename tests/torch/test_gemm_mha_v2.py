"""Each case of gemm-mha-v2 is torch's own export of its module, and each reference torch's in float64."""

import math
from typing import Any

import pytest
from tests.torch.comparing import REPROS, agree, distinct, exported, same, tensors
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtprobe.cell import load_repro

REPRO = load_repro(REPROS / "gemm_mha_v2.py")
CASES = distinct(REPRO, length=24)  # lengths are cut; heads, formulations, masks and types are the cases' own


class Block(nn.Module):  # type: ignore[misc]  # no torch where the types are checked
    """One attention block, in the formulation and with the mask that it is told."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.formulation = params["mask"], params["formulation"]
        self.heads, self.head_size, length = params["heads"], params["head_size"], params["length"]
        self.scale = self.head_size ** (-0.25 if params["lost"] == "scale" else -0.5)
        embed = self.heads * self.head_size
        self.qkv = nn.Linear(embed, 3 * embed, bias=False)
        self.proj = nn.Linear(embed, embed)
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, _ = x.shape
        qkv = functional.linear(x, self.qkv.weight).reshape(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.formulation == "sdpa":
            keep = ~mask[:, None, None, :] if mask is not None and mask.dtype == torch.bool else mask
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        elif self.formulation == "wide":
            y = self.attend(q.float(), k.float(), v.float(), mask).to(x.dtype)
        else:
            y = self.attend(q, k, v, mask)
        return self.proj(y.transpose(1, 2).reshape(batch, length, -1))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.formulation == "bert":
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_size)
        else:
            scores = (q * self.scale) @ k.transpose(-2, -1)
        if self.kind == "causal":
            scores = torch.where(self.causal, scores, torch.finfo(scores.dtype).min)
        elif mask is not None and self.kind == "padding":
            scores = scores.masked_fill(mask[:, None, None, :], float("-inf"))
        elif mask is not None:
            scores = scores + (mask.float() if self.formulation == "wide" else mask)
        return scores.softmax(dim=-1) @ v


def seeded(params: dict[str, Any]) -> Block:
    """The block with the weights that torch draws: seed 0, the input first."""
    torch.manual_seed(0)
    torch.rand(params["batch"], params["length"], params["heads"] * params["head_size"])
    block = Block(params)
    if params["precision"] == "fp16":
        block.half()
    block.eval()
    return block


@pytest.mark.parametrize("name", CASES)
def test_graph_is_torchs_export_and_reference_torchs_in_float64(name: str) -> None:
    params = CASES[name]
    made = REPRO.prepare(params)
    module = seeded({**params, "mask": "none"} if params["lost"] == "mask" else params)
    same(made["model"], exported(module, tensors(made["inputs"]), ["y"]))
    right = {**params, "lost": "", "formulation": "explicit"}
    inputs = (REPRO.prepare(right) if params["lost"] else made)["inputs"]
    x, *mask = (torch.from_numpy(array) for array in inputs.values())
    masks = [m if m.dtype == torch.bool else m.double() for m in mask]
    agree(made["reference"]["y"], seeded(right).double()(x.double(), *masks))
