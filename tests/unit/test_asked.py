"""What a repro asks of the build is noted without a product, and nothing is made up where it does more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trtmatrix.core.bundle.facts import Recipe
from trtmatrix.core.model import Product
from trtmatrix.effects.asked import read_recipe
from trtmatrix.onnxmodel.writing import Page, write_page

TENSORRT, ONNXRUNTIME = Product.TENSORRT, Product.ONNXRUNTIME


def make(tmp_path: Path, run: str, *, reference: bool = True) -> tuple[Path, Path]:
    """Write a repro whose run() has these lines, and a case with the inputs a and b."""
    lines = "\n".join(f"    {line}" for line in run.splitlines())
    repro, files = tmp_path / "repro.py", tmp_path / "case"
    repro.write_text(f"import numpy as np\ndef run(params, files, trt):\n{lines}\n")
    for folder in ("inputs", "others", *(("reference",) if reference else ())):
        (files / folder).mkdir(parents=True)
    np.save(files / "inputs" / "a.npy", np.zeros((2, 3)))
    np.save(files / "inputs" / "b.npy", np.zeros(4))
    if reference:
        np.save(files / "reference" / "y.npy", np.zeros(5))
    (files / "others" / "plain.onnx").write_bytes(b"")
    (files / "case.json").write_text(json.dumps({"params": {}}))
    return repro, files


def recipe(repro: Path, files: Path, product: Product = TENSORRT) -> Recipe | None:
    return read_recipe(repro, {"precision": "fp16", "level": 4}, files, product)


def test_a_build_and_a_run(tmp_path: Path) -> None:
    options = (
        "level=params['level'], plugins=True, keep_fp32=['Softmax'], outputs=('s',), quantized=('int8',)"
    )
    run = f"return trt.build(files.model, precision=params['precision'], {options}).run(files.inputs)"
    assert recipe(*make(tmp_path, run)) == Recipe(
        precision="fp16", level=4, plugins=True, keep_fp32=("Softmax",), marked=("s",), quantized=("int8",),
        inputs={"a": "a", "b": "b"}, outputs={"y": "y"}, shapes={"a": (2, 3), "b": (4,)},
    )  # fmt: skip


def test_without_a_reference(tmp_path: Path) -> None:
    found = recipe(*make(tmp_path, "return trt.build(files.model).run(files.inputs)", reference=False))
    assert found is not None
    assert (found.has_reference, found.outputs, found.precision) == (False, {}, "tf32")


COMPARES = """\
other = trt.build(files.others["plain"], precision="fp32").run(files.inputs)["y"] if trt.has_streams else None
apart = trt.build(files.model, precision="fp32", outputs=("s",))
trt.measure("fused", apart.fusion(files.inputs) == "fused")
engine = trt.build(files.model, precision="tf32")
outputs = engine.run(files.inputs)
raise SystemExit("this is not reached")"""


@pytest.mark.parametrize("product", [TENSORRT, ONNXRUNTIME])
def test_of_several_builds_the_one_that_is_run_counts(tmp_path: Path, product: Product) -> None:
    found = recipe(*make(tmp_path, COMPARES), product)
    assert found is not None
    assert (found.precision, found.marked) == ("tf32", ())


@pytest.mark.parametrize(
    "run",
    [
        "import torch_that_is_not_there",
        "trt.build(files.model)\nreturn trt.cuda.stream()",
        "return trt.build(files.model.with_name('exported.onnx')).run(files.inputs)",
        "return {}",
        "trt.build(files.model).enqueue(None)",
    ],
)
def test_what_is_more_than_a_build_and_a_run_has_no_recipe(tmp_path: Path, run: str) -> None:
    assert recipe(*make(tmp_path, run)) is None


def test_a_users_own_model_names_its_arrays(tmp_path: Path) -> None:
    page = Page(
        title="your model m.onnx", summary="", case="tf32-1", precision="tf32", floor="tf32", digests={},
        samples=2, inputs={"in_0": "in:0"}, outputs={"out_y": "out/y"},
        profile={"in:0": ((1, 8), (2, 8), (4, 8))}, quantized=("int8",), tolerance={},
    )  # fmt: skip
    _, files = make(tmp_path, "")
    for number in range(2):
        np.save(files / "inputs" / f"in_0.s{number}.npy", np.zeros((number + 1, 8)))
    (tmp_path / "own.py").write_text(write_page(page))
    assert recipe(tmp_path / "own.py", files) == Recipe(
        precision="fp16", inputs={"in_0": "in:0"}, outputs={"out_y": "out/y"}, samples=2, quantized=("int8",),
        profile={"in:0": ((1, 8), (2, 8), (4, 8))}, shapes={"in:0": (1, 8)},
    )  # fmt: skip
