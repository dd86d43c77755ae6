"""Our graphs are torch's own exports, and our random numbers torch's own draws.

Needs torch 2.13.0 on the CPU; `nox -s torch_tests` makes that environment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.torch.comparing import described, exported

import torch
from torch import nn
from trtmatrix.authoring import attention
from trtmatrix.authoring.attention import Size, Weights
from trtmatrix.authoring.randoms import TorchRandom
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "sdpa_scale.py")
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


def block(size: Size, formulation: str) -> torch.nn.Module:
    """The repro's own module, with weights as torch draws them."""
    return REPRO.in_torch({"formulation": formulation, "heads": size.heads, "head_size": size.head_size})


def theirs(size: Size, formulation: str, dtype: torch.dtype) -> onnx.ModelProto:
    torch.manual_seed(SEED)
    x = torch.rand(size.x)
    return exported(block(size, formulation).to(dtype), {"x": x.to(dtype)}, ["y"])


def ours(size: Size, formulation: str, dtype: type[Any]) -> onnx.ModelProto:
    random = TorchRandom(SEED)
    random.rand(*size.x)
    return BUILD[formulation](size, Weights.draw(random, size.embed).astype(dtype))


@pytest.mark.parametrize("size", SIZES, ids=["head48", "head64"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("formulation", sorted(BUILD))
def test_graph_equals_torchs_export(formulation: str, half: bool, size: Size) -> None:
    dtypes: tuple[torch.dtype, type[Any]] = (torch.float32, np.float32)
    if half:
        dtypes = (torch.float16, np.float16)
    expected = described(theirs(size, formulation, dtypes[0]))
    assert described(ours(size, formulation, dtypes[1])) == expected


@pytest.mark.parametrize("size", SIZES, ids=["head48", "head64"])
def test_nodes_are_named_as_torch_names_them(size: Size) -> None:
    for formulation in BUILD:
        expected = theirs(size, formulation, torch.float32).graph.node
        mine = ours(size, formulation, np.float32).graph.node
        assert [n.name for n in mine] == [n.name for n in expected]
        assert [list(n.output) for n in mine] == [list(n.output) for n in expected]


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
