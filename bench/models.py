"""``python -m bench.models DIR``: writes 24 models with inputs and a models.yaml, for ``upgrade --models``.

20 small ones (``--tag small``): four of torch's exports (where torch is here), nine of ONNX's node tests and
seven graphs of the repros. Three of ONNX's light networks with drawn weights, and a perceptron of 500 MB
(``--big BYTES`` for another size). All are drawn with fixed seeds. TensorRT 8.5's parser takes their opsets,
but where a repro is about another.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from trtmatrix.suite.repro_files import read_repros

Array = NDArray[Any]

LIGHT = ("squeezenet", "shufflenet", "resnet50")
NODES = (
    "gru_defaults", "argmax_keepdims_random", "resize_upsample_scales_nearest", "top_k",
    "softmax_large_number", "lstm_defaults", "conv_with_strides_padding", "instancenorm_example", "matmul_4d",
)  # fmt: skip
OPSET = 16
"""The newest that all importers of TensorRT 8.5 know."""

CASES: Mapping[str, tuple[str, str]] = {
    "transpose-constant": ("constant-float-102", "tf32"), "parser-drops": ("reduce-layernorm", "tf32"),
    "gathered-linear": ("linear-fp16", "fp16"), "norm-fp16": ("layernorm-flag", "fp16"),
    "clip-after-linear": ("relu6-gemm", "tf32"), "cumsum-axes": ("two-axes-48", "tf32"),
    "shared-input-linears": ("qkv-16-fp16", "fp16"),
}  # fmt: skip
"""Repro → its case, and the precision that is asked for."""

BIG = 500_000_000


@dataclass(frozen=True, kw_only=True)
class Made:
    """A model to be written; without samples its inputs are drawn by upgrade itself."""

    name: str
    tag: str
    model: onnx.ModelProto
    sample: Mapping[str, Array]
    precision: str = "tf32"


def light(name: str) -> Made:
    """Return a network of ONNX's backend tests, whose constant weights are drawn anew, by their fan-in."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model, rng = onnx.load(folder / f"light_{name}.onnx"), np.random.default_rng(0)
    shapes = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    kept, weights = [], {}
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(map(int, shapes[node.input[0]]))
        scale = np.sqrt(2.0 / max(1, int(np.prod(shape[1:])))) if len(shape) > 1 else 0.1
        drawn = rng.normal(0.0 if len(shape) > 1 else 1.0, scale, shape).astype(np.float32)
        weights[node.output[0]] = np.abs(drawn) if len(shape) == 1 else drawn  # variances are positive
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(a, name=key) for key, a in weights.items())
    constants = {item.name for item in model.graph.initializer}
    (data,) = (item for item in model.graph.input if item.name not in constants)
    size = [dim.dim_value for dim in data.type.tensor_type.shape.dim]
    return Made(name=name, tag="network", model=model, sample={data.name: draw(size)})


def draw(shape: Sequence[int]) -> Array:
    """Return standard normal numbers."""
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def nodes() -> Iterator[Made]:
    """Yield models of ONNX's node tests with their own inputs."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some overflow on purpose
        known = {case.name.removeprefix("test_"): case for case in collect_testcases(None)}
    for name in NODES:
        model = onnx.ModelProto()
        model.CopyFrom(known[name].model)
        model.ir_version = 8
        for opset in model.opset_import:
            opset.version = min(opset.version, OPSET)
        arrays = (np.asarray(array) for array in (known[name].data_sets or [])[0][0])
        sample = {item.name: array for item, array in zip(model.graph.input, arrays, strict=True)}
        yield Made(name=name.replace("_", "-"), tag="onnx", model=model, sample=sample)


def findings() -> Iterator[Made]:
    """Yield the graphs of the repros, with their inputs."""
    for loaded in read_repros(Path(__file__).parents[1] / "repros"):
        if loaded.repro.id not in CASES:
            continue
        case_id, precision = CASES[loaded.repro.id]
        case = next(case for case in loaded.repro.cases if case.id == case_id)
        made = loaded.module.prepare(dict(case.params))
        sample = {name: np.asarray(array) for name, array in made["inputs"].items()}
        yield Made(
            name=loaded.repro.id, tag="finding", model=made["model"], sample=sample, precision=precision
        )


def big(size: int) -> Made:
    """Return a perceptron of four layers whose weights take so many bytes."""
    width, rng = int((size / 16) ** 0.5), np.random.default_rng(2)
    graph_nodes, initializers, x = [], [], "x"
    for layer in range(4):
        weight = rng.standard_normal((width, width), dtype=np.float32) * np.float32((2 / width) ** 0.5)
        initializers.append(numpy_helper.from_array(weight, name=f"w{layer}"))
        graph_nodes += [
            helper.make_node("MatMul", [x, f"w{layer}"], [f"m{layer}"]),
            helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]),
        ]
        x = f"r{layer}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, width]) for name in ("x", x)]
    graph = helper.make_graph(graph_nodes, "big", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)])
    return Made(name="big", tag="big", model=model, sample={"x": draw([8, width])})


def write(folder: Path, size: int) -> list[str]:
    """Write all models, and models.yaml; returns its lines."""
    lines = ["schema: 1", "models:"]
    for made in (*map(light, LIGHT), *nodes(), *findings(), big(size)):
        place = folder / made.name
        place.mkdir(parents=True, exist_ok=True)
        onnx.save(made.model, place / "model.onnx")
        np.savez(place / "inputs.npz", **made.sample)  # type: ignore[arg-type]  # arrays alone
        files = f"file: {made.name}/model.onnx, inputs: {made.name}/inputs.npz"
        tags = made.tag if made.tag in {"network", "big"} else f"small, {made.tag}"
        lines.append(f"  - {{name: {made.name}, {files}, precision: {made.precision}, tags: [{tags}]}}")
    for name in ("vit", "cnn", "text", "quantized"):
        try:
            from tests.models import export

            export.write(name, folder / name)
        except Exception as error:  # noqa: BLE001 - the others are written all the same
            print(f"without torch's export {name}: {error!r}")
            continue
        files = f"file: {name}/model.onnx, inputs: {name}/inputs"
        lines.append(f"  - {{name: {name}, {files}, tags: [small, torch]}}")
    (folder / "models.yaml").write_text("\n".join(lines) + "\n")
    return lines


def main() -> None:
    """Write them and say where."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--big", type=int, default=BIG, metavar="BYTES", help="size of the largest")
    args = parser.parse_args()
    lines = write(args.folder, args.big)
    print(f"{len(lines) - 2} models: python -m trtmatrix upgrade --from A --to B --models {args.folder}")


if __name__ == "__main__":
    main()
