"""Export a torch module to ONNX, with samples of its inputs, for the question "should we upgrade?".

    python export_torch_module.py DIR

writes DIR/model.onnx and DIR/inputs/*.npz, a file a sample. Needs torch, and onnx, which torch's exporter
asks for (pip install torch onnx). Put your own module and your own inputs where the three marks are; real
inputs tell more than random ones.
"""

import sys
from pathlib import Path

import numpy as np

import torch


class Classifier(torch.nn.Module):  # 1. your module
    """Attention over word vectors, and a weighted sum of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(1000, 64)
        self.qkv = torch.nn.Linear(64, 3 * 64)
        self.head = torch.nn.Linear(64, 5)

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the scores; a size that may change must come from a tensor's shape, or it is baked in."""
        batch, length = ids.shape
        qkv = self.qkv(self.words(ids)).reshape(batch, length, 3, 4, 16).permute(2, 0, 3, 1, 4)
        x = torch.nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x.transpose(1, 2).reshape(batch, length, 64) * weights[:, :, None]
        return self.head(x.sum(dim=1))


def draw_sample(number: int) -> dict[str, torch.Tensor]:  # 2. your inputs, by name
    """Draw the inputs of one call; sizes that may differ from call to call do so here."""
    batch, length = 1 + number % 4, 8 * (1 + number % 3)
    return {"ids": torch.randint(0, 1000, (batch, length)), "weights": torch.rand(batch, length)}


AXES = {"ids": {0: "batch", 1: "length"}, "weights": {0: "batch", 1: "length"}, "scores": {0: "batch"}}
# 3. what may have another size at each call, and the outputs' names; {} where nothing may


def main(folder: Path) -> None:
    """Write the model and its samples, and say how to go on."""
    torch.manual_seed(0)
    module = Classifier().eval()  # eval(): dropout and the like are for training
    samples = [draw_sample(number) for number in range(6)]
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(samples):
        np.savez(folder / "inputs" / f"{number:03}.npz", **{name: x.numpy() for name, x in sample.items()})
    torch.onnx.export(
        module, (), str(folder / "model.onnx"), kwargs=samples[-1], dynamic_axes=AXES,
        input_names=list(samples[-1]), output_names=["scores"],
        opset_version=16,  # TensorRT 8.5 to 11 parse it; 17 is for 8.6 and later
        dynamo=False,  # the exporter that needs no onnxscript
    )  # fmt: skip
    model, inputs = (folder / name for name in ("model.onnx", "inputs"))
    print(f"{model} and {len(samples)} samples are written. What an upgrade does to it:")
    print(f"  nox -s upgrade -- --from 8.6.1 --to 10.8.0 --model {model} --inputs {inputs}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "exported"))
