"""Each case of gemm-mha-v2 is torch's own export of its module, and each reference torch's in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.torch.comparing import exported, same, tensors
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "gemm_mha_v2.py")
CASES = {case["id"]: case["params"] for case in REPRO.cases()}


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


Case = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """A case's params, and what it prepares."""
    params = CASES[request.param]
    return params, REPRO.prepare(params)


def test_graph_equals_torchs_export(case: Case) -> None:
    params, made = case
    if params["lost"] == "mask":
        params = {**params, "mask": "none"}
    same(made["model"], exported(seeded(params), tensors(made["inputs"]), ["y"]))


def test_reference_is_torchs_in_float64(case: Case) -> None:
    params, made = case
    right = {**params, "lost": "", "formulation": "explicit"}
    inputs = (REPRO.prepare(right) if params["lost"] else made)["inputs"]
    x, *mask = (torch.from_numpy(array) for array in inputs.values())
    masks = [m if m.dtype == torch.bool else m.double() for m in mask]
    with torch.no_grad():
        expected = seeded(right).double()(x.double(), *masks).numpy()
    reference = made["reference"]["y"]
    assert reference.dtype == np.float64
    np.testing.assert_allclose(reference, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
