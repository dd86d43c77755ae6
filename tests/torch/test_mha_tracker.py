"""The tracker's graphs are torch's own exports of its modules, and its reference is torch's in float64.

Needs torch 2.13.0 on the CPU; `nox -s torch_tests` makes that environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.torch.comparing import described, exported, tensors

import torch
from trtprobe.cell import load_repro

REPRO = load_repro(Path(__file__).parents[2] / "repros" / "mha_tracker.py")
SMALL = {"length": 27, "batch": 2, "embed": 64, "heads": 8, "hidden": 96}
CASES = {case["id"]: {**case["params"], **SMALL} for case in REPRO.cases()}
OUTPUTS = {"alone": ["y"], "whole": ["output_embed", "enc_mem"]}


def loaded(params: dict[str, Any], dtype: torch.dtype) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The case's module with the case's weights, and the case's inputs."""
    made = REPRO.prepare({**params, "native": True})
    module = REPRO.in_torch(params)
    module.load_state_dict(tensors(made["extra"]))
    inputs = tensors(made["inputs"])
    floats = {name: x.to(dtype) for name, x in inputs.items() if x.dtype != torch.bool}
    return module.to(dtype).eval(), {**inputs, **floats}


def theirs(params: dict[str, Any]) -> onnx.ModelProto:
    dtype = torch.float16 if params["precision"] == "fp16" else torch.float32
    module, inputs = loaded(params, dtype)
    return exported(module, inputs, OUTPUTS[params["module"]])


def with_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put Casts to float32 and back around each Softmax."""
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Softmax":
            nodes.append(node)
            continue
        x, y = node.input[0], node.output[0]
        inner = onnx.helper.make_node("Softmax", [f"{x}.wide"], [f"{y}.wide"], axis=-1)
        nodes += [
            onnx.helper.make_node("Cast", [x], [f"{x}.wide"], to=onnx.TensorProto.FLOAT),
            inner,
            onnx.helper.make_node("Cast", [f"{y}.wide"], [y], to=onnx.TensorProto.FLOAT16),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("name", [name for name in CASES if "control-lost" not in name])
def test_graph_equals_torchs_export(name: str) -> None:
    params = CASES[name]
    expected = theirs(params)
    if name == "whole-softmax32-fp16":
        expected = with_casts(expected)
    assert described(REPRO.prepare(params)["model"]) == described(expected)


@pytest.mark.parametrize("name", ["whole-fp32", "alone-fp16"])
def test_graph_equals_torchs_export_at_full_size(name: str) -> None:
    params = {case["id"]: case["params"] for case in REPRO.cases()}[name]
    assert described(REPRO.prepare(params)["model"]) == described(theirs(params))


@pytest.mark.parametrize("case", CASES)
def test_reference_is_torchs_in_float64(case: str) -> None:
    params = CASES[case]
    made, module = REPRO.prepare(params), params["module"]
    in_float64, inputs = loaded(params, torch.float64)
    with torch.no_grad():
        outputs = in_float64(**inputs)
    outputs = (outputs,) if module == "alone" else outputs
    for name, output in zip(OUTPUTS[module], outputs, strict=True):
        expected = output.numpy()
        error = np.linalg.norm(made["reference"][name] - expected) / np.linalg.norm(expected)
        assert error < 1e-12
