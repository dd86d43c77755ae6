"""Each case of flash-attention is torch's own export, and each reference what torch computes in float64."""

import pytest
from tests.torch.comparing import REPROS, Array, agree, distinct, exported, same, tensors
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtmatrix.authoring import core_attention as core
from trtprobe.cell import load_repro

REPRO = load_repro(REPROS / "flash_attention.py")
CASES = distinct(REPRO, batch=2, heads=2, queries=96, keys=96)
"""Sizes are cut; heads, kinds of masks and types are the cases' own."""


class Core(nn.Module):  # type: ignore[misc]  # no torch where the types are checked
    """Attention of given q, k and v, in the form that it is told."""

    def __init__(self, form: core.Form, scale: float) -> None:
        super().__init__()
        self.form, self.scale = form, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.form == "explicit":
            return ((q * self.scale) @ k.transpose(-2, -1)).softmax(-1) @ v
        causal = self.form == "causal"
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def mask_meant(name: str, inputs: dict[str, Array]) -> Tensor | None:
    """The mask written with other words than the repro's."""
    batch, keys = inputs["k"].shape[0], inputs["k"].shape[2]
    if name == "none":
        return None
    if name == "padding":
        rows = [[key < keys - keys * row // (2 * batch) for key in range(keys)] for row in range(batch)]
        return torch.tensor(rows)[:, None, None]
    width = keys // 4
    steps = torch.cat([torch.arange(keys - 1, 0, -1), torch.arange(keys)])
    falling = (steps * (-4.0 / width)).to(torch.from_numpy(inputs["q"]).dtype).double()
    falling[steps >= width] = -torch.inf
    return torch.stack([falling[keys - 1 - row : 2 * keys - 1 - row] for row in range(keys)])


@pytest.mark.parametrize("name", CASES)
def test_graph_is_torchs_export_and_reference_torchs_in_float64(name: str) -> None:
    params = CASES[name]
    (form, meant, _), made = REPRO.KINDS[params["kind"]], REPRO.prepare(params)
    theirs = exported(Core(form, made["inputs"]["q"].shape[-1] ** -0.5), tensors(made["inputs"]), ["y"])
    same(made["model"], theirs)
    softmax = next(n for n in theirs.graph.node if n.op_type == "Softmax")
    assert list(softmax.output) == [core.PROBABILITIES]
    q, k, v = (torch.from_numpy(made["inputs"][n]).double() for n in "qkv")
    causal = meant == "causal"
    mask = None if causal else mask_meant(meant, made["inputs"])
    agree(
        made["reference"]["y"],
        functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal),
    )
