"""``python -m tests.models.export DIR``: writes the four models and their inputs by torch's own exporter.

Each gets a folder: ``model.onnx`` and ``inputs/*.npz``, a file a sample. Opset 16, which the parsers from
TensorRT 8.5 on take (LayerNormalization is opset 17's, and 8.5 has no importer for it).
"""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch.nn import functional as fn

import torch
from torch import Tensor, nn


class Attention(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """Self-attention of several heads; ``mask`` is 1 where a token may be looked at."""

    def __init__(self, width: int, heads: int, *, keep_scale: bool = True) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.scale = self.size**-0.5 if keep_scale else 1.0
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        scores = (q * self.scale) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores + (1.0 - mask)[:, None, None, :] * -10000.0
        y = scores.softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """A transformer's block, normalised in front."""

    def __init__(self, width: int, heads: int, *, keep_scale: bool = True) -> None:
        super().__init__()
        self.attention = Attention(width, heads, keep_scale=keep_scale)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.first(x), mask)
        return x + self.mlp(self.second(x))


class Vit(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """A vision transformer of two blocks over 32×32 pixels in patches of 8."""

    def __init__(self, width: int = 64, heads: int = 2, *, keep_scale: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads, keep_scale=keep_scale) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Residual(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """Two convolutions beside a shortcut; batch normalisation stands in front, so nothing folds it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        for norm in self.norms:  # as after some training
            norm.running_mean.uniform_(-0.5, 0.5)
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(fn.relu(norm(y)))
        return x + y


class Cnn(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """A small residual network with both kinds of pooling and two outputs."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, padding=2)
        self.blocks = nn.Sequential(Residual(width), nn.MaxPool2d(2), Residual(width), nn.AvgPool2d(2))
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        features = self.blocks(self.stem(image))
        return self.head(features.mean(dim=(2, 3))), features


class Text(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """A text classifier: token ids and a mask, batch and length of any size."""

    def __init__(self, words: int = 100, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.block, self.head = Block(width, 2), nn.Linear(width, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.block(self.words(ids), mask)
        weights = mask / mask.sum(dim=1, keepdim=True)
        return self.head((x * weights[:, :, None]).sum(dim=1))


class Quantized(nn.Module):  # type: ignore[misc]  # there are no types of torch here
    """Two convolutions whose weights (by channel) and activations are rounded to INT8 (zero point 0)."""

    def __init__(self, widths: tuple[int, int] = (16, 24)) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1)
            for before, after in zip((3, *widths), widths, strict=False)
        )
        self.steps = (4.0 / 127, 6.0 / 127)
        for number, conv in enumerate(self.convs):  # buffers: TensorRT wants scales that are constants
            scales = conv.weight.detach().abs().amax(dim=(1, 2, 3)) / 127
            self.register_buffer(f"scales{number}", scales)
            self.register_buffer(f"zeros{number}", torch.zeros(len(scales), dtype=torch.int32))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, image: Tensor) -> Tensor:
        x, rounding = image, ((self.scales0, self.zeros0), (self.scales1, self.zeros1))
        for conv, step, (scales, zeros) in zip(self.convs, self.steps, rounding, strict=True):
            weight = torch.fake_quantize_per_channel_affine(conv.weight, scales, zeros, 0, -128, 127)
            x = torch.fake_quantize_per_tensor_affine(x, step, 0, -128, 127)
            x = fn.relu(fn.conv2d(x, weight, conv.bias, padding=1))
        return self.head(x.mean(dim=(2, 3)))


@dataclass(frozen=True, kw_only=True)
class Export:
    """How one model comes to be: ``make`` the module, ``draw`` the inputs of the k-th sample."""

    make: Callable[[], torch.nn.Module]
    draw: Callable[[int, torch.Generator], Mapping[str, torch.Tensor]]
    outputs: Sequence[str]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    samples: int = 3


def _image(_: int, random: torch.Generator) -> dict[str, torch.Tensor]:
    return {"image": torch.randn(1, 3, 32, 32, generator=random)}


def _text(sample: int, random: torch.Generator) -> dict[str, torch.Tensor]:
    """Return batches of 1 to 3 and lengths of 5 to 15, the last tokens of each text but one masked out."""
    batch, length = sample % 3 + 1, 5 * (sample % 3 + 1)
    mask = torch.ones(batch, length)
    mask[1:, length // 2 :] = 0
    return {"ids": torch.randint(0, 100, (batch, length), generator=random), "mask": mask}


_TEXT = {"ids": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}, "logits": {0: "batch"}}
EXPORTS = {
    "vit": Export(make=Vit, draw=_image, outputs=["logits"]),
    "cnn": Export(make=Cnn, draw=_image, outputs=["logits", "features"]),
    "text": Export(make=Text, draw=_text, outputs=["logits"], dynamic=_TEXT),
    "quantized": Export(make=Quantized, draw=_image, outputs=["logits"]),
    # not of the four: a defect put in
    "vit-lost-scale": Export(make=lambda: Vit(keep_scale=False), draw=_image, outputs=["logits"]),
}
FOUR = ("vit", "cnn", "text", "quantized")


def write(name: str, folder: Path) -> Path:
    """Export one model with its samples into a folder, and return the model's path."""
    export = EXPORTS[name]
    torch.manual_seed(0)
    module = export.make().eval()
    random = torch.Generator().manual_seed(1)
    samples = [export.draw(k, random) for k in range(export.samples)]
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(samples):
        arrays = {input_name: tensor.numpy() for input_name, tensor in sample.items()}
        np.savez(folder / "inputs" / f"{number:03}.npz", **arrays)
    path = folder / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this exporter is the older one
        torch.onnx.export(
            module, (), path, kwargs=dict(samples[-1]), dynamo=False, opset_version=16,
            input_names=list(samples[-1]), output_names=list(export.outputs),
            dynamic_axes={key: dict(axes) for key, axes in export.dynamic.items()},
        )  # fmt: skip
    return path


def main() -> None:
    """Write those that are named, or all four."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.export", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(EXPORTS)}")
    args = parser.parse_args()
    unknown = sorted(set(args.models) - set(EXPORTS))
    if unknown:
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(EXPORTS)}")
    for name in args.models or FOUR:
        print(write(name, args.folder / name))


if __name__ == "__main__":
    main()
