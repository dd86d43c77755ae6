"""The rows of a search on a GPU: ``upgrade --explain`` and ``minimise``, of graphs that versions get wrong.

Both graphs are small: what is timed is how a search asks its versions, and the first Builder of each.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.speed.bench import Bench
from bench.speed.machine import ROOT
from bench.speed.rows import CannotMeasure, Goal, Row

BEFORE, AFTER = "8.5.3.1", "8.6.0"
COMMAND = "nox -s bench -- speed --only search"
EXPLAIN_SECONDS, MINIMISE_SECONDS, HALF = 30.0, 60.0, 0.5
Arrays = Mapping[str, NDArray[Any]]


def measure_searches(bench: Bench) -> None:
    """Measure the searches at the version moved to: the last of those named, 8.6.0 where none is."""
    before, after = (*bench.versions, *(BEFORE, AFTER)[len(bench.versions) :])[:2]
    for name, upstream, (model, inputs) in _graphs():
        folder = bench.folder / f"search-{name}"
        folder.mkdir(parents=True)
        onnx.save(model, folder / "model.onnx")
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type] # arrays alone
        bench.say(f"running the graph of {upstream} ({name})")
        ran = _call(folder, "run", "--trt", f"{before},{after}", "--json")
        cells = {cell["version"]: cell for cell in _json(ran)["cells"]}
        if after not in cells or cells[after]["verdict"] != "FAIL":
            found = cells[after]["verdict"] if after in cells else ran.stderr[-2000:]
            raise CannotMeasure(f"{after} is to run here and to fail: {found}")
        _explain(bench, folder, name, upstream, (before, after))
        _minimise(bench, folder, name, upstream, cells[after]["id"])


def _explain(bench: Bench, folder: Path, name: str, upstream: str, versions: tuple[str, str]) -> None:
    before, after = versions
    words = ("upgrade", "--from", before, "--to", after, "--explain", "--json")
    started = time.monotonic()
    done = _call(folder, *words)
    whole = time.monotonic() - started
    told = {
        v: (int(n), float(s))
        for v, n, s in re.findall(r"^(\S+): (\d+) markings? in ([\d.]+) s$", done.stderr, re.MULTILINE)
    }
    if after not in told:
        raise RuntimeError(f"nothing was explained at {after}:\n{done.stderr[-2000:]}")
    layers = {one["version"]: one for one in _json(done)["model"]["wrong_layers"]}
    wrong = layers[after]
    figures = {f"at {version}, {count} markings": [seconds] for version, (count, seconds) in told.items()}
    bench.row(Row(
        name=f"search:explain:{name}", what=f"upgrade --explain, {upstream}: first wrong layer at {after}",
        against="nothing",
        goals=(Goal(what=f"at {after}", value=told[after][1], limit=EXPLAIN_SECONDS, unit="s"),),
        figures={**figures, "the whole command": [whole]},
        note=f"{after}: {_words(wrong)}. A version's seconds are from its container's start to its end, the "
        "first Builder in them. The model's own cells were run before.",
        command=COMMAND,
    ))  # fmt: skip


def _words(layer: Mapping[str, Any]) -> str:
    return str(layer.get("why_not") or f"{layer['operator']}, tensor {layer['tensor']}, {layer['error']}")


def _minimise(bench: Bench, folder: Path, name: str, upstream: str, cell: str) -> None:
    started = time.monotonic()
    done = _call(folder, "minimise", cell, "--json")
    seconds, data = time.monotonic() - started, _json(done)
    before, after = data["before"]["nodes"], data["after"]["nodes"]
    left = ", ".join(node.op_type for node in onnx.load(folder / "minimised" / "model.onnx").graph.node)
    bench.row(Row(
        name=f"search:minimise:{name}", what=f"minimise, {upstream}: {before} nodes", against="nothing",
        goals=(Goal(what="in all", value=seconds, limit=MINIMISE_SECONDS, unit="s"),
               Goal(what="of its nodes", value=after / before, limit=HALF)),
        figures={
            "the whole command": [seconds], "smaller models tried": [len(data["trials"])],
            "nodes left": [after],
        },
        note=f"Left: {left}. {data['manner']}.", command=COMMAND,
    ))  # fmt: skip


def _call(folder: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the program over a project of its own; how it ends is read from what it prints."""
    files = [f"--matrix={ROOT / 'matrix.yaml'}", f"--repros={ROOT / 'repros'}", f"--cache={folder / 'cache'}"]
    files += [f"--results={folder / 'results'}"]
    model = [] if name == "minimise" else ["--model", str(folder / "model.onnx"), "--precision", "fp32"]
    model += [] if name == "minimise" else ["--inputs", str(folder / "inputs.npz")]
    to = ["--to", str(folder / "minimised")] if name == "minimise" else []
    command = [sys.executable, "-m", "trtmatrix", name, *words, *files, *model, *to]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _json(done: subprocess.CompletedProcess[str]) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(
            f"{' '.join(done.args[2:5])} ended with {done.returncode}:\n{done.stderr[-2000:]}"
        ) from None


