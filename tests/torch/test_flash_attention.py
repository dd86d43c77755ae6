"""Each case of flash-attention is torch's own export, and each reference what torch computes in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from tests.torch.comparing import exported, same, tensors
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtmatrix.authoring import core_attention as core
from trtprobe.cell import load_repro

Array = NDArray[Any]
REPRO = Path(__file__).parents[2] / "repros" / "flash_attention.py"


repro = load_repro(REPRO)
CASES = {case["id"]: case["params"] for case in repro.cases()}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    """The case's row of KINDS, and what it prepares."""
    params = CASES[request.param]
    return repro.KINDS[params["kind"]], repro.prepare(params)


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


def test_graph_equals_torchs_export(case: tuple[Any, dict[str, Any]]) -> None:
    (form, _, _), made = case
    module = Core(form, made["inputs"]["q"].shape[-1] ** -0.5)
    theirs = exported(module, tensors(made["inputs"]), ["y"])
    same(made["model"], theirs)
    softmax = next(n for n in theirs.graph.node if n.op_type == "Softmax")
    assert list(softmax.output) == [core.PROBABILITIES]


def test_reference_is_torchs_in_float64(case: tuple[Any, dict[str, Any]]) -> None:
    (_, meant, _), made = case
    q, k, v = (torch.from_numpy(made["inputs"][n]).double() for n in "qkv")
    causal = meant == "causal"
    mask = None if causal else mask_meant(meant, made["inputs"])
    y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    error = torch.linalg.vector_norm(y - torch.from_numpy(made["reference"]["y"]))
    assert error <= 1e-12 * torch.linalg.vector_norm(y)


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
