"""The tracker's graphs and reference are torch's; rows that export inside the image run with this torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.torch.comparing import REPROS, agree, described, distinct, exported, tensors

import torch
from trtprobe import native
from trtprobe.cell import load_repro, run_and_measure

REPRO = load_repro(REPROS / "mha_tracker.py")
CASES = distinct(REPRO, length=27, embed=64, hidden=96)
OUTPUTS = {"alone": ["y"], "whole": ["output_embed", "enc_mem"]}


def loaded(params: dict[str, Any], dtype: torch.dtype) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
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


@pytest.mark.parametrize("name", CASES)
def test_graph_is_torchs_export_and_reference_torchs_in_float64(name: str) -> None:
    params = CASES[name]
    made, module = REPRO.prepare(params), params["module"]
    if "control-lost" not in name:
        expected = theirs(params)
        if name == "whole-softmax32-fp16":
            expected = with_casts(expected)
        assert described(made["model"]) == described(expected)
    in_float64, inputs = loaded(params, torch.float64)
    outputs = in_float64(**inputs)
    for output, y in zip(OUTPUTS[module], (outputs,) if module == "alone" else outputs, strict=True):
        agree(made["reference"][output], y)


def test_graph_is_torchs_export_at_full_size() -> None:
    params = next(case["params"] for case in REPRO.cases() if case["id"] == "whole-fp32")
    assert described(REPRO.prepare(params)["model"]) == described(theirs(params))


SMALL = {
    "sdpa_scale": {"batch": 2, "length": 24, "heads": 4, "head_size": 16},
    "mha_tracker": {"length": 27, "embed": 64, "hidden": 96},
}


def native_cases() -> Iterator[Any]:
    for stem in SMALL:
        for case in load_repro(REPROS / f"{stem}.py").cases():
            if "torch" in case.get("needs", []):
                yield pytest.param(stem, case, id=f"{stem}/{case['id']}")


def written(stem: str, params: dict[str, Any], folder: Path) -> dict[str, Any]:
    made = dict(load_repro(REPROS / f"{stem}.py").prepare(params))
    onnx.save(made["model"], str(folder / "model.onnx"))
    for kind in ("inputs", "reference", "extra"):
        (folder / kind).mkdir()
        for name, array in made[kind].items():
            np.save(folder / kind / f"{name}.npy", array)
    return made


@pytest.mark.parametrize(("stem", "case"), native_cases())
def test_what_this_torch_exports_computes_the_reference(
    stem: str, case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, models, export = {**case["params"], **SMALL[stem]}, [], native.export

    def watched(*args: Any) -> Path:
        path = export(*args)
        models.append(onnx.load(path))
        return path

    monkeypatch.setattr(native, "export", watched)
    files = tmp_path / "files"
    files.mkdir()
    made = written(stem, params, files)
    spec = {
        "product": "onnxruntime", "repro": str(REPROS / f"{stem}.py"), "params": params,
        "files": str(files), "keep_outputs": False,
    }  # fmt: skip
    result = run_and_measure(spec)
    assert (result["ended"], result["detail"]) == ("ran", "")
    outputs = result["measurements"]["outputs"]
    assert set(outputs) == set(made["reference"])
    assert all(output["rel_l2"] < 2e-6 for output in outputs.values())
    assert [described(model) for model in models] == [described(made["model"])]
