"""What the exporting script and the example for users write."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import torch
from tests.models.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "docs" / "examples" / "export_torch_module.py"


def compare(model: Path, module: torch.nn.Module, samples: list[Path]) -> None:
    """Run samples by ONNX Runtime and by torch."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for sample in samples:
        feeds = dict(np.load(sample))
        with torch.no_grad():
            right = module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
        rights = right if isinstance(right, tuple) else (right,)
        for y, r in zip(session.run(None, feeds), rights, strict=True):
            np.testing.assert_allclose(y, r.numpy(), rtol=1e-4, atol=1e-5)


def load(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location("export_torch_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_for_users_runs_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(folder)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert f"--model {folder / 'model.onnx'} --inputs {folder / 'inputs'}" in last
    samples = sorted((folder / "inputs").glob("*.npz"))
    assert len({np.load(sample)["ids"].shape for sample in samples}) > 3, "sizes differ from call to call"
    example = load(EXAMPLE)
    torch.manual_seed(0)
    compare(folder / "model.onnx", example.Classifier().eval(), samples)
