"""Each case of deformable-plugin is torch's own export of its module, and each reference grid_sample's."""

from typing import Any

import pytest
from onnx import numpy_helper
from tests.torch.comparing import REPROS, agree, distinct, exported, same, tensors
from torch.nn import functional

import torch
from torch import Tensor, nn
from trtprobe.cell import load_repro

NAME = "nvidia::MultiscaleDeformableAttnPlugin_TRT"
REPRO = load_repro(REPROS / "deformable_plugin.py")
CASES = distinct(REPRO)


class Plugin(torch.autograd.Function):  # type: ignore[misc]  # no torch where the types are checked
    """The operator as a model that is meant for TensorRT exports it: by its name, without attributes."""

    @staticmethod
    def forward(_: Any, *inputs: Tensor) -> Tensor:
        value, places = inputs[0], inputs[3]
        return value.new_zeros(value.shape[0], places.shape[1], *value.shape[2:])

    @staticmethod
    def symbolic(g: Any, *inputs: Any) -> Any:
        sizes, queries = inputs[0].type().sizes(), inputs[3].type().sizes()[1]
        return g.op(NAME, *inputs).setType(inputs[0].type().with_sizes([sizes[0], queries, *sizes[2:]]))


class Attention(nn.Module):  # type: ignore[misc]
    """The plugin's call with the levels' shapes and starts as buffers, as deformable attention keeps them."""

    def __init__(self, shapes: Tensor, starts: Tensor, *, cast: bool) -> None:
        super().__init__()
        self.register_buffer("spatial_shapes", shapes)
        self.register_buffer("level_start_index", starts)
        self.cast = cast

    def forward(self, value: Tensor, sampling_locations: Tensor, attention_weights: Tensor) -> Tensor:
        shapes, starts = self.spatial_shapes, self.level_start_index
        if self.cast:
            shapes, starts = shapes.int(), starts.int()
        return Plugin.apply(value, shapes, starts, sampling_locations, attention_weights)


def by_grid_sample(inputs: dict[str, Tensor], levels: list[list[int]]) -> Tensor:
    """Deformable attention as models without the plugin write it, in float64."""
    value, places, weights = (tensor.double() for tensor in inputs.values())
    batch, _, heads, channels = value.shape
    queries, points = places.shape[1], places.shape[4]
    y = value.new_zeros(batch * heads, channels, queries)
    for level, rows in enumerate(value.split([height * width for height, width in levels], dim=1)):
        maps = rows.permute(0, 2, 3, 1).reshape(batch * heads, channels, *levels[level])
        grid = (2 * places[:, :, :, level] - 1).transpose(1, 2).reshape(batch * heads, queries, points, 2)
        sampled = functional.grid_sample(
            maps, grid, mode="bilinear", padding_mode="zeros", align_corners=False
        )
        weight = weights[:, :, :, level].transpose(1, 2).reshape(batch * heads, 1, queries, points)
        y += (sampled * weight).sum(dim=-1)
    return y.reshape(batch, heads, channels, queries).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", CASES)
def test_graph_is_torchs_export_and_reference_grid_samples_in_float64(name: str) -> None:
    params = CASES[name]
    made = REPRO.prepare(params)
    constants = tensors({w.name: numpy_helper.to_array(w) for w in made["model"].graph.initializer})
    assert list(constants) == ["spatial_shapes", "level_start_index"]
    cast = params["constants"] == "cast"  # with constant folding torch does the cast itself
    inputs = tensors(made["inputs"])
    theirs = exported(Attention(*constants.values(), cast=cast), inputs, ["y"], fold=not cast)
    same(made["model"], theirs)
    imports = [[(o.domain, o.version) for o in model.opset_import] for model in (made["model"], theirs)]
    assert imports[0] == imports[1]
    levels = [[int(n) for n in level.split("x")] for level in params["levels"].split()]
    agree(made["reference"]["y"], by_grid_sample(inputs, levels))
