"""``python -m tests.models.export DIR``: writes the four models and their inputs by torch's own exporter.

Each gets a folder: ``model.onnx`` and ``inputs/*.npz``, a file a sample. Opset 16, which the parsers from
TensorRT 8.5 on take (LayerNormalization is opset 17's, and 8.5 has no importer for it).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import torch
from tests.models import nets


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
    "vit": Export(make=nets.Vit, draw=_image, outputs=["logits"]),
    "cnn": Export(make=nets.Cnn, draw=_image, outputs=["logits", "features"]),
    "text": Export(make=nets.Text, draw=_text, outputs=["logits"], dynamic=_TEXT),
    "quantized": Export(make=nets.Quantized, draw=_image, outputs=["logits"]),
    # not of the four: a defect put in
    "vit-lost-scale": Export(make=lambda: nets.Vit(keep_scale=False), draw=_image, outputs=["logits"]),
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
