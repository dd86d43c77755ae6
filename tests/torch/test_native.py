"""The rows that export inside the image: the repros' own run(), with this torch, on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.torch.comparing import REPROS, described

from trtprobe import native
from trtprobe.cell import load_repro, run_and_measure

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