def _graphs() -> Iterator[tuple[str, str, tuple[ModelProto, Arrays]]]:
    """Yield a graph's name, its report, the graph and its inputs."""
    yield "gemm", "NVIDIA/TensorRT#3645", _gathered("Gemm")
    yield "matmul", "NVIDIA/TensorRT#3645 (MatMul, Add)", _gathered("MatMul")
    yield "reduce", "NVIDIA/TensorRT#3467", _reduced()


def _gathered(linear: str) -> tuple[ModelProto, Arrays]:
    """Return rows gathered by an index and other rows, a Linear over each, as heads, multiplied and summed.

    192 rows of 128 numbers, 8 heads; float32, as https://github.com/NVIDIA/TensorRT/issues/3645 describes.
    """
    random, rows, width, heads = np.random.RandomState(3645), 192, 128, 8
    weights: dict[str, NDArray[Any]] = {
        "index": random.randint(0, rows, rows), "heads": np.array([-1, heads, width // heads]),
        "last": np.array([-1]),
    }  # fmt: skip
    nodes = [helper.make_node("Gather", ["nodes", "index"], ["gathered"], axis=0)]
    for source, name in (("gathered", "q"), ("edges", "k")):
        weights[f"w_{name}"] = (random.randn(width, width) / width**0.5).astype(np.float32)
        weights[f"b_{name}"] = (random.randn(width) / 10).astype(np.float32)
        if linear == "Gemm":
            nodes.append(helper.make_node("Gemm", [source, f"w_{name}", f"b_{name}"], [name]))
        else:
            nodes.append(helper.make_node("MatMul", [source, f"w_{name}"], [f"{name}_product"]))
            nodes.append(helper.make_node("Add", [f"{name}_product", f"b_{name}"], [name]))
        nodes.append(helper.make_node("Reshape", [name, "heads"], [f"{name}_heads"]))
    nodes.append(helper.make_node("Mul", ["q_heads", "k_heads"], ["both"]))
    nodes.append(helper.make_node("ReduceSum", ["both", "last"], ["y"], keepdims=0))
    inputs = {name: random.randn(rows, width).astype(np.float32) for name in ("nodes", "edges")}
    return _model(nodes, weights, inputs, (rows, heads), 17), inputs


def _reduced() -> tuple[ModelProto, Arrays]:
    """Return x / sqrt(mean(x²)) over the last axis, by opset 18's ReduceMean, whose axes are an input.

    (2, 24, 64), float32, as https://github.com/NVIDIA/TensorRT/issues/3467 describes.
    """
    random = np.random.RandomState(3467)
    x = (random.randn(2, 24, 64) * np.exp(random.uniform(-1.5, 1.5, (2, 24, 1)))).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "last"], ["ms"]),
        helper.make_node("Sqrt", ["ms"], ["size"]), helper.make_node("Div", ["x", "size"], ["y"]),
    ]  # fmt: skip
    return _model(nodes, {"last": np.array([-1])}, {"x": x}, x.shape, 18), {"x": x}


def _model(
    nodes: Sequence[onnx.NodeProto], weights: Arrays, inputs: Arrays, shape: tuple[int, ...], opset: int
) -> ModelProto:
    fed = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", fed, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
