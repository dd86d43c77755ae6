"""Every case of sdpa-scale and of streams: its graph is torch's export, its reference torch's in float64.

Lengths are cut, but for the reported case; heads, types and constants are the cases' own.
"""

from typing import Any

import numpy as np
import pytest
from tests.torch.comparing import REPROS, agree, described, distinct, exported, tensors

import torch
from trtmatrix.authoring.attention import Weights
from trtmatrix.authoring.randoms import TorchRandom
from trtprobe.cell import load_repro

REPRO, STREAMS = load_repro(REPROS / "sdpa_scale.py"), load_repro(REPROS / "streams.py")
STREAMS_TORCH = load_repro(REPROS / "streams_torch.py")
REPORTED = "sdpa-tf32"
LONG = {**next(case["params"] for case in REPRO.cases() if case["id"] == REPORTED), "batch": 1}
CASES = {**distinct(REPRO, batch=2, length=24), f"{REPORTED} at full length": LONG}
STANDS_FOR = {  # what differs from torch's export in constants alone: the formulation that it is made of
    "control-lost-scale": ("explicit", 1),
    "control-lost-mul": ("sdpa", 1),
    "workaround-scale-on-q": ("sdpa", 2),
}


def module_of(params: dict[str, Any]) -> tuple[torch.nn.Module, int]:
    """The case's module, drawn as the report draws it, and in how many constants the case differs."""
    formulation = params["formulation"].replace("native-", "")
    base, constants = STANDS_FOR.get(formulation, (formulation, 0))
    torch.manual_seed(0)
    torch.rand(params["batch"], params["length"], params["heads"] * params["head_size"])
    module = REPRO.in_torch({**params, "formulation": base})
    return module.half() if params["precision"] == "fp16" else module, constants


@pytest.mark.parametrize("name", CASES)
def test_the_graph_is_torchs_export_and_the_reference_torchs_in_float64(name: str) -> None:
    params = CASES[name]
    prepared, (module, constants) = REPRO.prepare(params), module_of(params)
    export = exported(module, tensors(prepared["inputs"]), ["y"])
    mine, theirs = described(prepared["model"]), described(export)
    if not constants:
        named = [[(node.name, list(node.output)) for node in graph.node]
                 for graph in (prepared["model"].graph, export.graph)]  # fmt: skip
        assert named[0] == named[1]
    assert mine[:-1] == theirs[:-1]
    differing = [(a, b) for a, b in zip(mine[-1], theirs[-1], strict=True) if a != b]
    assert len(differing) == constants
    for ours, torchs in differing:
        assert ours[:2] == torchs[:2] == ("Constant", [])
        assert ours[2]["value"][:2] == torchs[2]["value"][:2], "another value of the same type and shape"
    x = torch.from_numpy(prepared["inputs"]["x"]).double()
    agree(prepared["reference"]["y"], module.double()(x))


@pytest.mark.parametrize(("seed", "embed"), [(0, 384), (7, 100)])
def test_draws_equal_torchs_bit_for_bit(seed: int, embed: int) -> None:
    torch.manual_seed(seed)
    random = TorchRandom(seed)
    assert random.rand(3, 50, embed).tobytes() == torch.rand(3, 50, embed).numpy().tobytes()
    qkv, proj = torch.nn.Linear(embed, 3 * embed, bias=False), torch.nn.Linear(embed, embed)
    drawn = Weights.draw(random, embed)
    for mine, theirs in ((drawn.qkv, qkv.weight), (drawn.proj, proj.weight), (drawn.bias, proj.bias)):
        assert mine.tobytes() == theirs.detach().numpy().tobytes()


def relus() -> dict[str, tuple[Any, dict[str, Any]]]:
    found = {"streams": (STREAMS, next(iter(STREAMS.cases()))["params"])}
    for case in STREAMS_TORCH.cases():
        params = case["params"]
        found.setdefault(f"{params['size']}-{params['dtype']}", (STREAMS_TORCH, params))
    return found


class Relu(torch.nn.Module):  # type: ignore[misc]  # no torch where the types are checked
    """A module with the repros' name of its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


@pytest.mark.parametrize("name", relus())
def test_the_relu_is_torchs_export(name: str) -> None:
    repro, params = relus()[name]
    prepared = repro.prepare(params)
    theirs = exported(Relu(), tensors(prepared["inputs"]), ["y"])
    assert described(prepared["model"]) == described(theirs)
    x = torch.from_numpy(prepared["inputs"]["x"].copy()).double()
    assert np.array_equal(prepared["reference"]["y"], x.relu().numpy())
